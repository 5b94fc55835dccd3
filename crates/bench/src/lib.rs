//! Benchmarks of the simulator, the engine, the live cluster, the web API and the Kubernetes scheduler
//! (`dovetail bench`). Each prints its measurements beside a goal, or beside the figures of another system.

#![allow(
    clippy::print_stderr,
    reason = "skipped measurements are named on standard error"
)]

mod cells;
mod data;
mod engine;
mod error;
mod grouping;
mod history;
mod kube;
mod live;
mod measurement;
mod server_process;
mod sim;
mod sizing;
mod web;

use std::path::PathBuf;

use dovetail_console::Failure;

pub use error::BenchError;
pub use kube::Contender;

/// A group of measurements that can be run by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// The simulator: replays, and decisions for a large cluster.
    Sim,
    /// Shared GPUs: a regrouping, and all policies over Muri's traces.
    Grouping,
    /// Cells of virtual clusters, beside HiveD's figures.
    Cells,
    /// CPU and memory by need, beside Synergy's simulator.
    Sizing,
    /// The live cluster over real sockets and a real journal.
    Live,
    /// The Kubernetes scheduler on a real control plane.
    Kube,
    /// The HTTP API over a million jobs.
    Web,
    /// A server with a long history of ended jobs.
    History,
}

/// How a benchmark is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Trace to replay instead of the generated one ([`Benchmark::Sim`]) or of Muri's ([`Benchmark::Grouping`]).
    pub trace: Option<PathBuf>,
    /// Whether the largest measurements are left out.
    pub short: bool,
    /// Number of ended jobs ([`Benchmark::History`]).
    pub jobs: u64,
    /// Runs of each contender ([`Benchmark::Kube`]).
    pub runs: u32,
    /// Contenders to measure; all of them if empty ([`Benchmark::Kube`]).
    pub only: Vec<Contender>,
    /// Whether results are printed as JSON.
    pub json: bool,
}

/// Runs a benchmark and prints its measurements.
///
/// # Errors
/// Fails when a trace cannot be read, or something that is measured fails.
pub fn run(benchmark: Benchmark, options: &Options) -> Result<(), Failure> {
    match benchmark {
        Benchmark::Sim => measurement::print_cpu(&sim::measure(options)?, options.json),
        Benchmark::Grouping => {
            measurement::print_cpu(&grouping::measure(options.trace.as_deref())?, options.json)
        }
        Benchmark::Sizing => measurement::print_cpu(&sizing::measure()?, options.json),
        Benchmark::Cells => cells::print(&cells::measure(options)?, options.json),
        Benchmark::Live => measurement::print_goals(&live::measure()?, options.json),
        Benchmark::Web => measurement::print_goals(&web::measure(options)?, options.json),
        Benchmark::History => measurement::print_goals(&history::measure(options)?, options.json),
        Benchmark::Kube => kube::print(&kube::measure(options)?, options.json),
    }
}
