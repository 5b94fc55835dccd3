//! What the API needs from the runtime of the jobs, in addition to the cluster state.

use std::pin::Pin;

use dovetail_cluster::{JobId, JobRequest, LoadPoint, LogPiece, LogRequest};
use dovetail_jobfile::ArrayRequest;
use dovetail_model::{NodeId, Time};
use tokio::sync::{mpsc, watch};

/// The nodes of the cluster, as far as the cluster state does not cover them.
pub trait Nodes: Send + Sync + 'static {
    /// Whether the node can be reached.
    fn is_connected(&self, node: NodeId) -> bool;

    /// Reads a log on its node.
    ///
    /// # Errors
    /// When the node cannot be reached.
    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError>;

    /// Returns the number of the last event, updated as events happen.
    fn last_event(&self) -> watch::Receiver<u64>;

    /// Returns the load of a node since a time, oldest measurement first; empty if there are no measurements.
    fn loads(&self, _node: NodeId, _since: Time) -> Vec<LoadPoint> {
        Vec::new()
    }

    /// Returns why the journal cannot be written; none if it can.
    fn journal_error(&self) -> Option<String>;
}

/// A log that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// A workload that could not be created or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

/// The pending result of creating or deleting a workload.
pub type WorkloadFuture = Pin<Box<dyn Future<Output = Result<(), WorkloadError>> + Send>>;

/// Creates and deletes the workload objects of jobs that agents do not run, such as Jobs of Kubernetes.
pub trait WorkloadController: std::fmt::Debug + Send + Sync + 'static {
    /// Checks whether the workload of a job can be created, and returns remarks on what works differently.
    ///
    /// # Errors
    /// When the job uses a feature that is not supported. The error names it and what to use instead.
    fn check(
        &self,
        user: &str,
        job: &JobRequest,
        array: Option<&ArrayRequest>,
    ) -> Result<Vec<String>, WorkloadError>;

    /// Creates the workload of a job with this id, or of an array whose first job has it.
    fn create(
        &self,
        user: &str,
        first: JobId,
        job: JobRequest,
        array: Option<ArrayRequest>,
    ) -> WorkloadFuture;

    /// Deletes the workload of a job that was stopped.
    fn delete(&self, job: JobId, by: &str) -> WorkloadFuture;
}
