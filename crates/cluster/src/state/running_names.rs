//! Names of running jobs and nodes for messages about a policy that contradicts them.

use dovetail_model::{JobKey, NameLookup, NodeId};

use super::nodes::NodeTable;
use super::scheduler::Scheduler;

/// Names of running jobs and their nodes.
pub(super) struct RunningNames<'a> {
    pub(super) scheduler: &'a Scheduler,
    pub(super) nodes: &'a NodeTable,
}

impl NameLookup for RunningNames<'_> {
    fn job(&self, job: JobKey) -> String {
        match self.scheduler.find_job_id(job) {
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
}
