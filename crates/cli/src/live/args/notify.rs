//! Flags of `dovetail notify`.

use clap::{Args, Subcommand};

use super::{ClientArgs, OutputArgs};

/// `dovetail notify`
#[derive(Debug, Clone, Args)]
pub struct NotifyArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: NotifyCommand,
}

/// Commands on your notifications.
#[derive(Debug, Clone, Subcommand)]
pub enum NotifyCommand {
    /// Show your notification settings
    Show {
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Change your notification settings; flags that are not given keep their value
    Set(NotifySetArgs),
    /// Send a test notification to each configured destination
    Test {
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// `dovetail notify set`
#[derive(Debug, Clone, Args)]
pub struct NotifySetArgs {
    /// Events: running,completed,failed,preempted,pending-too-long,low-gpu-use, or none
    #[arg(long, value_name = "EVENTS")]
    pub on: Option<String>,
    /// Send mail
    #[arg(long, value_name = "true|false")]
    pub email: Option<bool>,
    /// Webhook to send requests to, or none
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// Waiting time after which pending-too-long is sent, such as 30m
    #[arg(long, value_name = "SPAN")]
    pub pending: Option<String>,
    /// GPU utilization in percent below which low-gpu-use is sent
    #[arg(long, value_name = "PERCENT")]
    pub low_gpu_percent: Option<f64>,
    /// Generate a new secret for signing webhook requests
    #[arg(long)]
    pub new_secret: bool,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}
