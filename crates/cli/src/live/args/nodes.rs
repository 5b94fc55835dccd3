//! Flags of `dovetail nodes` and `dovetail node`.

use clap::{Args, Subcommand};

use super::{ClientArgs, OutputArgs};

/// `dovetail nodes`
#[derive(Debug, Clone, Args)]
pub struct NodesArgs {
    /// Refresh every second
    #[arg(long)]
    pub watch: bool,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail node`
#[derive(Debug, Clone, Args)]
pub struct NodeCommandArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// Commands on a node.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeCommand {
    /// Start no new jobs on a node; running jobs continue
    Drain {
        /// The node
        name: String,
        /// Reason, shown to users
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Start jobs on a drained node again
    Resume {
        /// The node
        name: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
}
