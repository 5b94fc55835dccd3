//! One task owns the book. What people and agents tell it is written down, made durable in one go with everything else
//! that waits, and only then answered and acted upon.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dovetail_engine::Clock;
use dovetail_journal::{Journal, JournalError, Recovered, Repair};
use dovetail_model::{NodeId, Time};

use crate::fact::{Fact, PolicyText, Record};
use crate::handle::Handle;
use crate::state::{ClusterState, RuntimeCommand};

/// Where orders go, and news.
pub trait Backend: Send + 'static {
    /// Tells agents what to do. An agent that is not there is told when it comes back.
    fn dispatch(&mut self, commands: Vec<(NodeId, RuntimeCommand)>);

    /// Something happened: notices up to this number are in the book.
    fn events_recorded(&mut self, last: u64);

    /// The journal cannot be written (why), or can be again (none).
    fn journal_unavailable(&mut self, _error: Option<&str>) {}
}

/// How a driver is started.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// The folder of the journal.
    pub dir: PathBuf,
    /// The policy of a new journal. An old one remembers its own.
    pub policy: PolicyText,
    /// When a new journal's engine decides.
    pub clock: Clock,
    /// A snapshot is taken after so many records.
    pub snapshot_every: u64,
}

/// What cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record of it.
    #[error("record {seq} of the journal: {what}")]
    Record {
        /// Which.
        seq: u64,
        /// What is wrong.
        what: String,
    },
    /// Its snapshot.
    #[error("the snapshot at record {seq}: {what}")]
    Snapshot {
        /// The last record it stands for.
        seq: u64,
        /// What is wrong.
        what: String,
    },
    /// The policy.
    #[error("policy: {0}")]
    Policy(String),
    /// A folder that cannot be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// What a driver found when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Records that were applied, after the snapshot if there was one.
    pub records: u64,
    /// Whether there was a snapshot.
    pub snapshot: bool,
    /// What had to be mended.
    pub repairs: Vec<Repair>,
}

/// A driver that is ready to go.
#[derive(Debug)]
pub struct Driver {
    state: Arc<RwLock<ClusterState>>,
    /// None where somebody else remembers, such as Kubernetes.
    journal: Option<Journal>,
    inbox: Receiver<Box<dyn Work>>,
    snapshot_every: u64,
    since_snapshot: u64,
}

/// Something to do at the desk.
pub(crate) trait Work: Send {
    /// Does it, and returns how to answer once everything is durable.
    fn run(self: Box<Self>, desk: &mut Transaction<'_>) -> Box<dyn FnOnce() + Send>;
    /// Answers that it cannot be done now.
    fn refuse(self: Box<Self>, why: &str);
    /// Whether this is the last thing to do.
    fn is_last(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

/// What work is done with: the book, and the journal to write facts into.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(crate) state: &'a mut ClusterState,
    now: Time,
    /// What is to be made durable, if anything is.
    written: Option<&'a mut Vec<Vec<u8>>>,
}

impl Transaction<'_> {
    /// How things stand.
    pub fn state(&self) -> &ClusterState {
        self.state
    }

    /// Writes a fact down and applies it.
    pub fn record(&mut self, fact: Fact) {
        let record = Record { at: self.now, fact };
        if let Some(written) = &mut self.written {
            written.push(serde_json::to_vec(&record).expect("facts are plain data"));
        }
        self.state.apply(record.at, &record.fact);
    }
}

/// Work that waits at most, before whoever brings more has to wait.
const INBOX: usize = 65_536;
/// Work that is made durable together at most.
const BATCH: usize = 4_096;
/// How long to wait before a full disk is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl Driver {
    /// Opens the journal and comes back to where it ended.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn open(config: &DriverConfig) -> Result<(Self, Handle, Recovery), DriverError> {
        let (journal, recovered) = Journal::open(&config.dir)?;
        let mut state = restore(config, &recovered)?;
        for (seq, bytes) in &recovered.records {
            let record = record(*seq, bytes)?;
            state.apply(record.at, &record.fact);
        }
        // Agents that come back are told what still stands.
        state.take_commands();
        let start = Recovery {
            records: recovered.records.len() as u64,
            snapshot: recovered.snapshot.is_some(),
            repairs: recovered.repairs,
        };
        let (mut driver, handle) = Self::of(state, Some(journal));
        driver.snapshot_every = config.snapshot_every.max(1);
        driver.since_snapshot = start.records;
        Ok((driver, handle, start))
    }

    /// Without a journal: whoever starts it tells it all there is to know, and it forgets everything when it ends.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn without_journal(policy: PolicyText, clock: Clock) -> Result<(Self, Handle), DriverError> {
        let state = ClusterState::new(policy, clock).map_err(DriverError::Policy)?;
        Ok(Self::of(state, None))
    }

    fn of(state: ClusterState, journal: Option<Journal>) -> (Self, Handle) {
        let (sender, inbox): (SyncSender<Box<dyn Work>>, _) = sync_channel(INBOX);
        let state = Arc::new(RwLock::new(state));
        let handle = Handle::new(sender, Arc::clone(&state));
        let driver = Self {
            state,
            journal,
            inbox,
            snapshot_every: u64::MAX,
            since_snapshot: 0,
        };
        (driver, handle)
    }

    /// Runs in a thread of its own until [`Handle::shut_down`], or until nobody can send work any more.
    pub fn spawn(self, backend: impl Backend) -> JoinHandle<()> {
        std::thread::spawn(move || self.run(backend))
    }

    /// Works until the last handle says so.
    pub fn run(mut self, mut backend: impl Backend) {
        let mut last_event = 0;
        loop {
            let mut batch = Vec::new();
            match self.inbox.recv_timeout(self.until_due()) {
                Ok(work) => batch.push(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            batch.extend(self.inbox.try_iter().take(BATCH));
            let is_last = batch.iter().any(|work| work.is_last());
            let mut written = Vec::new();
            let (answers, orders, events_recorded) = {
                let mut state = self.state.write().unwrap_or_else(|e| e.into_inner());
                let now = now().max(state.now());
                let mut desk = Transaction {
                    state: &mut state,
                    now,
                    written: self.journal.is_some().then_some(&mut written),
                };
                let answers: Vec<_> = batch.into_iter().map(|work| work.run(&mut desk)).collect();
                for fact in desk.state.due(now) {
                    desk.record(fact);
                }
                (answers, state.take_commands(), state.last_event())
            };
            self.make_durable(&written, &mut backend);
            answers.into_iter().for_each(|answer| answer());
            if !orders.is_empty() {
                backend.dispatch(orders);
            }
            if events_recorded != last_event {
                last_event = events_recorded;
                backend.events_recorded(events_recorded);
            }
            self.since_snapshot += written.len() as u64;
            if is_last || self.since_snapshot >= self.snapshot_every {
                self.snapshot(&mut backend);
            }
            if is_last {
                break;
            }
        }
    }

    /// How long nothing is due.
    fn until_due(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        let state = self.state.read().unwrap_or_else(|e| e.into_inner());
        let Some(at) = state.wake_at() else { return LONGEST };
        let left = at.since(now());
        Duration::from_micros(left.0.unsigned_abs()).min(LONGEST)
    }

    /// Writes the records to the disk, however long it takes. While it cannot, everything else is refused.
    fn make_durable(&mut self, written: &[Vec<u8>], backend: &mut impl Backend) {
        let mut was_stuck = false;
        while let Err(error) = self.write(written) {
            let why = error.to_string();
            if !was_stuck {
                backend.journal_unavailable(Some(&why));
                was_stuck = true;
            }
            match self.inbox.recv_timeout(TRY_AGAIN) {
                Ok(work) => work.refuse(&why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TRY_AGAIN),
            }
        }
        if was_stuck {
            backend.journal_unavailable(None);
        }
    }

    fn write(&mut self, written: &[Vec<u8>]) -> Result<(), JournalError> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        for bytes in written {
            journal.append(bytes)?;
        }
        journal.commit()
    }

    fn snapshot(&mut self, backend: &mut impl Backend) {
        let Some(journal) = &mut self.journal else { return };
        let saved = self.state.read().unwrap_or_else(|e| e.into_inner()).save();
        let kept = saved.and_then(|bytes| journal.snapshot(&bytes).map_err(|e| e.to_string()));
        // Without a snapshot the next start takes longer, and nothing else.
        if let Err(why) = kept {
            backend.journal_unavailable(Some(&format!("no snapshot: {why}")));
        }
        self.since_snapshot = 0;
    }
}

/// The book as the last snapshot has it; an empty one if there is none.
pub(crate) fn restore(config: &DriverConfig, recovered: &Recovered) -> Result<ClusterState, DriverError> {
    match &recovered.snapshot {
        Some((seq, bytes)) => {
            ClusterState::load(bytes).map_err(|what| DriverError::Snapshot { seq: *seq, what })
        }
        None => ClusterState::new(config.policy.clone(), config.clock).map_err(DriverError::Policy),
    }
}

/// A record of the journal.
pub(crate) fn record(seq: u64, bytes: &[u8]) -> Result<Record, DriverError> {
    serde_json::from_slice(bytes).map_err(|e| DriverError::Record {
        seq,
        what: e.to_string(),
    })
}

/// Microseconds since 1970.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
