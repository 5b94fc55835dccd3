//! Behaviour of the engine in stories of a few lines: a cluster, a policy, what happens, and the expected trace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod explain;
mod nodes;
mod owners;
mod reasons;
mod regressions;
