//! Causes and ends of jobs as text.

use dovetail_model::Time;

use super::ClusterState;
use super::jobs::{Cause, End};

impl Cause {
    /// Returns the keyword of the cause, which tasks get.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Preempted(_) => "preempted",
            Self::Moved => "moved",
            Self::Resized => "resized",
            Self::NodeLost(_) => "node-lost",
            Self::Cancelled(_) => "cancelled",
            Self::Held(_) => "held",
            Self::TimeLimit => "time-limit",
            Self::Failed | Self::Platform(_) => "failed",
        }
    }

    /// Describes the cause of a stop at this moment, with names and with the policy of then.
    pub fn sentence(&self, state: &ClusterState, at: Time) -> String {
        let policy = state.policy_at(at);
        match self {
            Self::Preempted(Some(job)) => {
                format!("job {job} is ahead of it under policy {policy} and needs its GPUs")
            }
            Self::Preempted(None) => format!("jobs ahead of it under policy {policy} need its GPUs"),
            Self::Moved => "moving to other GPUs".to_owned(),
            Self::Resized => "changing to more or fewer GPUs".to_owned(),
            Self::NodeLost(node) => {
                let name = state.node(*node).map(|n| n.spec.name.as_str());
                format!("node {} was lost", name.unwrap_or_default())
            }
            Self::Cancelled(by) => format!("cancelled by {by}"),
            Self::Held(by) => format!("held by {by}"),
            Self::TimeLimit => "time limit reached".to_owned(),
            Self::Failed => "a process failed".to_owned(),
            Self::Platform(error) => error.clone(),
        }
    }
}

impl End {
    /// Returns the state of an ended job and the reason for it, each in a word; the reason may be empty.
    pub fn state_words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Completed => ("completed", ""),
            Self::Failed { .. } => ("failed", ""),
            Self::Cancelled(_) => ("cancelled", ""),
            Self::TimeLimit | Self::Rejected(_) => ("failed", self.word()),
            Self::DependencyFailed(_) => ("cancelled", self.word()),
        }
    }

    /// Returns the keyword of the end.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::TimeLimit => "time-limit",
            Self::Rejected(_) => "rejected",
            Self::DependencyFailed(_) => "dependency-failed",
        }
    }

    /// Describes what the keyword does not contain; empty if there is nothing more.
    pub fn sentence(&self) -> String {
        match self {
            Self::Completed => String::new(),
            Self::Failed { reason, .. } | Self::Rejected(reason) => reason.clone(),
            Self::Cancelled(by) => format!("cancelled by {by}"),
            Self::TimeLimit => "time limit reached".to_owned(),
            Self::DependencyFailed(job) => {
                format!("job {job}, on which it depends, did not end as required")
            }
        }
    }

    /// Returns the exit code of the job, or one that stands for the end by convention.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Completed => 0,
            Self::Failed { exit_code, .. } if *exit_code != 0 => *exit_code,
            Self::Failed { signal, .. } if *signal > 0 => 128 + signal,
            Self::Cancelled(_) => 130,
            Self::TimeLimit => 124,
            Self::Failed { .. } | Self::Rejected(_) | Self::DependencyFailed(_) => 1,
        }
    }
}
