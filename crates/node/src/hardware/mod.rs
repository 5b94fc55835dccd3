//! What the machine has.

pub(crate) mod gpus;
#[cfg(feature = "nvml")]
mod nvml;
pub(crate) mod system;
