//! What a person may do in a virtual cluster, and what a token may do for a person.

use dovetail_control::Everyone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do in a virtual cluster; each may also do what those before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See its jobs, but those that are private.
    Viewer,
    /// Run jobs.
    Member,
    /// Stop, hold and reorder anybody's jobs, and read their logs.
    Operator,
    /// Change the virtual cluster.
    Administrator,
}

impl Role {
    /// What everyone may do.
    pub(crate) fn of_everyone(everyone: Everyone) -> Option<Self> {
        match everyone {
            Everyone::None => None,
            Everyone::Viewer => Some(Self::Viewer),
            Everyone::Member => Some(Self::Member),
        }
    }
}

/// What a token may do for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Look.
    Read,
    /// Look, and deal with jobs.
    Jobs,
    /// All its owner may.
    #[default]
    All,
}
