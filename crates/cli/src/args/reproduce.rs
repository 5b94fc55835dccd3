//! Flags of `dovetail reproduce`.

use std::path::PathBuf;

use clap::Args;
use dovetail_testbed::{DEFAULT_JOBS, DEFAULT_POLICIES};

/// `dovetail reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiment, such as blox-fig6, jct-bound or muri-fig9 [default: list all]
    pub name: Option<String>,
    /// Directory to write tables and figures to
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Directory of the public traces and results [default: $DOVETAIL_SHARED/data, or ../shared/data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Seed of generated workloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Include runs that take minutes
    #[arg(long)]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
    /// Flags of an experiment on a live cluster.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// Flags of `dovetail reproduce muri-testbed --live`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Live cluster")]
pub struct LiveArgs {
    /// Run real processes (muri-testbed only): on a cluster that is started on this machine for that time, or on that of --on
    #[arg(long)]
    pub live: bool,
    /// Number of jobs, from the start of the trace
    #[arg(long, value_name = "N", default_value_t = DEFAULT_JOBS, requires = "live", value_parser = clap::value_parser!(u32).range(1..=400))]
    pub jobs: u32,
    /// Factor on all times of the trace, such as 1e-4 [default: a policy runs for about half a minute]
    #[arg(long, value_name = "F", requires = "live")]
    pub scale: Option<f64>,
    /// Policies, separated by commas, as in `compare`
    #[arg(long, value_name = "NAMES", default_value = DEFAULT_POLICIES, requires = "live")]
    pub policies: Vec<String>,
    /// Number of nodes to start
    #[arg(long, value_name = "N", default_value_t = 2, requires = "live", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes: u32,
    /// Virtual GPUs of each node
    #[arg(long, value_name = "N", default_value_t = 2, requires = "live", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub gpus: u32,
    /// client.yaml of an idle cluster to run on; its policy is replaced during the runs
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with_all = ["nodes", "gpus"])]
    pub on: Option<PathBuf>,
    /// Run the built-in synthetic trainer, which needs no PyTorch
    #[arg(long, requires = "live", conflicts_with = "trainer")]
    pub synthetic: bool,
    /// Script that trains the models [default: examples/workloads/train.py here or above, with PyTorch; else synthetic]
    #[arg(long, value_name = "FILE", requires = "live")]
    pub trainer: Option<PathBuf>,
    /// Python interpreter of the jobs [default: python3 or /usr/bin/python3, whichever has PyTorch]
    #[arg(long, value_name = "PROGRAM", requires = "live")]
    pub python: Option<PathBuf>,
}
