//! Flags of `dovetail events`, `dovetail usage` and `dovetail top`.

use clap::{Args, ValueEnum};

use super::{ClientArgs, OutputArgs};

/// `dovetail events`
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    /// Keep printing new events
    #[arg(long, short)]
    pub follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub since: u64,
    /// Only events of this job
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// What usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    /// By user
    User,
    /// By tenant
    Tenant,
    /// By day
    Day,
    /// By day, user and tenant
    All,
}

/// `dovetail usage`
#[derive(Debug, Clone, Args)]
pub struct UsageArgs {
    /// Grouping
    #[arg(long, value_name = "WHAT", default_value = "user")]
    pub by: UsageBy,
    /// First day in UTC, such as 2026-11-01
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Last day in UTC
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Show the utilization of nodes instead, per interval: GPU, SM activity, CPU, memory, disk, network. A multiple of 30s
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["by", "from", "to"], help_heading = "Utilization")]
    pub interval: Option<String>,
    /// How far back to begin
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "1h",
        requires = "interval",
        help_heading = "Utilization"
    )]
    pub last: String,
    /// Only this node
    #[arg(
        long,
        value_name = "NAME",
        requires = "interval",
        help_heading = "Utilization"
    )]
    pub node: Option<String>,
    /// Print new intervals as they end
    #[arg(long, short, requires = "interval", help_heading = "Utilization")]
    pub follow: bool,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail top`
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Print one screen and exit
    #[arg(long)]
    pub once: bool,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}
