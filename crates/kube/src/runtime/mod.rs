//! Kubernetes as the runtime of a live cluster.

mod logs;
mod workloads;

use std::sync::{Arc, Mutex, PoisonError};

use dovetail_cluster::{
    ArrayIndices, Capabilities, Handle, JobId, JobRequest, LiveRuntime, LogError, LogPiece, LogRequest,
    NodeCommand, NodeState, Runtime, WorkloadError, WorkloadFuture,
};
use dovetail_kubeapi::Client;
use dovetail_model::NodeId;
use tokio::sync::mpsc;

use crate::features::ClusterFeatures;
use crate::reconciler::Reconciler;
use logs::LogReader;
pub use workloads::WorkloadSettings;
use workloads::Workloads;

/// The pods of a cluster as a runtime; cheap to clone.
#[derive(Debug, Clone)]
pub struct KubernetesRuntime {
    pub(crate) client: Client,
    pub(crate) features: ClusterFeatures,
    pub(crate) handle: Handle,
    pub(crate) reconciler: Arc<Mutex<Reconciler>>,
    /// Commands go to the loop of the scheduler, which turns them into bindings and removals.
    pub(crate) commands: mpsc::UnboundedSender<Vec<NodeCommand>>,
    pub(crate) workloads: Option<Workloads>,
}

impl KubernetesRuntime {
    /// Creates Jobs for submitted jobs.
    #[must_use]
    pub fn with_workloads(self, settings: WorkloadSettings) -> Self {
        Self {
            workloads: Some(Workloads {
                client: self.client.clone(),
                handle: self.handle.clone(),
                settings,
            }),
            ..self
        }
    }
}

impl Runtime for KubernetesRuntime {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        self.features.capabilities()
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = NodeCommand>) {
        let _ = self.commands.send(commands.collect());
    }
}

impl LiveRuntime for KubernetesRuntime {
    fn is_connected(&self, node: NodeId) -> bool {
        self.handle
            .read(|state| state.node(node).is_some_and(|n| n.state != NodeState::Lost))
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        let pods = {
            let reconciler = self.reconciler.lock().unwrap_or_else(PoisonError::into_inner);
            reconciler.pods_of(request.job, request.attempt, request.node)
        };
        if pods.is_empty() {
            return Err(LogError(
                "log not available: the pods of the job have been deleted".to_owned(),
            ));
        }
        Ok(LogReader::spawn(self.client.clone(), request.clone(), pods))
    }

    fn has_workloads(&self) -> bool {
        self.workloads.is_some()
    }

    fn check_workload(
        &self,
        user: &str,
        job: &JobRequest,
        array: Option<ArrayIndices<'_>>,
    ) -> Result<Vec<String>, WorkloadError> {
        let Some(workloads) = &self.workloads else {
            return Ok(Vec::new());
        };
        workloads.check(user, job, array)
    }

    fn create_workload(
        &self,
        user: &str,
        first: JobId,
        job: &JobRequest,
        array: Option<ArrayIndices<'_>>,
    ) -> WorkloadFuture {
        match &self.workloads {
            Some(workloads) => workloads.create(user, first, job, array),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn delete_workload(&self, job: JobId, by: &str) -> WorkloadFuture {
        match &self.workloads {
            Some(workloads) => workloads.delete(job, by),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }
}
