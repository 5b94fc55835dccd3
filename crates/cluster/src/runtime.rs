//! The contract between the driver, the API and whatever runs the jobs of a live cluster.

use std::pin::Pin;

use dovetail_engine::{Capabilities, Runtime};
use dovetail_model::{NodeId, Time};
use tokio::sync::mpsc;

use crate::JobId;
use crate::load::LoadPoint;
use crate::logs::{LogPiece, LogRequest};
use crate::request::JobRequest;
use crate::state::RuntimeCommand;

/// A command for a node.
pub type NodeCommand = (NodeId, RuntimeCommand);

/// The runtime of a live cluster: agents, or Kubernetes. Beside commands it answers what the cluster state does not have.
///
/// A node that cannot be reached gets its commands when it is back.
pub trait LiveRuntime: Runtime<Command = NodeCommand> + Send + Sync + 'static {
    /// Whether the node can be reached.
    fn is_connected(&self, node: NodeId) -> bool;

    /// Reads a log on its node.
    ///
    /// # Errors
    /// When the node cannot be reached, or does not have the log.
    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError>;

    /// Returns the load of a node since a time, oldest measurement first; empty without measurements.
    fn loads(&self, _node: NodeId, _since: Time) -> Vec<LoadPoint> {
        Vec::new()
    }

    /// Starts or stops MPS on a node.
    fn set_mps(&self, _node: NodeId, _is_on: bool) -> NodeActionFuture {
        let reason = "MPS is only started and stopped by agents".to_owned();
        Box::pin(std::future::ready(Err(NodeActionError(reason))))
    }

    /// Whether each job is an object of the runtime, such as a Job of Kubernetes, that is created when it is submitted.
    fn has_workloads(&self) -> bool {
        false
    }

    /// Checks whether the workload of a job can be created, and returns remarks on what works differently.
    ///
    /// # Errors
    /// When the job uses a feature that is not supported. The error names it and what to use instead.
    fn check_workload(
        &self,
        _user: &str,
        _job: &JobRequest,
        _array: Option<ArrayIndices<'_>>,
    ) -> Result<Vec<String>, WorkloadError> {
        Ok(Vec::new())
    }

    /// Creates the workload of a job with this id, or of an array whose first job has it.
    fn create_workload(
        &self,
        _user: &str,
        _first: JobId,
        _job: &JobRequest,
        _array: Option<ArrayIndices<'_>>,
    ) -> WorkloadFuture {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Deletes the workload of a job that was stopped.
    fn delete_workload(&self, _job: JobId, _by: &str) -> WorkloadFuture {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A runtime that starts nothing, for tests and benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleRuntime;

impl Runtime for IdleRuntime {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, _commands: &mut dyn Iterator<Item = NodeCommand>) {}
}

/// The indices of an array of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayIndices<'a> {
    /// Indices, one for each job.
    pub indices: &'a [u32],
    /// Maximum number of jobs of the array that run at the same time.
    pub at_most: Option<u32>,
}

/// A log that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// What a node was asked for and did not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NodeActionError(pub String);

/// The pending result of what a node was asked for.
pub type NodeActionFuture = Pin<Box<dyn Future<Output = Result<(), NodeActionError>> + Send>>;

/// A workload that could not be created or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

/// The pending result of creating or deleting a workload.
pub type WorkloadFuture = Pin<Box<dyn Future<Output = Result<(), WorkloadError>> + Send>>;
