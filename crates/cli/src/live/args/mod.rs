//! Flags of the commands that run and use a live cluster, one file for each group of commands.

mod jobs;
mod nodes;
mod notify;
mod operate;
mod server;
mod submit;
mod usage;
mod users;
mod vc;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub use jobs::{JobCommand, JobCommandArgs, JobsArgs, LogsArgs, OneJobArgs, SomeJobsArgs, StopArgs};
pub use nodes::{MpsCommand, NodeCommand, NodeCommandArgs, NodesArgs};
pub use notify::{NotifyArgs, NotifyCommand, NotifySetArgs};
pub use operate::{OperateArgs, OperateCommand};
pub use server::{AgentArgs, ImagesArg, ServeArgs, ServerArgs, UpArgs};
pub use submit::{JobArgs, RunJobArgs, SubmitArgs, TraceJobArgs};
pub use usage::{EventsArgs, TopArgs, UsageArgs, UsageBy};
pub use users::{UserArgs, UserCommand};
pub use vc::VcSetArgs;

/// How to reach the scheduler.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArgs {
    /// client.yaml with the address of the scheduler and a token [default: $DOVETAIL_CONFIG, ~/.config/dovetail/client.yaml, or that of a local `up`]
    #[arg(long, value_name = "FILE", help_heading = "Scheduler")]
    pub config: Option<PathBuf>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table
    #[default]
    Table,
    /// A table with all columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Comma-separated values
    Csv,
}

/// Output format.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: Output,
    /// Same as -o json
    #[arg(long)]
    pub json: bool,
}

impl OutputArgs {
    /// Returns the requested format.
    pub fn form(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}
