//! Why a task cannot be started.

/// Why a task cannot be started on this node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("missing command")]
    NoCommand,
    #[error("unknown number of processes per node: {0}")]
    UnknownProcesses(i32),
    #[error("GPU slot {slot} does not exist: GPU slots on this node: {count}")]
    UnknownSlot { slot: u32, count: usize },
    #[error("GPU slot {0} is not assigned to the task")]
    UnassignedSlot(u32),
    #[error("port {0} is in use by another program")]
    PortInUse(u32),
    #[error(
        "image {0} cannot be used: this node has neither podman nor docker; install one of them, or start the agent \
         with `--images ignore` to run such jobs without their images"
    )]
    NoContainerRuntime(String),
    #[error("unknown user `{0}` on this node")]
    UnknownUser(String),
    #[error("cannot look up user `{user}`: {source}")]
    UserLookup { user: String, source: nix::Error },
    /// The error of one instance of a role, named `role/index`.
    #[error("{instance}: {source}")]
    Instance {
        instance: String,
        source: Box<StartError>,
    },
}

impl StartError {
    /// Returns whether the node lacks something that the job asks for. The node itself is healthy.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::NoContainerRuntime(_) => true,
            Self::Instance { source, .. } => source.is_refusal(),
            _ => false,
        }
    }
}
