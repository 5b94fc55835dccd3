//! What is stored about a job and about an event.

/// An ended job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Number of the job.
    pub id: u64,
    /// State in a word, such as `failed`.
    pub state: String,
    /// Reason for the state in a word; may be empty.
    pub reason: String,
    /// User who submitted it.
    pub user: String,
    /// Virtual cluster it belongs to.
    pub tenant: String,
    /// Name.
    pub name: String,
    /// Whether only its owner and administrators see it.
    pub private: bool,
    /// Number of GPUs it asked for.
    pub gpus: u32,
    /// When it was submitted, in microseconds since 1970.
    pub submitted: i64,
    /// GPU time of all attempts, in GPU-microseconds.
    pub gpu_time: i64,
    /// Time until it first got GPUs, or until it ended, in microseconds.
    pub wait: i64,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Idempotency key of the request.
    pub key: Option<String>,
    /// GPU time by day, as days since 1970 and GPU-microseconds.
    pub usage: Vec<(i64, i64)>,
    /// The whole record, as the caller encodes it.
    pub record: Vec<u8>,
}

/// An event to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Number of the event.
    pub number: u64,
    /// Job that it is about.
    pub job: Option<u64>,
    /// The event, as the caller encodes it.
    pub body: Vec<u8>,
}

/// A stored event, with what decides who may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Number of the event.
    pub number: u64,
    /// The event, as the caller encoded it.
    pub body: Vec<u8>,
    /// User, virtual cluster and privacy of the job that it is about, if that job is in the history.
    pub owner: Option<(String, String, bool)>,
}
