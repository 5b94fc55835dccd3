//! Reasons with the names of jobs, tenants and nodes instead of the engine's keys.

use dovetail_model::{JobKey, NameLookup, NodeId, Reason, TenantId};
use dovetail_workload::Workload;

/// Names for what the engine knows by key: jobs and tenants of a workload, and nodes.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    workload: &'a Workload,
    nodes: &'a [String],
}

impl<'a> Names<'a> {
    /// Uses the jobs and tenants of a workload, and the names of nodes by their id.
    pub fn new(workload: &'a Workload, nodes: &'a [String]) -> Self {
        Self { workload, nodes }
    }

    /// Returns the name of a job, or its key if the workload does not contain it.
    pub fn job(&self, job: JobKey) -> String {
        let known = self.workload.jobs.get(job.0 as usize);
        known.map_or_else(|| job.to_string(), |j| j.label.to_string())
    }

    /// Returns the name of a node, or `?` if it is unknown.
    pub fn node(&self, node: NodeId) -> &'a str {
        self.nodes.get(node.0 as usize).map_or("?", String::as_str)
    }

    /// Renders a reason with names.
    pub fn reason(&self, reason: &Reason) -> String {
        reason.render(self)
    }
}

impl NameLookup for Names<'_> {
    fn job(&self, job: JobKey) -> String {
        self.job(job)
    }

    fn node(&self, node: NodeId) -> String {
        self.node(node).to_owned()
    }

    fn tenant(&self, tenant: TenantId) -> String {
        let name = self.workload.names.tenants.get(tenant);
        name.map_or("?", String::as_str).to_owned()
    }
}
