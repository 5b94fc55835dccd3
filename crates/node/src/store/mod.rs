//! What the agent itself keeps in its folder.

pub(crate) mod generations;
pub(crate) mod identity;
pub(crate) mod lease;
