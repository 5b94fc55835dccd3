//! Flags of the commands that run and use a live cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// How to reach the scheduler.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArgs {
    /// Where the scheduler is and with which token: a client.yaml [default: $DOVETAIL_CONFIG, ~/.config/dovetail/client.yaml, or that of a local `up`]
    #[arg(long, value_name = "FILE", help_heading = "Scheduler")]
    pub config: Option<PathBuf>,
}

/// How results are printed.
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

/// How results are printed, and whether again and again.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// How to print it
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: Output,
    /// The same as -o json
    #[arg(long)]
    pub json: bool,
}

impl OutputArgs {
    /// The form that was asked for.
    pub fn form(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}

/// What `up` and `server` have in common.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Journal, certificates, tokens and logs [default: ~/.local/share/dovetail]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where people and scripts reach the API; port 0 picks a free one [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Where agents reach the scheduler [default: 127.0.0.1:7879]
    #[arg(long, value_name = "ADDR")]
    pub grpc: Option<SocketAddr>,
    /// The policy of a new cluster, as `dovetail policies` lists them; an old one remembers its own [default: fifo-backfill:priority=true]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Serve the API without TLS; only on a loopback address
    #[arg(long)]
    pub no_tls: bool,
}

/// `dovetail up`
#[derive(Debug, Clone, Default, Args)]
pub struct UpArgs {
    /// What `server` takes too
    #[command(flatten)]
    pub serve: ServeArgs,
    /// So many GPU slots without GPUs [default: the GPUs of this machine; 4 slots if there are none]
    #[arg(long, value_name = "N")]
    pub virtual_gpus: Option<u32>,
    /// Nodes to pretend to have, each with as many virtual GPUs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "virtual_gpus")]
    pub nodes: u32,
    /// What becomes of a job that names a container image where there is neither podman nor docker
    #[arg(long, value_name = "HOW", default_value = "ignore")]
    pub images: ImagesArg,
}

/// What becomes of a job that names a container image on a node without a container runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ImagesArg {
    /// It is refused
    Require,
    /// It runs without its image; its log and its record say so
    #[default]
    Ignore,
}

impl From<ImagesArg> for dovetail_node::Images {
    fn from(images: ImagesArg) -> Self {
        match images {
            ImagesArg::Require => Self::Require,
            ImagesArg::Ignore => Self::Ignore,
        }
    }
}

/// `dovetail server`
#[derive(Debug, Clone, Default, Args)]
pub struct ServerArgs {
    /// Settings in YAML; flags go before them
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What `up` takes too
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Print the token by which nodes join, and end
    #[arg(long)]
    pub print_join_token: bool,
}

/// `dovetail agent`
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// host:port of the scheduler's --grpc, also with https:// before it
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// The join token, once; others see it in the list of processes, so rather use --token-file or $DOVETAIL_JOIN_TOKEN
    #[arg(
        long,
        value_name = "TOKEN",
        env = "DOVETAIL_JOIN_TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// A file with the join token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The name of this node [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The agent's folder, on a local disk: certificate, tasks and their logs [default: ~/.local/share/dovetail/agent]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// So many GPU slots without GPUs, instead of those of the machine
    #[arg(long, value_name = "N")]
    pub virtual_gpus: Option<u32>,
    /// Where other nodes reach this one [default: the address towards the scheduler]
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,
    /// The rack this node is in
    #[arg(long, value_name = "NAME", default_value = "")]
    pub rack: String,
    /// Labels of this node
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// What runs containers; none for nothing [default: podman or docker, whichever is there]
    #[arg(long, value_name = "PROGRAM")]
    pub container_runtime: Option<PathBuf>,
    /// What becomes of a job that names a container image where there is neither podman nor docker
    #[arg(long, value_name = "HOW", default_value = "require")]
    pub images: ImagesArg,
    /// The cgroup (v2) below which tasks get theirs [default: the agent's own]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
}

/// What a job needs, as flags.
#[derive(Debug, Clone, Default, Args)]
pub struct JobArgs {
    /// GPUs, all at once
    #[arg(long, short = 'g', value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// A name [default: that of the command]
    #[arg(long, short, value_name = "NAME")]
    pub name: Option<String>,
    /// The tenant that pays
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Larger is more urgent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Only this kind of GPU
    #[arg(long, value_name = "TYPE")]
    pub gpu_type: Option<String>,
    /// As few GPUs as this, for a job that can shrink
    #[arg(long, value_name = "N")]
    pub min_gpus: Option<u32>,
    /// As many GPUs as this, for a job that can grow
    #[arg(long, value_name = "N")]
    pub max_gpus: Option<u32>,
    /// CPUs beside each GPU
    #[arg(long, value_name = "N")]
    pub cpus_per_gpu: Option<f64>,
    /// Memory beside each GPU: MiB, or such as 16G
    #[arg(long, value_name = "SIZE")]
    pub memory_per_gpu: Option<String>,
    /// Processes: per-node, per-gpu (as torchrun), or first-node (as mpirun)
    #[arg(long, value_name = "HOW")]
    pub processes: Option<String>,
    /// Stop it after it has run for so long, such as 2h
    #[arg(long, value_name = "SPAN")]
    pub time_limit: Option<String>,
    /// How long it will run, as you think; some policies make use of it
    #[arg(long, value_name = "SPAN")]
    pub expected: Option<String>,
    /// Time between the notice to stop and the kill
    #[arg(long, value_name = "SPAN")]
    pub grace: Option<String>,
    /// Start it again so many times if it fails by its own fault
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// A variable for its environment; without =VALUE, the one of this shell
    #[arg(long, short, value_name = "KEY[=VALUE]")]
    pub env: Vec<String>,
    /// Where it runs [default: here]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Marks of yours
    #[arg(long = "label", short, value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Start after this job has completed; JOB:any however it ends, JOB:not-ok if it fails
    #[arg(long, value_name = "JOB")]
    pub after: Vec<String>,
    /// One job for each index, so many at once at most: 1-100%10
    #[arg(long, value_name = "INDICES")]
    pub array: Option<String>,
    /// Wait until it is released
    #[arg(long)]
    pub hold: bool,
    /// Let only you and administrators see it
    #[arg(long)]
    pub private: bool,
}

/// `dovetail run`
#[derive(Debug, Clone, Args)]
pub struct RunJobArgs {
    /// What it needs
    #[command(flatten)]
    pub job: JobArgs,
    /// Print the id and return
    #[arg(long, short)]
    pub detach: bool,
    /// Only say what would happen
    #[arg(long)]
    pub dry_run: bool,
    /// Say nothing but what the job prints
    #[arg(long, short)]
    pub quiet: bool,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `dovetail submit`
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// The job file; - for standard input
    #[arg(value_name = "JOB.yaml", required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Only say what would happen
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the job is over, and end with its exit code
    #[arg(long)]
    pub wait: bool,
    /// Print the JSON schema of job files, and end
    #[arg(long)]
    pub schema: bool,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail jobs`
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// All jobs, also those that are over
    #[arg(long, short)]
    pub all: bool,
    /// Only mine
    #[arg(long, short)]
    pub mine: bool,
    /// Only of this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Only in these states: queued,running,failed,...
    #[arg(long, value_name = "STATES")]
    pub state: Option<String>,
    /// Only with this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only with this label
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub label: Option<String>,
    /// Only on this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Print it again every second
    #[arg(long)]
    pub watch: bool,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail job`
#[derive(Debug, Clone, Args)]
pub struct JobCommandArgs {
    /// What to do
    #[command(subcommand)]
    pub command: JobCommand,
}

/// A job and the scheduler it is at.
#[derive(Debug, Clone, Args)]
pub struct OneJobArgs {
    /// A number, a name (the newest of it), or `last` (your newest)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Jobs and the scheduler they are at.
#[derive(Debug, Clone, Args)]
pub struct SomeJobsArgs {
    /// Numbers, names, `last`, or `@mine` for all of yours that are not over
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// What can be done to a job.
#[derive(Debug, Clone, Subcommand)]
pub enum JobCommand {
    /// All that is known of it
    Show(OneJobArgs),
    /// Why it is where it is
    Explain(OneJobArgs),
    /// What it printed
    Logs(LogsArgs),
    /// End it
    Stop(SomeJobsArgs),
    /// Make it wait; one that runs is stopped and goes on from its checkpoint later
    Hold(SomeJobsArgs),
    /// Let it go on
    Release(SomeJobsArgs),
}

/// `dovetail job logs`
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// A number, a name (the newest of it), or `last` (your newest)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Go on until it is over
    #[arg(long, short)]
    pub follow: bool,
    /// Only so many lines at the end
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u64>,
    /// Of this launch [default: the last]
    #[arg(long, value_name = "N")]
    pub launch: Option<u64>,
    /// Of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail nodes`
#[derive(Debug, Clone, Args)]
pub struct NodesArgs {
    /// Print it again every second
    #[arg(long)]
    pub watch: bool,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail node`
#[derive(Debug, Clone, Args)]
pub struct NodeCommandArgs {
    /// What to do
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// What can be done to a node.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeCommand {
    /// Let it take no new jobs; those on it go on
    Drain {
        /// The node
        name: String,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Let it take jobs again
    Resume {
        /// The node
        name: String,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// `dovetail events`
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    /// Go on with what is to come
    #[arg(long, short)]
    pub follow: bool,
    /// Only those after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub since: u64,
    /// Only of this job
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// By what usage is summed up.
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
    /// By what it is summed up
    #[arg(long, value_name = "WHAT", default_value = "user")]
    pub by: UsageBy,
    /// The first day, in UTC, such as 2026-11-01
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// The last day
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail top`
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Print one screen and end
    #[arg(long)]
    pub once: bool,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail operate`
#[derive(Debug, Clone, Args)]
pub struct OperateArgs {
    /// What to change
    #[command(subcommand)]
    pub command: OperateCommand,
}

/// What an operator changes while it runs.
#[derive(Debug, Clone, Subcommand)]
pub enum OperateCommand {
    /// Another policy, from the next decision on
    Policy {
        /// A preset, also with knobs: tiresias:limits=3600
        name: String,
        /// Parts that replace its own: placement=spread
        #[arg(long = "part", value_name = "KIND=PART")]
        parts: Vec<String>,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Decide every so often (60s), or whenever something happens (events)
    Round {
        /// The length of a round, or `events`
        length: String,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Decide nothing for now; what runs goes on
    Pause(ClientArgs),
    /// Decide again
    Resume(ClientArgs),
    /// How it is run now
    Show {
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// `dovetail user`
#[derive(Debug, Clone, Args)]
pub struct UserArgs {
    /// What to do
    #[command(subcommand)]
    pub command: UserCommand,
}

/// What can be done about users.
#[derive(Debug, Clone, Subcommand)]
pub enum UserCommand {
    /// Add one, and print a client.yaml for it
    Add {
        /// Its name: that of its account, if jobs run under it
        name: String,
        /// Let it do everything
        #[arg(long)]
        admin: bool,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove one; its token opens nothing any more, its jobs go on
    Remove {
        /// Its name
        name: String,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// All of them
    List {
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// `dovetail notify`
#[derive(Debug, Clone, Args)]
pub struct NotifyArgs {
    /// What to do
    #[command(subcommand)]
    pub command: NotifyCommand,
}

/// What can be done about being told of one's jobs.
#[derive(Debug, Clone, Subcommand)]
pub enum NotifyCommand {
    /// When you are told, and how
    Show {
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Change it; what is left out stays
    Set(NotifySetArgs),
    /// Try each way, now
    Test {
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// `dovetail notify set`
#[derive(Debug, Clone, Args)]
pub struct NotifySetArgs {
    /// Of what: running,completed,failed,preempted,pending-too-long,low-gpu-use, or none
    #[arg(long, value_name = "WORDS")]
    pub on: Option<String>,
    /// By mail
    #[arg(long, value_name = "true|false")]
    pub email: Option<bool>,
    /// By a request to this address, or none
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// A job waits too long after this, such as 30m
    #[arg(long, value_name = "SPAN")]
    pub pending: Option<String>,
    /// A job hardly uses its GPUs below so many percent
    #[arg(long, value_name = "PERCENT")]
    pub low_gpu_percent: Option<f64>,
    /// Draw a new secret to sign requests with
    #[arg(long)]
    pub new_secret: bool,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail vc set`
#[derive(Debug, Clone, Args)]
pub struct VcSetArgs {
    /// The virtual cluster; it is made if it is not there
    pub name: String,
    /// GPUs that are its own
    #[arg(long, value_name = "N")]
    pub guaranteed_gpus: Option<u32>,
    /// The most its jobs of negative priority may borrow, or none for no limit
    #[arg(long, value_name = "N|none")]
    pub most_borrowed: Option<String>,
    /// GPUs that the jobs of one user may have or stand in line for, or none
    #[arg(long, value_name = "N|none")]
    pub user_cap_gpus: Option<String>,
    /// The highest priority a job may have, or none
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    pub max_priority: Option<String>,
    /// What people without a role may do: none, viewer or member
    #[arg(long, value_name = "ROLE")]
    pub everyone: Option<String>,
    /// In which order its own jobs stand in line, such as las or srsf; none for that of the policy
    #[arg(long, value_name = "ORDER")]
    pub order: Option<String>,
    /// Only say what it would do
    #[arg(long)]
    pub dry_run: bool,
    /// How to print it
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where the scheduler is
    #[command(flatten)]
    pub client: ClientArgs,
}
