//! Causes, ends and reasons, in words.

use dovetail_model::{GpuTypeId, JobKey, NameLookup, NodeId, Reason, TenantId, Time, UserId};

use super::{Cause, ClusterState, End};

/// Names as users know them.
impl NameLookup for ClusterState {
    fn job(&self, job: JobKey) -> String {
        match self.job_ids.get(job) {
            Some(id) => format!("job {id}"),
            None => "a job that is not registered yet".to_owned(),
        }
    }

    fn node(&self, node: NodeId) -> String {
        match self.nodes.get(node) {
            Some(node) => format!("node {}", node.spec.name),
            None => format!("node {node}"),
        }
    }

    fn tenant(&self, tenant: TenantId) -> String {
        let name = self.names.tenants.get(tenant.0 as usize);
        format!("virtual cluster {}", name.map_or("", String::as_str))
    }

    fn user(&self, user: UserId) -> String {
        let name = self.names.users.get(user.0 as usize);
        format!("user {}", name.map_or("", String::as_str))
    }

    fn gpu_type(&self, gpu_type: GpuTypeId) -> String {
        let name = self.names.gpu_types.get(gpu_type.0 as usize);
        name.cloned().unwrap_or_else(|| gpu_type.to_string())
    }

    fn time(&self, at: Time) -> String {
        let seconds = at.since(self.now).as_secs_f64();
        format!("in {:.0} s", seconds.max(0.0))
    }
}

impl ClusterState {
    /// Returns the text of a reason, with names.
    pub fn reason(&self, reason: &Reason) -> String {
        reason.render(self)
    }
}

impl Cause {
    /// In a word, for the task.
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

    /// In a sentence, with names.
    pub fn sentence(&self, state: &ClusterState) -> String {
        match self {
            Self::Preempted(Some(job)) => {
                format!(
                    "job {job} is ahead of it under policy {} and needs its GPUs",
                    state.policy().policy
                )
            }
            Self::Preempted(None) => {
                format!(
                    "jobs ahead of it under policy {} need its GPUs",
                    state.policy().policy
                )
            }
            Self::Moved => "it goes on on other GPUs".to_owned(),
            Self::Resized => "it goes on on more or fewer GPUs".to_owned(),
            Self::NodeLost(node) => {
                let name = state.node(*node).map(|n| n.spec.name.clone());
                format!("node {} was lost", name.unwrap_or_default())
            }
            Self::Cancelled(by) => format!("stopped by {by}"),
            Self::Held(by) => format!("{by} wants it to wait"),
            Self::TimeLimit => "it has run for as long as it may".to_owned(),
            Self::Failed => "a process of it failed".to_owned(),
            Self::Platform(why) => why.clone(),
        }
    }
}

impl End {
    /// The state it leaves the job in, in a word.
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

    /// What the word does not say, in a sentence; empty if it says all.
    pub fn sentence(&self) -> String {
        match self {
            Self::Completed => String::new(),
            Self::Failed { reason, .. } | Self::Rejected(reason) => reason.clone(),
            Self::Cancelled(by) => format!("stopped by {by}"),
            Self::TimeLimit => "it ran for as long as it may".to_owned(),
            Self::DependencyFailed(job) => {
                format!("job {job}, for which it waited, did not end as it should have")
            }
        }
    }

    /// The exit code that tells of it: the job's own, or one by convention.
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
