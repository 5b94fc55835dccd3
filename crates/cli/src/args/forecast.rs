//! Flags of `dovetail forecast`.

use clap::{Args, Subcommand};

use super::RunArgs;
use crate::part_names::PresetNames;

/// `dovetail forecast`.
#[derive(Debug, Args)]
pub struct ForecastArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: ForecastCommand,
}

/// The commands of `dovetail forecast`.
#[derive(Debug, Subcommand)]
pub enum ForecastCommand {
    /// Replay a trace and compare forecast start times with the real ones
    Evaluate(Box<EvaluateArgs>),
}

/// `dovetail forecast evaluate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail forecast evaluate --cluster 4x8 --load 1.0
  dovetail forecast evaluate --trace philly.csv.gz --cluster 90x8
  dovetail forecast evaluate --trace venus.csv.gz --cluster 90x8 --policy fifo --interval 80 --json")]
pub struct EvaluateArgs {
    /// Preset; see `dovetail policies` [default: fifo-backfill]
    #[arg(long, value_name = "NAME", value_parser = PresetNames, hide_possible_values = true)]
    pub policy: Option<String>,
    /// Share of starts that an interval should contain, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u32).range(50..=99))]
    pub interval: u32,
    /// Number of forecasts, spread over the jobs that wait
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub forecasts: u32,
    /// Number of simulations for each forecast
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(12..=1_000))]
    pub simulations: u32,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
    /// Flags of every simulation.
    #[command(flatten)]
    pub run: RunArgs,
}
