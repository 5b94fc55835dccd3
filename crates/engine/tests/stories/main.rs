//! What the engine does, in stories of a few lines: a cluster, a policy, what happens, and the trace beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod explain;
mod found;
mod nodes;
mod owners;
mod reasons;
