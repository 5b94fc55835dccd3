//! Flags of `dovetail vc set`.

use clap::Args;

use super::{ClientArgs, OutputArgs};

/// `dovetail vc set`
#[derive(Debug, Clone, Args)]
pub struct VcSetArgs {
    /// The virtual cluster; created if it does not exist
    pub name: String,
    /// Guaranteed GPUs
    #[arg(long, value_name = "N")]
    pub guaranteed_gpus: Option<u32>,
    /// Maximum number of GPUs that its jobs of negative priority may borrow, or none for no limit
    #[arg(long, value_name = "N|none")]
    pub most_borrowed: Option<String>,
    /// Maximum number of GPUs that one user's running and queued jobs may request, or none for no limit
    #[arg(long, value_name = "N|none")]
    pub user_cap_gpus: Option<String>,
    /// Highest priority of a job, or none for no limit
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    pub max_priority: Option<String>,
    /// Role of users without a role of their own: none, viewer or member
    #[arg(long, value_name = "ROLE")]
    pub everyone: Option<String>,
    /// Order of its jobs in the queue, such as las or srsf; none for the order of the policy
    #[arg(long, value_name = "ORDER")]
    pub order: Option<String>,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}
