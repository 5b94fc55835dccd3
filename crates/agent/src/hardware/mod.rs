//! Hardware of the node.

#[cfg(any(feature = "nvml", test))]
mod dcgm;
pub(crate) mod gpus;
pub(crate) mod mps;
#[cfg(feature = "nvml")]
mod nvml;
pub(crate) mod system;
