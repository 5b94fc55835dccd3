//! What is asked for of a log, and what comes back.

use dovetail_model::NodeId;

use crate::{AttemptId, JobId};

/// Which log, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// The job.
    pub job: JobId,
    /// The launch.
    pub attempt: AttemptId,
    /// The node.
    pub node: NodeId,
    /// From here on; negative counts from the end.
    pub offset: i64,
    /// So much at most; zero for all of it.
    pub most_bytes: u64,
    /// Go on until the task ends.
    pub follow: bool,
    /// Only lines with these words; empty for everything.
    pub find: String,
    /// So many lines at most; zero for any number.
    pub most_found: u32,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPiece {
    /// Bytes, and where in the log they end.
    Data {
        /// The bytes.
        data: Vec<u8>,
        /// Where they end.
        offset: u64,
    },
    /// A line with the words that were looked for, and where it begins.
    Found {
        /// The line, or the part of it around the words.
        line: Vec<u8>,
        /// Where it begins.
        offset: u64,
    },
    /// There is no more.
    End,
    /// It cannot be read: why.
    Error(String),
}
