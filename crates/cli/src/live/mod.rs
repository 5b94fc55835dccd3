//! The live cluster: its server and agents, and the commands of its users.

pub mod agent;
pub mod args;
pub mod client;
pub mod clusters;
pub mod events;
pub mod jobs;
pub mod nodes;
pub mod notify;
pub mod operate;
pub mod server;
pub mod settings;
pub mod show;
pub mod submit;
pub mod top;
pub mod usage;
pub mod users;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Commands of the live cluster.
#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    /// Run a scheduler with an agent on this machine
    Up(Box<args::UpArgs>),
    /// Run the scheduler
    Server(Box<args::ServerArgs>),
    /// Run the agent of a node
    Agent(Box<args::AgentArgs>),
    /// Run a command on GPUs, and print what it prints
    Run(Box<args::RunJobArgs>),
    /// Send a job file
    Submit(args::SubmitArgs),
    /// List jobs
    Jobs(args::JobsArgs),
    /// Look at a job, read its log, stop it
    Job(args::JobCommandArgs),
    /// List nodes
    Nodes(args::NodesArgs),
    /// Take a node out of use, and back
    Node(args::NodeCommandArgs),
    /// What happened, and happens
    Events(args::EventsArgs),
    /// GPU-hours by user, tenant and day
    Usage(args::UsageArgs),
    /// The cluster on one screen, live
    Top(args::TopArgs),
    /// Change policy and rounds while it runs
    Operate(args::OperateArgs),
    /// Who may use the cluster
    User(args::UserArgs),
    /// When you are told of your jobs, and how
    Notify(args::NotifyArgs),
}

/// Runs one.
///
/// # Errors
/// What it fails with.
pub fn run(command: &LiveCommand) -> Result<ExitCode, Failure> {
    let done = match command {
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
    done.map(|()| ExitCode::SUCCESS)
}
