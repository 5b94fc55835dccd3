//! Roles of users in virtual clusters, and scopes of tokens.

use dovetail_cluster::DefaultAccess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user may do in a virtual cluster; each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See jobs that are not private.
    Viewer,
    /// Run jobs.
    Member,
    /// Stop, hold and reprioritize jobs of all users, and read their logs.
    Operator,
    /// Change the virtual cluster.
    Administrator,
}

impl Role {
    /// Returns the role of users who were not given one.
    pub(crate) fn by_default(access: DefaultAccess) -> Option<Self> {
        match access {
            DefaultAccess::None => None,
            DefaultAccess::Viewer => Some(Self::Viewer),
            DefaultAccess::Member => Some(Self::Member),
        }
    }
}

/// What a token may do on behalf of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Read only.
    Read,
    /// Read, and submit and change jobs.
    Jobs,
    /// Everything that the owner may do.
    #[default]
    All,
}
