//! Bodies of logs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// Node that the log is from.
    pub node: String,
    /// Attempt that the log is from.
    pub attempt: u64,
    /// Output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Offset of the end of `data` in the log, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Reason why the log cannot be read further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A line of a log that contains the text of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogMatch {
    /// Node that the log is from.
    pub node: String,
    /// Offset of the start of the line in the log, in bytes.
    pub offset: u64,
    /// The line, or the part of it around the match.
    pub line: String,
}
