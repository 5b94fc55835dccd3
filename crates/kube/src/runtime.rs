//! What Kubernetes can do with jobs.

use dovetail_cluster::{Capabilities, Runtime, Support};

/// Kubernetes as a runtime of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kubernetes;

impl Runtime for Kubernetes {
    /// A pod is bound to a node as its manifest says: its GPUs are its own, and its requests do not change. A gang grows by
    /// elastic pods, each of which is a job of its own, so that no policy chooses the width of a job.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            runtime: "Kubernetes",
            gpu_choice: Support::Yes("DRA claims, or the annotation with the GPU indices"),
            sharing: Support::No("each pod has GPUs of its own"),
            resize: Support::No("a pod keeps the CPU and memory of its manifest"),
            width: Support::No("gangs grow by elastic pods under every policy, `gang-min` to `gang-size`"),
            progress: Support::Yes("the trainer SDK in the pod, by PodProgress objects"),
        }
    }
}
