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
    /// Start or stop NVIDIA's Multi-Process Service on a drained node
    #[command(subcommand)]
    Mps(MpsCommand),
    /// Start jobs on a drained node again
    Resume {
        /// The node
        name: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// Starting and stopping MPS.
#[derive(Debug, Clone, Subcommand)]
pub enum MpsCommand {
    /// Give the GPUs the mode EXCLUSIVE_PROCESS and start the MPS daemon; jobs that share GPUs then run on them at the same time
    Start(MpsArgs),
    /// Stop the MPS daemon and give the GPUs their default mode
    Stop(MpsArgs),
}

/// `dovetail node mps start|stop`
#[derive(Debug, Clone, Args)]
pub struct MpsArgs {
    /// The node
    pub name: String,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}
