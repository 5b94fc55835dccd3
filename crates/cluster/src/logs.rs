//! Requests to read logs, and the pieces that are returned.

use dovetail_model::NodeId;

use crate::{AttemptId, JobId};

/// A request to read the log of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// Number of the job.
    pub job: JobId,
    /// Number of the attempt.
    pub attempt: AttemptId,
    /// Node of the task.
    pub node: NodeId,
    /// First byte to read; negative counts from the end.
    pub offset: i64,
    /// Largest number of bytes; zero for no limit.
    pub most_bytes: u64,
    /// Whether to follow the log until the task ends.
    pub follow: bool,
    /// Text that returned lines must contain; empty for all bytes.
    pub find: String,
    /// Largest number of matching lines; zero for no limit.
    pub most_found: u32,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPiece {
    /// A range of bytes.
    Data {
        /// The bytes.
        data: Vec<u8>,
        /// Offset of their end.
        offset: u64,
    },
    /// A line that contains the text.
    Found {
        /// The line, or the part of it around the text.
        line: Vec<u8>,
        /// Offset of its beginning.
        offset: u64,
    },
    /// End of the log.
    End,
    /// The log cannot be read, with the reason.
    Error(String),
}
