//! What is said about a place in a file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A sentence about a place in a file: what is wrong there, or what was left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    /// The key, from the top: `taskRoles.worker.commands[0]`.
    pub path: String,
    /// What is to be said.
    pub what: String,
}

impl Remark {
    /// A remark about a place.
    pub fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            what: what.into(),
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
        write!(f, "{path}: {}", self.what)
    }
}

/// Everything that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Faults(pub Vec<Remark>);

impl Faults {
    /// One fault.
    pub(crate) fn one(path: &str, what: impl Into<String>) -> Self {
        Self(vec![Remark::new(path, what)])
    }

    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(Remark::to_string).collect();
        lines.join("\n")
    }
}
