//! The live cluster: its server and agents, and the commands of its users.

pub mod agent;
pub mod args;
pub mod clusters;
pub mod events;
pub mod job_text;
pub mod jobs;
pub mod nodes;
pub mod notify;
pub mod operate;
pub mod profiles;
pub mod server;
pub mod show;
pub mod submit;
pub mod top;
pub mod trace_jobs;
pub mod usage;
pub mod users;
pub mod utilization;

use std::process::ExitCode;

use clap::Subcommand;
use dovetail_console::Failure;

/// Commands of the live cluster.
#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    /// Run a scheduler and an agent on this machine
    Up(Box<args::UpArgs>),
    /// Run the scheduler
    Server(Box<args::ServerArgs>),
    /// Run the agent on a node
    Agent(Box<args::AgentArgs>),
    /// Run a command on GPUs and stream its output
    Run(Box<args::RunJobArgs>),
    /// Submit a job file, or the jobs of a trace
    Submit(Box<args::SubmitArgs>),
    /// List jobs
    Jobs(args::JobsArgs),
    /// Show, explain, stop, hold and release jobs; read their logs
    Job(args::JobCommandArgs),
    /// List nodes
    Nodes(args::NodesArgs),
    /// Drain or resume a node; start and stop MPS
    Node(args::NodeCommandArgs),
    /// List and follow events
    Events(args::EventsArgs),
    /// Show GPU-hours by user, tenant and day, or the utilization of nodes
    Usage(args::UsageArgs),
    /// Show the cluster on one screen, live
    Top(args::TopArgs),
    /// Change the policy and rounds of a running scheduler, or pause it
    Operate(args::OperateArgs),
    /// Manage users
    User(args::UserArgs),
    /// Configure your notifications
    Notify(args::NotifyArgs),
}

/// Runs a command.
///
/// # Errors
/// The command's failure.
pub fn run(command: &LiveCommand) -> Result<ExitCode, Failure> {
    let result = match command {
        LiveCommand::Run(args) => return submit::run(args),
        LiveCommand::Submit(args) => return submit::submit(args),
        LiveCommand::Up(args) => server::up(args),
        LiveCommand::Server(args) => server::server(args),
        LiveCommand::Agent(args) => agent::run(args),
        LiveCommand::Jobs(args) => jobs::list(args),
        LiveCommand::Job(args) => jobs::job(&args.command),
        LiveCommand::Nodes(args) => nodes::list(args),
        LiveCommand::Node(args) => nodes::act(&args.command),
        LiveCommand::Events(args) => events::run(args),
        LiveCommand::Usage(args) => usage::run(args),
        LiveCommand::Top(args) => top::run(args),
        LiveCommand::Operate(args) => operate::run(&args.command),
        LiveCommand::User(args) => users::run(&args.command),
        LiveCommand::Notify(args) => notify::run(&args.command),
    };
    result.map(|()| ExitCode::SUCCESS)
}
