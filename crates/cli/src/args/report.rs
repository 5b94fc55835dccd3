//! Flags of `dovetail calc` and `dovetail report`.

use std::path::PathBuf;

use clap::Args;

/// `dovetail calc`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail calc out/srsf/jobs.csv
  dovetail calc muri/result/job.csv out/muri-s/job.csv.gz --json")]
pub struct CalcArgs {
    /// Job files, also .gz and .zst: jobs.csv of `simulate --out`, or job.csv of Muri's simulator or cluster
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `dovetail report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories written by `simulate --out` or `compare --out`
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Page to write [default: report.html in the first directory]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Title of the page
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}
