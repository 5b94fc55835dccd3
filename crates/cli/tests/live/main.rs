//! The live cluster, end to end: real processes, real sockets, real files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and prints what it skips"
)]

mod accounts;
mod facade;
mod faults;
mod fidelity;
mod harness;
mod jobs;
mod mps;
mod nodes;
mod orphans;
mod pai;
mod policies;
mod portal;
mod sharing;
mod testbed;
mod trace_jobs;
