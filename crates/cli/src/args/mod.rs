//! Flags as plain data, one file for each group of commands. Nothing is opened or looked up here.

mod bench;
mod convert;
mod fill;
mod forecast;
mod profile;
mod report;
mod reproduce;
mod run;
mod simulate;
mod trace;
mod vc;

use clap::{Args, Parser, Subcommand};

pub use bench::{BenchArg, BenchArgs, ContenderArg};
pub use convert::{ConvertArgs, ConvertFrom, ConvertPaiArgs, FileForm};
pub use forecast::{EvaluateArgs, ForecastArgs, ForecastCommand};
pub use profile::{OrderingArg, ProfileArgs, ProfileCommand, ProfileRunArgs, ProfileShowArgs, StageSource};
pub use report::{CalcArgs, ReportArgs};
pub use reproduce::ReproduceArgs;
pub use run::{CompatArg, EmitArg, KnowledgeArg, ResultArgs, RunArgs};
pub use simulate::{CompareArgs, SimulateArgs};
pub use trace::{FromJournalArgs, GenerateArgs, TraceArgs, TraceCommand};
pub use vc::{VcArgs, VcCommand};

/// Dovetail: a deep-learning cluster scheduler, and a simulator that runs the same code.
#[derive(Debug, Parser)]
#[command(
    name = "dovetail",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate a workload under one policy
    Simulate(Box<SimulateArgs>),
    /// Simulate a workload under several policies, on all cores
    Compare(Box<CompareArgs>),
    /// Measure how good forecasts of start times are
    Forecast(ForecastArgs),
    /// Inspect, convert and generate workloads
    Trace(TraceArgs),
    /// List policies and parts: paper, ordering key, required knowledge, knobs
    Policies(PoliciesArgs),
    /// Show the stages and speeds of models, and measure those of a command
    Profile(ProfileArgs),
    /// Manage the virtual clusters of a running cluster; check and compare configurations
    Vc(VcArgs),
    /// Compute averages from job files: Dovetail's jobs.csv or Muri's job.csv
    Calc(CalcArgs),
    /// Write one self-contained HTML page about earlier runs
    Report(ReportArgs),
    /// Run a published experiment and compare with the published figures
    Reproduce(ReproduceArgs),
    /// Measure the performance of the scheduler on this machine
    Bench(BenchArgs),
    /// The live cluster
    #[command(flatten)]
    Live(crate::live::LiveCommand),
    /// Run Dovetail on Kubernetes
    Kube(crate::kube::args::KubeArgs),
    /// Convert job files of other systems
    Convert(ConvertArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// `dovetail policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Preset or part to show [default: list all]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `dovetail completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}
