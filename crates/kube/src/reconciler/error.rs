//! Why a gang is not submitted as a job. The message is written on its pods.

use dovetail_cluster::{JobId, Refusal};

use crate::annotations;
use crate::identity::SizeError;

/// Why a gang is not submitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangError {
    /// The gang has no pods.
    #[error("the gang has no pods")]
    NoPods,
    /// An elastic pod requests no GPU.
    #[error("an elastic pod must request a GPU; only the pods with which a gang starts may request none")]
    ElasticPodWithoutGpu,
    /// The size of the gang cannot be used.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The pods request resources that do not make a job.
    #[error("{0}")]
    Resources(String),
    /// The annotated job id belongs to another job.
    #[error(
        "annotation {name}: id {0} belongs to another job; remove the annotation",
        name = annotations::NUMBER
    )]
    JobIdTaken(JobId),
    /// No node may take a pod.
    #[error("none of the {nodes} nodes with GPUs may take pod {pod}: node {node}, for example: {mismatch}")]
    NoNode {
        /// Number of nodes with GPUs.
        nodes: usize,
        /// Name of the pod.
        pod: String,
        /// One of the nodes.
        node: String,
        /// Why that node may not take the pod.
        mismatch: String,
    },
    /// All nodes that may take the pods are avoided.
    #[error("{0}")]
    AllNodesAvoided(String),
    /// The pods of the cluster have too many different requirements.
    #[error("pods require more than {0} different sets of nodes; use fewer node selectors and tolerations")]
    TooManyConstraints(u32),
    /// The request was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
}
