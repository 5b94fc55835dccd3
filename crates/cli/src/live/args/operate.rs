//! Flags of `dovetail operate`.

use clap::{Args, Subcommand};

use super::{ClientArgs, OutputArgs};

/// `dovetail operate`
#[derive(Debug, Clone, Args)]
pub struct OperateArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: OperateCommand,
}

/// Changes to a running scheduler.
#[derive(Debug, Clone, Subcommand)]
pub enum OperateCommand {
    /// Change the policy, from the next decision on
    Policy {
        /// Preset, optionally with knobs: tiresias:limits=3600
        name: String,
        /// Part that replaces one of the preset, such as placement=spread; can be repeated
        #[arg(long = "part", value_name = "KIND=PART")]
        parts: Vec<String>,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Decide periodically (60s), or at every event (events)
    Round {
        /// Length of a round, or `events`
        length: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Stop making decisions; running jobs continue
    Pause(ClientArgs),
    /// Make decisions again
    Resume(ClientArgs),
    /// Show the policy, the rounds, and whether the scheduler is paused
    Show {
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
}
