//! Flags of `dovetail jobs` and `dovetail job`.

use clap::{Args, Subcommand};

use super::{ClientArgs, OutputArgs};

/// `dovetail jobs`
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Include jobs that have ended
    #[arg(long, short)]
    pub all: bool,
    /// Only your jobs
    #[arg(long, short)]
    pub mine: bool,
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only jobs of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Only jobs in these states: queued,running,failed,...
    #[arg(long, value_name = "STATES")]
    pub state: Option<String>,
    /// Only jobs with this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only jobs with this label
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub label: Option<String>,
    /// Only jobs on this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
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

/// `dovetail job`
#[derive(Debug, Clone, Args)]
pub struct JobCommandArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: JobCommand,
}

/// A job and its scheduler.
#[derive(Debug, Clone, Args)]
pub struct OneJobArgs {
    /// Job id, name (the newest job of that name), or `last` (your newest job)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Jobs and their scheduler.
#[derive(Debug, Clone, Args)]
pub struct SomeJobsArgs {
    /// Job ids, names, `last`, or `@mine` (all your jobs that have not ended)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail job stop`
#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    /// Job ids, names, `last`, or `@mine` (all your jobs that have not ended)
    #[arg(value_name = "JOB", required_unless_present_any = ["user", "tenant", "name", "label", "node", "state"])]
    pub jobs: Vec<String>,
    /// Stop the unfinished jobs of this user; `@me` for yourself. Filters can be combined: jobs must match all of them
    #[arg(long, value_name = "NAME", conflicts_with = "jobs", help_heading = "Filters")]
    pub user: Option<String>,
    /// Of this virtual cluster
    #[arg(
        long,
        visible_alias = "vc",
        value_name = "NAME",
        conflicts_with = "jobs",
        help_heading = "Filters"
    )]
    pub tenant: Option<String>,
    /// With this name
    #[arg(long, value_name = "NAME", conflicts_with = "jobs", help_heading = "Filters")]
    pub name: Option<String>,
    /// With this label
    #[arg(
        long,
        value_name = "KEY[=VALUE]",
        conflicts_with = "jobs",
        help_heading = "Filters"
    )]
    pub label: Option<String>,
    /// On this node
    #[arg(long, value_name = "NAME", conflicts_with = "jobs", help_heading = "Filters")]
    pub node: Option<String>,
    /// In these states: queued,held,starting,running [default: unfinished]
    #[arg(
        long,
        value_name = "STATES",
        conflicts_with = "jobs",
        help_heading = "Filters"
    )]
    pub state: Option<String>,
    /// Only list the jobs
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Commands on a job.
#[derive(Debug, Clone, Subcommand)]
pub enum JobCommand {
    /// Show a job in detail
    Show(OneJobArgs),
    /// Explain the state of a job, and why it does not run
    Explain(OneJobArgs),
    /// Print the log of a job
    Logs(LogsArgs),
    /// Stop jobs: named ones, or all unfinished jobs of a user, with a label, on a node, ...
    Stop(StopArgs),
    /// Hold jobs; a running job is stopped, and later resumes from its checkpoint
    Hold(SomeJobsArgs),
    /// Release held jobs
    Release(SomeJobsArgs),
}

/// `dovetail job logs`
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// Job id, name (the newest job of that name), or `last` (your newest job)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Follow the log until the job ends
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u64>,
    /// Log of this attempt [default: the last]
    #[arg(long, alias = "launch", value_name = "N")]
    pub attempt: Option<u64>,
    /// Log of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}
