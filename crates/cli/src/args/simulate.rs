//! Flags of `dovetail simulate` and `dovetail compare`.

use std::path::PathBuf;

use clap::Args;

use super::{ResultArgs, RunArgs};
use crate::part_names::PresetNames;

/// `dovetail simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail simulate --policy srsf
  dovetail simulate --trace philly.csv.gz --cluster 67x8 --policy tiresias:limits=3600 --out out/tiresias
  dovetail simulate scenario.yaml --seed 42 --check")]
pub struct SimulateArgs {
    /// YAML file with any of the flags below as keys (policy: srsf, cluster: 16x8, ...); flags take precedence
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Preset; see `dovetail policies` [default: fifo-backfill]
    #[arg(long, value_name = "NAME", value_parser = PresetNames, hide_possible_values = true)]
    pub policy: Option<String>,
    /// Write the workload of this run as a Synergy replay file, for `--trace FILE --trace-format synergy`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print the state of this job, with the reason, whenever it changes; can be repeated
    #[arg(long, value_name = "JOB", conflicts_with = "json")]
    pub explain: Vec<String>,
    /// Flags of every simulation.
    #[command(flatten)]
    pub run: RunArgs,
    /// Flags about the results.
    #[command(flatten)]
    pub results: ResultArgs,
}

/// `dovetail compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail compare
  dovetail compare --policies fifo,srsf,tiresias:limits=3600 --loads 0.7,0.9,1.1 --seeds 1..5
  dovetail compare --trace philly.csv.gz --cluster 67x8 --policies fifo-easy,gittins --out out/philly")]
pub struct CompareArgs {
    /// YAML file with any of the flags below as keys; flags take precedence
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Comma-separated presets [default: fifo,fifo-backfill,fifo-easy,sjf,srtf,srsf,las,tiresias,gittins]
    #[arg(long, value_name = "A,B,C", value_parser = PresetNames, hide_possible_values = true)]
    pub policies: Option<String>,
    /// Comma-separated loads
    #[arg(long, value_name = "X,Y", conflicts_with_all = ["load", "jobs_per_hour"])]
    pub loads: Option<String>,
    /// Seeds: 1..5 or 1,2,3; averages are shown with their 95 % confidence interval
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<String>,
    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Flags of every simulation.
    #[command(flatten)]
    pub run: RunArgs,
    /// Flags about the results.
    #[command(flatten)]
    pub results: ResultArgs,
}
