//! Flags of `dovetail bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `dovetail bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value = "sim")]
    pub what: BenchArg,
    /// Trace to replay instead of the generated Philly-like workload of 82,247 jobs (sim) or of Muri's traces (grouping)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Skip the largest measurements: the million jobs (sim, web), nine tenths of the ended jobs (history), the ten thousand pods (kube)
    #[arg(long)]
    pub short: bool,
    /// Number of ended jobs (history)
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub jobs: u64,
    /// Runs of each scheduler (kube)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Measure only this scheduler; can be repeated (kube)
    #[arg(long, value_enum, value_name = "SCHEDULER")]
    pub only: Vec<ContenderArg>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `dovetail bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchArg {
    /// The simulator: replays, and decisions for 100,000 GPUs
    Sim,
    /// Shared GPUs: a regrouping, and all policies over Muri's traces
    Grouping,
    /// Cells of virtual clusters: decisions, failures and starts, beside HiveD's figures
    Cells,
    /// CPU and memory by need: rounds on 2,048 and 16,384 GPUs, beside Synergy's simulator
    Sizing,
    /// The live cluster: agents, submissions, starts and restarts over real sockets and a real journal
    Live,
    /// Kubernetes: this scheduler, kube-scheduler and a binder without decisions, on a real control plane
    Kube,
    /// The HTTP API: lists over a million jobs, a job of a thousand tasks, and a thousand pages that follow events
    Web,
    /// A server with a million ended jobs: its memory, its restart, lists with each filter, and the size of a snapshot
    History,
}

/// What `dovetail bench kube` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ContenderArg {
    /// A binder that assigns pods to nodes in order, without decisions
    Binder,
    /// This scheduler, without events
    Dovetail,
    /// This scheduler, with the pods in gangs of 50
    Gangs,
    /// The binder with an event per pod
    BinderEvents,
    /// This scheduler with an event per pod
    DovetailEvents,
    /// kube-scheduler, which writes an event per pod
    KubeScheduler,
}
