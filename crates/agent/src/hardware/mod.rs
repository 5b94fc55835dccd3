//! Hardware of the node.

pub(crate) mod gpus;
#[cfg(feature = "nvml")]
mod nvml;
pub(crate) mod system;
