//! Flags of `dovetail vc`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::live::args::{ClientArgs, OutputArgs, VcSetArgs};

/// `dovetail vc`.
#[derive(Debug, Args)]
pub struct VcArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: VcCommand,
}

/// Commands on virtual clusters.
#[derive(Debug, Subcommand)]
pub enum VcCommand {
    /// Check a HiveD configuration (YAML) and draw its physical and virtual cells
    #[command(after_help = "Examples:
  dovetail vc check cluster.yaml
  dovetail vc check cluster.yaml --json | jq .virtual_clusters")]
    Check {
        /// The configuration
        #[arg(value_name = "FILE")]
        config: PathBuf,
        /// Draw all cells
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the virtual clusters of a running cluster
    List {
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Create or change a virtual cluster of a running cluster
    #[command(after_help = "Examples:
  dovetail vc set vision --guaranteed-gpus 16 --dry-run
  dovetail vc set vision --user-cap-gpus 8 --order las
  dovetail vc set vision --user-cap-gpus none")]
    Set(Box<VcSetArgs>),
    /// Remove a virtual cluster from a running cluster
    Remove {
        /// The virtual cluster
        name: String,
        /// Only print what would change
        #[arg(long)]
        dry_run: bool,
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Replace all virtual clusters of a running cluster by those of a file: native (mode and vcs) or HiveD YAML
    Apply {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only print what would change
        #[arg(long)]
        dry_run: bool,
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show what a new configuration changes, and what happens to running jobs or groups
    #[command(after_help = "Examples:
  dovetail vc diff next.yaml                 on the running cluster, as `vc apply` would
  dovetail vc diff now.yaml next.yaml
  dovetail vc diff now.yaml next.yaml --running scenario.json")]
    Diff {
        /// Current configuration; without NEW, the new configuration of the running cluster
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// New configuration
        #[arg(value_name = "NEW")]
        new: Option<PathBuf>,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
        /// Scenario of running groups, replayed with the old configuration first
        #[arg(long, value_name = "SCENARIO")]
        running: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replay scenarios recorded from HiveD and print the first difference; exits with 1 if there is one
    #[command(after_help = "Examples:
  dovetail vc replay scenarios/lab6__4-gang.json
  dovetail vc replay scenarios/*.json --configs configs
  dovetail vc replay scenarios/lab6__1-vc-safety.json --explain")]
    Replay {
        /// Scenario files
        #[arg(required = true, value_name = "SCENARIO")]
        scenarios: Vec<PathBuf>,
        /// Directory of the configurations [default: configs beside the folder of each scenario]
        #[arg(long, value_name = "DIR")]
        configs: Option<PathBuf>,
        /// Print for each pending pod the reason, and what would let it start
        #[arg(long)]
        explain: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
