//! What agents can do with jobs.

use dovetail_cluster::{Capabilities, Runtime, Support};

/// The agents of a live cluster as a runtime of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agents;

impl Runtime for Agents {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            runtime: "the agents",
            gpu_choice: Support::Yes("`CUDA_VISIBLE_DEVICES`"),
            sharing: Support::Yes("MPS, else time slices"),
            resize: Support::Yes("cgroup, else CPU affinity"),
            width: Support::Yes("restart from the last checkpoint"),
            progress: Support::Yes("trainer SDK"),
        }
    }
}
