//! Flags of `dovetail trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `dovetail trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// Commands on traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Summarize a trace: jobs, GPUs per job, run times, arrivals, tenants
    Info {
        /// The trace
        file: PathBuf,
        /// Format of the trace [default: detected]
        #[arg(long, value_name = "NAME")]
        trace_format: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Convert a trace to another format
    Convert {
        /// Trace to read
        input: PathBuf,
        /// File to write, - for standard output; .gz and .zst are compressed
        output: PathBuf,
        /// Format of the input [default: detected]
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// Format of the output [default: native; JSONL if the name ends in .jsonl]
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
    },
    /// Generate a workload
    Generate(Box<GenerateArgs>),
    /// Export the finished jobs of a live cluster as a workload, or measure how well the simulator predicts them
    FromJournal(FromJournalArgs),
}

/// `dovetail trace from-journal`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail trace from-journal ~/.local/share/dovetail/journal --out past.csv
  dovetail trace from-journal /var/lib/dovetail/journal --fidelity")]
pub struct FromJournalArgs {
    /// Journal folder of a server, running or not
    pub folder: PathBuf,
    /// Trace to write in the native format, - for standard output
    #[arg(long, value_name = "FILE", required_unless_present = "fidelity")]
    pub out: Option<PathBuf>,
    /// Simulate the jobs with the same policy and nodes, and compare each completion time with the live one
    #[arg(long)]
    pub fidelity: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `dovetail trace generate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail trace generate --jobs 10000 --out jobs.csv
  dovetail trace generate --generator blox --arrivals bursty --jobs-per-hour 8 --out burst.csv.gz")]
pub struct GenerateArgs {
    /// Generator: philly-like, blox or blox-small
    #[arg(long, value_name = "NAME", default_value = "philly-like")]
    pub generator: String,
    /// Number of jobs
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub jobs: u64,
    /// Seed of the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Mean arrival rate
    #[arg(long, value_name = "X")]
    pub jobs_per_hour: Option<f64>,
    /// Mean requested GPUs as a multiple of --cluster-gpus
    #[arg(
        long,
        value_name = "X",
        requires = "cluster_gpus",
        conflicts_with = "jobs_per_hour"
    )]
    pub load: Option<f64>,
    /// GPUs of the cluster that --load refers to
    #[arg(long, value_name = "N")]
    pub cluster_gpus: Option<u32>,
    /// Arrivals: philly, poisson, diurnal, bursty
    #[arg(long, value_name = "PART")]
    pub arrivals: Option<String>,
    /// Run times: philly, blox, blox-small, fixed:600, lognormal, exponential
    #[arg(long, value_name = "PART")]
    pub durations: Option<String>,
    /// GPUs per job: philly, or shares such as 1:0.7,2:0.1,4:0.15,8:0.05
    #[arg(long, value_name = "MIX")]
    pub gpus: Option<String>,
    /// File to write, - for standard output; its name determines format and compression
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
    /// Format of the output [default: native; JSONL if the name ends in .jsonl]
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
}
