//! Flags of every simulation: workload, cluster, policy parts, settings of the run, output.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dovetail_engine::Knowledge;
use dovetail_experiment::{OutputSpec, ReferenceSystem, ResultLayout, RunSpec};
use dovetail_policies::registry::{self, Kind};

use super::fill::{Fill, flags};
use crate::part_names::PartNames;

flags! {
/// Workload, cluster and settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct RunArgs for RunSpec {
    /// Trace to replay: .csv, .json, .jsonl or .trace, optionally with .gz or .zst [default: generate a workload]
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub trace: Option<PathBuf>,
    /// Format of the trace: philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, native, ... [default: detected]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub trace_format: Option<String>,
    /// Generator of the workload: philly-like, blox or blox-small [default: philly-like]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub generate: Option<String>,
    /// Number of jobs to generate, or to keep from the start of a trace [default: 2000 generated, all of a trace]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub jobs: Option<u64>,
    /// Mean arrival rate of generated jobs; rescales the arrivals of a trace
    #[arg(
        long,
        value_name = "X",
        help_heading = "Workload",
        allow_negative_numbers = true
    )]
    pub jobs_per_hour: Option<f64>,
    /// Mean requested GPUs as a multiple of the cluster's GPUs, instead of an arrival rate [default: 0.9 for generated workloads]
    #[arg(
        long,
        value_name = "X",
        help_heading = "Workload",
        conflicts_with = "jobs_per_hour"
    )]
    pub load: Option<f64>,
    /// Make jobs elastic: from LOW to HIGH times the requested GPUs, such as 0.5..4
    #[arg(long, value_name = "LOW..HIGH", help_heading = "Workload")]
    pub elastic: Option<String>,
    /// Parallel fraction of an elastic job's work, by Amdahl's law [default: 1, linear speed-up]
    #[arg(long, value_name = "X", help_heading = "Workload")]
    pub parallel_share: Option<f64>,
    /// Seed of the random number generators [default: 1]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub seed: Option<u64>,
    /// Cluster: 32x4 (nodes x GPUs), pool:534 (GPUs without nodes), or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv [default: 16x8]
    #[arg(long, value_name = "SPEC", help_heading = "Cluster")]
    pub cluster: Option<String>,
    /// CSV file of outages with the columns node,down_s,up_s
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub failures: Option<PathBuf>,
    /// Mean time between failures of a node, for random outages, such as 30d
    #[arg(long, value_name = "SPAN", help_heading = "Cluster")]
    pub mtbf: Option<String>,
    /// Duration of a random outage [default: 1h]
    #[arg(long, value_name = "SPAN", help_heading = "Cluster")]
    pub repair: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("Which jobs are admitted to the queue", Kind::Admission), value_parser = PartNames(Kind::Admission), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub admission: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("How the queue is sorted", Kind::Order), value_parser = PartNames(Kind::Order), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub order: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("How the queue is walked, and whether running jobs are preempted", Kind::Discipline), value_parser = PartNames(Kind::Discipline), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub discipline: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("How many GPUs, and how much CPU and memory, each job gets", Kind::Sizing), value_parser = PartNames(Kind::Sizing), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub sizing: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("Which jobs share the same GPUs", Kind::Grouping), value_parser = PartNames(Kind::Grouping), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub grouping: Option<String>,
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        help = part_help("Which GPUs a job gets", Kind::Placement), value_parser = PartNames(Kind::Placement), hide_possible_values = true)]
    #[allow(missing_docs, reason = "the help text is computed")]
    pub placement: Option<String>,
    /// What each tenant may use: none, quota:a=8,b=16+4 (guaranteed GPUs + maximum of borrowed GPUs), quota:FILE, or cells:FILE (virtual clusters)
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy",
        value_parser = PartNames(Kind::Tenancy), hide_possible_values = true)]
    pub tenancy: Option<String>,
    /// What the policy knows about remaining time [default: what the policy needs, without error]
    #[arg(long, value_name = "LEVEL", help_heading = "Settings of the run")]
    pub knowledge: Option<KnowledgeArg>,
    /// Error of estimates: standard deviation of their logarithm [default: 0.5]
    #[arg(long, value_name = "X", help_heading = "Settings of the run")]
    pub estimate_error: Option<f64>,
    /// When decisions are made: at every event (events), or periodically (rounds:300s) [default: events]
    #[arg(long, value_name = "CLOCK", help_heading = "Settings of the run")]
    pub clock: Option<String>,
    /// Time that a preempted job needs to restart [default: 0s]
    #[arg(long, value_name = "SPAN", help_heading = "Settings of the run")]
    pub restart_cost: Option<String>,
    /// Interval between checkpoints; a node failure loses the work since the last one [default: no work is lost]
    #[arg(long, value_name = "SPAN", help_heading = "Settings of the run")]
    pub checkpoint: Option<String>,
    /// Duration of a checkpoint [default: 0s]
    #[arg(long, value_name = "SPAN", help_heading = "Settings of the run")]
    pub checkpoint_cost: Option<String>,
    /// Speed of a job that spans several nodes, relative to full speed [default: 1]
    #[arg(long, value_name = "X", help_heading = "Settings of the run")]
    pub spread_penalty: Option<String>,
    /// Speeds of models across nodes and on each GPU type: builtin, or a YAML file [default: full speed]
    #[arg(long, value_name = "FILE", help_heading = "Settings of the run")]
    pub profiles: Option<String>,
    /// Speeds of models by CPU and memory: synergy-3, -4, -5, -6, a YAML file, or none [default: the table for the cluster's
    /// CPUs per GPU, if there is one]
    #[arg(long, value_name = "TABLE", help_heading = "Settings of the run")]
    pub sensitivity: Option<String>,
    /// Reproduce the results of another simulator, including its quirks
    #[arg(long, value_name = "SYSTEM", help_heading = "Settings of the run")]
    pub compat: Option<CompatArg>,
    /// Average only over jobs with ids from A to B inclusive, such as 0..99; all jobs still run
    #[arg(long, value_name = "A..B", help_heading = "Settings of the run")]
    pub track: Option<String>,
    /// Check the engine's invariants after every step
    #[arg(long, help_heading = "Settings of the run")]
    pub check: bool,
}
}

flags! {
/// What happens with the results of a run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct ResultArgs for OutputSpec {
    /// Directory to write results to
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Also write the result files of another system to the directory of --out
    #[arg(long, value_name = "SYSTEM", help_heading = "Output")]
    pub emit: Option<EmitArg>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}
}

/// Returns the help of a flag that replaces one part of the preset, with the names in the registry.
fn part_help(text: &str, kind: Kind) -> String {
    let parts = registry::all();
    let names: Vec<&str> = parts
        .iter()
        .filter(|part| part.kind == kind)
        .map(|part| part.name)
        .collect();
    format!("{text}: {}", names.join(", "))
}

/// `--knowledge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KnowledgeArg {
    /// Nothing
    None,
    /// What the trace states (column expected_s), else an estimate with an error
    Estimate,
    /// What the trace states, else a prediction from the run times of jobs that ended before
    Predicted,
    /// The exact value
    Oracle,
}

/// `--compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompatArg {
    /// Blox (EuroSys'24): rounds of 300 s, progress in whole rounds, its placement and discipline
    Blox,
    /// Muri's simulator (SIGCOMM'22): srtf, srsf, tiresias, antman, muri-s and muri-l with its time model and tie-breaking
    Muri,
    /// Synergy's simulator (OSDI'22): fifo, srtf, las, ftf, drf and tetris, each with --sizing proportional, greedy or tune
    Synergy,
}

/// `--emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EmitArg {
    /// Muri's simulator: job.csv and cluster.csv
    Muri,
}

impl From<KnowledgeArg> for Knowledge {
    fn from(knowledge: KnowledgeArg) -> Self {
        match knowledge {
            KnowledgeArg::None => Self::None,
            KnowledgeArg::Estimate => Self::Estimate,
            KnowledgeArg::Predicted => Self::Predicted,
            KnowledgeArg::Oracle => Self::Oracle,
        }
    }
}

impl From<CompatArg> for ReferenceSystem {
    fn from(system: CompatArg) -> Self {
        match system {
            CompatArg::Blox => Self::Blox,
            CompatArg::Muri => Self::Muri,
            CompatArg::Synergy => Self::Synergy,
        }
    }
}

impl From<EmitArg> for ResultLayout {
    fn from(system: EmitArg) -> Self {
        match system {
            EmitArg::Muri => Self::Muri,
        }
    }
}

impl RunArgs {
    /// Returns the settings of a scenario file with the flags in place of what the file has for them.
    pub fn over(self, mut file: RunSpec) -> RunSpec {
        // Either flag replaces the other key of the file.
        if self.load.is_some() {
            file.jobs_per_hour = None;
        }
        if self.jobs_per_hour.is_some() {
            file.load = None;
        }
        self.fill(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_replace_the_keys_of_a_scenario_file() {
        let file = RunSpec {
            jobs: Some(10),
            jobs_per_hour: Some(5.0),
            check: true,
            ..RunSpec::default()
        };
        let flags = RunArgs {
            load: Some(0.7),
            knowledge: Some(KnowledgeArg::Oracle),
            ..RunArgs::default()
        };
        let expected = RunSpec {
            jobs_per_hour: None,
            load: Some(0.7),
            knowledge: Some(Knowledge::Oracle),
            ..file.clone()
        };
        assert_eq!(flags.over(file), expected);
    }
}
