//! Messages about a position in a job file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A message about a position in a job file: a mistake, or something that is ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    /// Path of the key from the top of the file, such as `taskRoles.worker.commands[0]`.
    pub path: String,
    /// Text of the message.
    #[serde(alias = "what")]
    pub message: String,
}

impl Remark {
    /// Creates a message about a position.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "top level"
        } else {
            &self.path
        };
        write!(f, "{path}: {}", self.message)
    }
}

/// All mistakes of a job file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Faults(pub Vec<Remark>);

impl Faults {
    /// Returns a single mistake.
    pub(crate) fn one(path: &str, message: impl Into<String>) -> Self {
        Self(vec![Remark::new(path, message)])
    }

    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(Remark::to_string).collect();
        lines.join("\n")
    }
}
