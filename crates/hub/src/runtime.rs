//! Agents as the runtime of a live cluster.

use dovetail_cluster::{
    Capabilities, LiveRuntime, LoadPoint, LogError, LogPiece, LogRequest, NodeCommand, Runtime, Support,
};
use dovetail_model::{NodeId, Time};
use tokio::sync::mpsc;

use crate::hub::Hub;

/// What agents can do with jobs.
pub const AGENTS: Capabilities = Capabilities {
    runtime: "the agents",
    gpu_choice: Support::Yes("`CUDA_VISIBLE_DEVICES`"),
    sharing: Support::Yes("stage gates, MPS, else time slices"),
    stage_gates: Support::Yes("trainer SDK"),
    resize: Support::Yes("cgroup, else CPU affinity"),
    cpu_trials: Support::Yes("trainer SDK"),
    width: Support::Yes("restart from the last checkpoint"),
    progress: Support::Yes("trainer SDK"),
};

impl Runtime for Hub {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        AGENTS
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = NodeCommand>) {
        for (node, command) in commands {
            self.send_command(node, command);
        }
    }
}

impl LiveRuntime for Hub {
    fn is_connected(&self, node: NodeId) -> bool {
        self.has_session(node)
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        self.start_reading(request).map_err(|e| LogError(e.to_string()))
    }

    fn loads(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.loads_since(node, since)
    }
}
