//! Flags of `dovetail reproduce`.

use std::path::PathBuf;

use clap::Args;

/// `dovetail reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiment, such as blox-fig6, jct-bound or muri-fig9 [default: list all]
    pub name: Option<String>,
    /// Directory to write tables and figures to
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Directory of the public traces and results [default: $DOVETAIL_SHARED/data, or ../shared/data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Seed of generated workloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Include runs that take minutes
    #[arg(long)]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
}
