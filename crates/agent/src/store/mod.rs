//! Files of the agent itself.

pub(crate) mod attempts;
pub(crate) mod identity;
pub(crate) mod lease;
