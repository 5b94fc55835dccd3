//! Flags of `dovetail run` and `dovetail submit`.

use std::path::PathBuf;

use clap::Args;

use super::{ClientArgs, OutputArgs};

/// The request of a job, as flags.
#[derive(Debug, Clone, Default, Args)]
pub struct JobArgs {
    /// Number of GPUs
    #[arg(long, short = 'g', value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// Name of the job [default: name of the command]
    #[arg(long, short, value_name = "NAME")]
    pub name: Option<String>,
    /// Virtual cluster that the job belongs to
    #[arg(long, visible_alias = "tenant", value_name = "NAME")]
    pub vc: Option<String>,
    /// Priority; larger is more urgent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Required GPU type
    #[arg(long, value_name = "TYPE")]
    pub gpu_type: Option<String>,
    /// Minimum number of GPUs of an elastic job
    #[arg(long, value_name = "N")]
    pub min_gpus: Option<u32>,
    /// Maximum number of GPUs of an elastic job
    #[arg(long, value_name = "N")]
    pub max_gpus: Option<u32>,
    /// CPUs per GPU
    #[arg(long, value_name = "N")]
    pub cpus_per_gpu: Option<f64>,
    /// Memory per GPU in MiB, or with a unit such as 16G
    #[arg(long, value_name = "SIZE")]
    pub memory_per_gpu: Option<String>,
    /// Processes to start: per-node, per-gpu (as torchrun does), or first-node (as mpirun does)
    #[arg(long, value_name = "HOW")]
    pub processes: Option<String>,
    /// Maximum run time, such as 2h
    #[arg(long, value_name = "SPAN")]
    pub time_limit: Option<String>,
    /// Expected run time on these GPUs, alone; some policies use it
    #[arg(long, value_name = "SPAN")]
    pub expected: Option<String>,
    /// Model that the job trains; jobs of one model share what is measured
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Stages of one iteration, alone, such as data=80ms,gpu=20ms,net=0ms
    #[arg(long, value_name = "STAGES")]
    pub stages: Option<String>,
    /// When the job should have ended: a time such as 2026-11-17T18:00:00Z, or a duration such as 8h
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Time between SIGTERM and SIGKILL when the job is stopped
    #[arg(long, value_name = "SPAN")]
    pub grace: Option<String>,
    /// Maximum number of restarts after the job itself fails
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Environment variable; without =VALUE it is copied from this shell; can be repeated
    #[arg(long, short, value_name = "KEY[=VALUE]")]
    pub env: Vec<String>,
    /// Working directory [default: the current directory]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Label of the job; can be repeated
    #[arg(long = "label", short, value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Start after this job has completed; JOB:any after it has ended, JOB:not-ok if it fails
    #[arg(long, value_name = "JOB")]
    pub after: Vec<String>,
    /// Submit an array, one job per index, with an optional limit of running jobs: 1-100%10
    #[arg(long, value_name = "INDICES")]
    pub array: Option<String>,
    /// Hold the job until it is released
    #[arg(long)]
    pub hold: bool,
    /// Show the job only to you and administrators
    #[arg(long)]
    pub private: bool,
}

/// `dovetail run`
#[derive(Debug, Clone, Args)]
pub struct RunJobArgs {
    /// The request.
    #[command(flatten)]
    pub job: JobArgs,
    /// Print the job id and exit
    #[arg(long, short)]
    pub detach: bool,
    /// Only print what would happen
    #[arg(long)]
    pub dry_run: bool,
    /// Print nothing but the output of the job
    #[arg(long, short)]
    pub quiet: bool,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Command and arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `dovetail submit`
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// Job file, - for standard input
    #[arg(value_name = "JOB.yaml", required_unless_present_any = ["schema", "trace"], conflicts_with = "trace")]
    pub file: Option<PathBuf>,
    /// Only print what would happen
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the job has ended, and exit with its exit code
    #[arg(long)]
    pub wait: bool,
    /// Print the JSON schema of job files, and exit
    #[arg(long)]
    pub schema: bool,
    /// The jobs of a trace.
    #[command(flatten)]
    pub trace: TraceJobArgs,
    /// Output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `dovetail submit --trace`
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Trace")]
pub struct TraceJobArgs {
    /// Submit the jobs of a trace, at the times of the trace: any format that `simulate --trace` reads
    #[arg(long, value_name = "FILE", requires = "command")]
    pub trace: Option<PathBuf>,
    /// Format of the trace [default: detected]
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    pub trace_format: Option<String>,
    /// Submit only the first jobs of the trace
    #[arg(long, value_name = "N", requires = "trace")]
    pub jobs: Option<u32>,
    /// Factor on submission times, run times and iterations
    #[arg(long, value_name = "F", default_value_t = 1.0, requires = "trace")]
    pub scale: f64,
    /// Submit all jobs at once
    #[arg(long, requires = "trace")]
    pub now: bool,
    /// Maximum number of GPUs of a job; jobs that ask for more get this many
    #[arg(long, value_name = "N", requires = "trace", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_gpus: Option<u32>,
    /// Virtual cluster that the jobs belong to
    #[arg(long, value_name = "NAME", requires = "trace")]
    pub vc: Option<String>,
    /// Working directory of the jobs [default: the current directory]
    #[arg(long, short = 'C', value_name = "DIR", requires = "trace")]
    pub workdir: Option<PathBuf>,
    /// Command of the jobs, with placeholders: {model}, {batch_size}, {iterations}, {gpus}, {duration_s}, {job}, {user}, {tenant} and the other columns of the trace
    #[arg(last = true, value_name = "COMMAND", requires = "trace")]
    pub command: Vec<String>,
}
