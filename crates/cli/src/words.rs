//! Reasons in words, with the names of jobs, tenants and nodes instead of their numbers.

use dovetail_model::{Change, JobId, NodeId, Reason, TenantId};
use dovetail_workload::Workload;

/// Names for what the engine knows by number.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    workload: &'a Workload,
    nodes: &'a [String],
}

impl<'a> Words<'a> {
    /// The jobs and tenants of a workload, and nodes by their number.
    pub fn new(workload: &'a Workload, nodes: &'a [String]) -> Self {
        Self { workload, nodes }
    }

    /// The name of a job.
    pub fn job(&self, job: JobId) -> String {
        let known = self.workload.jobs.get(job.0 as usize);
        known.map_or_else(|| job.to_string(), |j| j.label.to_string())
    }

    /// The name of a node.
    pub fn node(&self, node: NodeId) -> &'a str {
        self.nodes.get(node.0 as usize).map_or("?", String::as_str)
    }

    fn tenant(&self, tenant: TenantId) -> &'a str {
        self.workload
            .names
            .tenants
            .get(tenant)
            .map_or("?", String::as_str)
    }

    fn jobs(&self, jobs: impl IntoIterator<Item = JobId>) -> String {
        let names: Vec<String> = jobs.into_iter().map(|j| self.job(j)).collect();
        names.join(" and ")
    }

    /// A reason as a piece of a sentence.
    pub fn reason(&self, reason: &Reason) -> String {
        let text = reason.to_string();
        match reason {
            Reason::CellsInUse { tenant, .. }
            | Reason::TenantQuota { tenant, .. }
            | Reason::TenantCap { tenant, .. }
            | Reason::CellsOwned { tenant, .. } => {
                text.replace(&format!("tenant {tenant}"), self.tenant(*tenant))
            }
            Reason::CellsHeld { holders, more } => {
                let held = |(job, gpus): &(JobId, u32)| {
                    let gpus = if *gpus == 1 {
                        "1 GPU".to_owned()
                    } else {
                        format!("{gpus} GPUs")
                    };
                    format!("{} ({gpus})", self.job(*job))
                };
                let mut names: Vec<String> = holders.iter().map(held).collect();
                names.extend((*more > 0).then(|| format!("{more} more")));
                format!("held by {}", names.join(", "))
            }
            Reason::WouldStart(Change::JobsEnd(jobs)) => {
                format!("could start if {} ended", self.jobs(jobs.iter().copied()))
            }
            Reason::WouldStart(Change::NodesReturn(nodes)) => {
                let names: Vec<&str> = nodes.iter().map(|n| self.node(*n)).collect();
                format!("could start if {} came back", names.join(" and "))
            }
            Reason::BehindInLine { head, .. } => text.replace(&format!("job {head}"), &self.job(*head)),
            Reason::ReservedFor { job, .. } => text.replace(&format!("job {job}"), &self.job(*job)),
            _ => text,
        }
    }
}
