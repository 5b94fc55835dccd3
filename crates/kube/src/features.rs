//! What a cluster lets the scheduler do with pods: found out at the start, and declared to policies.

use dovetail_cluster::{Capabilities, Support};
use dovetail_kubeapi::{Client, Error, may, resources};

/// What Kubernetes can do where a cluster has every mechanism. [`ClusterFeatures::capabilities`] are those of one cluster.
///
/// A pod is bound to a node as its manifest says, and its GPUs are its own. A gang grows by elastic pods, each of which is a job
/// of its own, so that no policy chooses the width of a job.
pub const KUBERNETES: Capabilities = Capabilities {
    runtime: "Kubernetes",
    gpu_choice: Support::Yes("DRA claims, or the annotation with the GPU indices"),
    sharing: Support::No("each pod has GPUs of its own"),
    stage_gates: Support::No("each pod has GPUs of its own, and no agent of ours is on its node"),
    resize: Support::Yes("in place by `pods/resize`, where the cluster has it; else refused"),
    cpu_trials: Support::No("a script in a pod does not learn that its CPU has changed"),
    width: Support::No("gangs grow by elastic pods under every policy, `gang-min` to `gang-size`"),
    progress: Support::Yes("the trainer SDK in the pod, by PodProgress objects"),
};

/// What a cluster lets the scheduler do with pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterFeatures {
    /// Whether CPU and memory of pods can be changed while they exist.
    pub resize: PodResize,
}

/// Whether CPU and memory of pods can be changed while they exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodResize {
    /// They can, through the subresource `pods/resize`.
    Available,
    /// The API server does not have the subresource.
    Missing,
    /// The account of the scheduler may not use it.
    Forbidden,
}

impl ClusterFeatures {
    /// A cluster with every mechanism.
    pub const ALL: Self = Self {
        resize: PodResize::Available,
    };
    /// A cluster that only runs pods as they are.
    pub const NONE: Self = Self {
        resize: PodResize::Missing,
    };

    /// Asks the API server.
    ///
    /// # Errors
    /// When the API server cannot be reached, or does not show its resources.
    pub async fn discover(client: &Client) -> Result<Self, Error> {
        let has_subresource = resources(client, "/api/v1").await?.has("pods/resize", "patch");
        let resize = match has_subresource {
            false => PodResize::Missing,
            true => match may(client, "patch", "pods", "resize").await {
                Ok(true) => PodResize::Available,
                Ok(false) => PodResize::Forbidden,
                // Some clusters do not let accounts ask what they may do. A refused resize is then reported on the pod.
                Err(error) if error.is_forbidden() => PodResize::Available,
                Err(error) => return Err(error),
            },
        };
        Ok(Self { resize })
    }

    /// Returns what the scheduler can do with jobs on this cluster.
    pub fn capabilities(self) -> Capabilities {
        Capabilities {
            resize: match self.resize {
                PodResize::Available => Support::Yes("in place by `pods/resize`"),
                PodResize::Missing => {
                    Support::No("its API server has no `pods/resize` (Kubernetes 1.33 has it)")
                }
                PodResize::Forbidden => Support::No(
                    "the account of the scheduler may not `patch` `pods/resize`; update its ClusterRole",
                ),
            },
            ..KUBERNETES
        }
    }

    /// Returns whether pods can be resized.
    pub(crate) fn can_resize(self) -> bool {
        self.resize == PodResize::Available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(capabilities: &Capabilities) -> [bool; 6] {
        let Capabilities {
            runtime: _,
            gpu_choice,
            sharing,
            stage_gates,
            resize,
            cpu_trials,
            width,
            progress,
        } = capabilities;
        assert!(!cpu_trials.is_available());
        [gpu_choice, sharing, stage_gates, resize, width, progress].map(|support| support.is_available())
    }

    #[test]
    fn what_is_listed_for_kubernetes_is_what_a_cluster_with_everything_has() {
        assert_eq!(
            available(&KUBERNETES),
            available(&ClusterFeatures::ALL.capabilities())
        );
    }

    #[test]
    fn a_missing_mechanism_is_named() {
        for (resize, expected) in [
            (PodResize::Missing, "no `pods/resize`"),
            (PodResize::Forbidden, "may not `patch` `pods/resize`"),
        ] {
            let support = ClusterFeatures { resize }.capabilities().resize;
            assert!(
                !support.is_available() && support.text().contains(expected),
                "{support:?}"
            );
        }
    }
}
