//! Flags of `dovetail profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::live::args::ClientArgs;

/// `dovetail profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// Commands on profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List models with the stages of a step (data, GPU, network): those measured on the live cluster, else the built-in ones
    List {
        /// Source of the stages.
        #[command(flatten)]
        from: StageSource,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what was measured of a model on the live cluster; or draw how models interleave their stages on the same GPUs, or
    /// the speed of one model by CPU and memory
    Show(Box<ProfileShowArgs>),
    /// Write what was measured on the live cluster as a file for `simulate --profiles`
    Export {
        /// Models to write [default: all]
        #[arg(value_name = "MODEL")]
        models: Vec<String>,
        /// File to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Delete what was measured of a model on the live cluster
    Forget {
        /// The model, as `dovetail profile list` shows it
        model: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Measure the speed of a command by number of CPUs, and write a table for --sensitivity
    Run(Box<ProfileRunArgs>),
}

/// `dovetail profile run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dovetail profile run -- python train.py
  dovetail profile run --model resnet50 --pattern 'step (\\d+)' --out mine.yaml -- python train.py --steps 100000
  dovetail profile run --cpus 8,4,2,1 --dataset-gb 140 --epoch-iterations 2500 --disk-mbps 400 -- ./train.sh

The command is bound to the given number of CPUs by affinity, finds that number in DOVETAIL_CPUS, and is ended after the
measurement.")]
pub struct ProfileRunArgs {
    /// Command and arguments, after --
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<String>,
    /// Name of the model in the table [default: name of the command]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// GPUs that the command uses; amounts in the table are per GPU
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// Numbers of CPUs to measure at [default: from all downwards, where it makes a difference]
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Seconds to measure at each number of CPUs, from the first iteration on
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Seconds to wait for the first iteration
    #[arg(long, value_name = "N", default_value_t = 120.0)]
    pub patience: f64,
    /// Count lines of standard output or error that match; a capture group is read as the number of iterations so far
    /// [default: every line of standard output is an iteration]
    #[arg(long, value_name = "REGEX", conflicts_with = "progress")]
    pub pattern: Option<String>,
    /// File in which the command keeps its number of iterations
    #[arg(long, value_name = "FILE")]
    pub progress: Option<PathBuf>,
    /// Size of the data set that each epoch reads; without it, speed is assumed not to depend on memory
    #[arg(
        long,
        value_name = "GB",
        help_heading = "Memory (computed)",
        requires = "epoch_iterations"
    )]
    pub dataset_gb: Option<f64>,
    /// Iterations per epoch
    #[arg(
        long,
        value_name = "N",
        help_heading = "Memory (computed)",
        requires = "dataset_gb"
    )]
    pub epoch_iterations: Option<f64>,
    /// Cached shares of the data set to compute speeds for, in percent
    #[arg(
        long,
        value_name = "A,B,C",
        value_delimiter = ',',
        help_heading = "Memory (computed)",
        default_value = "0,10,20,30,40,50,60,70,80,90,100"
    )]
    pub cache: Vec<f64>,
    /// Disk bandwidth in MB/s; not measured, because the page cache would distort the result
    #[arg(
        long,
        value_name = "X",
        help_heading = "Memory (computed)",
        default_value_t = 500.0
    )]
    pub disk_mbps: f64,
    /// Memory bandwidth in GB/s [default: measured with one thread]
    #[arg(long, value_name = "X", help_heading = "Memory (computed)")]
    pub mem_gbps: Option<f64>,
    /// CPUs per GPU at which the speed is 1 [default: the largest number measured]
    #[arg(long, value_name = "X", help_heading = "Table")]
    pub share_cpus: Option<f64>,
    /// Memory per GPU in GB at which the speed is 1 [default: all memory of this machine]
    #[arg(long, value_name = "X", help_heading = "Table")]
    pub share_gb: Option<f64>,
    /// File to write the table to; the model is added to an existing table with the same share
    #[arg(long, value_name = "FILE", help_heading = "Table")]
    pub out: Option<PathBuf>,
    /// SVG file to draw the curve to
    #[arg(long, value_name = "FILE", help_heading = "Table")]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print no progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Source of stages.
#[derive(Debug, Args)]
pub struct StageSource {
    /// CSV file with the columns model,gpus,iteration_ms,data_ms,gpu_ms,network_ms [default: the eight models of Muri]
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub profiles: Option<PathBuf>,
    /// Trace with stage columns, in Muri's format
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The built-in models, also if there is a live cluster
    #[arg(long, conflicts_with_all = ["profiles", "trace"])]
    pub built_in: bool,
}

impl StageSource {
    /// Whether stages of a live cluster are shown if there is one.
    pub fn is_live(&self) -> bool {
        self.profiles.is_none() && self.trace.is_none() && !self.built_in
    }
}

/// `dovetail profile show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail profile show resnet18 gpt2 a2c --gpus 8
  dovetail profile show vgg16 bert --ordering worst --svg group.svg
  dovetail profile show alexnet
  dovetail profile show resnet18 --curve synergy-4 --svg curve.svg")]
pub struct ProfileShowArgs {
    /// One to four models; a model can be repeated
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<String>,
    /// Number of GPUs that the models share
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// Order of the group's members
    #[arg(long, value_name = "WHICH", default_value = "best")]
    pub ordering: OrderingArg,
    /// SVG file to write the drawing to
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Source of the stages.
    #[command(flatten)]
    pub from: StageSource,
    /// Draw the speed by CPU and memory from this table: synergy-3, -4, -5, -6 or a YAML file [default: synergy-3, for a
    /// single model without stages]
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["profiles", "trace"])]
    pub curve: Option<String>,
    /// The scheduler.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `--ordering`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderingArg {
    /// The order with the shortest period
    Best,
    /// The order with the longest period
    Worst,
}
