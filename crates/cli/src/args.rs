//! Flags as plain data. Nothing is opened or looked up here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use crate::commands::bench::kube::Rival;
use crate::live::args::{ClientArgs, OutputArgs, VcSetArgs};

/// Dovetail: a deep-learning cluster scheduler, and a simulator that runs the same code.
#[derive(Debug, Parser)]
#[command(
    name = "dovetail",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one workload under one policy
    Simulate(Box<SimulateArgs>),
    /// Run one workload under many policies, over all cores
    Compare(Box<CompareArgs>),
    /// Look at, translate and make workloads
    Trace(TraceArgs),
    /// What policies and parts there are: paper, ordering key, knowledge needed, knobs
    Policies(PoliciesArgs),
    /// Stages of models, and how jobs interleave theirs on shared GPUs
    Profile(ProfileArgs),
    /// Virtual clusters: list and change those of a cluster that runs, check and compare configurations
    Vc(VcArgs),
    /// Averages out of job files: ours, or job.csv of Muri
    Calc(CalcArgs),
    /// Make one self-contained HTML page of earlier runs
    Report(ReportArgs),
    /// Run a published experiment, with the published figure beside ours
    Reproduce(ReproduceArgs),
    /// Measure the simulator and the engine on this machine
    Bench(BenchArgs),
    /// The live cluster
    #[command(flatten)]
    Live(crate::live::LiveCommand),
    /// Dovetail on Kubernetes
    Kube(crate::kube::args::KubeArgs),
    /// Turn job files of other systems into ours
    Convert(ConvertArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// The workload, the cluster and how the run goes: flags, or keys of a scenario file.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunArgs {
    /// A trace to replay: .csv .json .jsonl .trace, also .gz or .zst; without it a workload is generated
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub trace: Option<PathBuf>,
    /// The trace's format; detected if not given [philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, native, ...]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub trace_format: Option<String>,
    /// The generator for a made-up workload: philly-like, blox or blox-small [default: philly-like]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub generate: Option<String>,
    /// Jobs to generate, or the first so many of a trace [default: 2000 generated, all of a trace]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub jobs: Option<u64>,
    /// Mean rate of arrival, for generated workloads and to stretch a trace
    #[arg(
        long,
        value_name = "X",
        help_heading = "Workload",
        allow_negative_numbers = true
    )]
    pub jobs_per_hour: Option<f64>,
    /// Mean GPUs asked for as a multiple of the cluster, instead of a rate [default: 0.9 for generated workloads]
    #[arg(
        long,
        value_name = "X",
        help_heading = "Workload",
        conflicts_with = "jobs_per_hour"
    )]
    pub load: Option<f64>,
    /// Let jobs run on LOW to HIGH times the GPUs they ask for (0.5..4), for elastic policies
    #[arg(long, value_name = "LOW..HIGH", help_heading = "Workload")]
    pub elastic: Option<String>,
    /// Share of a job's work that runs in parallel (Amdahl), for elastic jobs [default: 1, linear speed-up]
    #[arg(long, value_name = "X", help_heading = "Workload")]
    pub parallel_share: Option<f64>,
    /// Seed of everything random [default: 1]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub seed: Option<u64>,
    /// 32x4 (nodes x GPUs), pool:534 (GPUs without nodes), or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv [default: 16x8]
    #[arg(long, value_name = "SPEC", help_heading = "Cluster")]
    pub cluster: Option<String>,
    /// Outages: a CSV of node,down_s,up_s
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub failures: Option<PathBuf>,
    /// Mean time between failures of one node, for random outages (for example 30d)
    #[arg(long, value_name = "SPAN", help_heading = "Cluster")]
    pub mtbf: Option<String>,
    /// How long a random outage lasts [default: 1h]
    #[arg(long, value_name = "SPAN", help_heading = "Cluster")]
    pub repair: Option<String>,
    /// Who gets in, instead of the preset's: feasible, accept-all, load:1.2, caps:tenant=64
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub admission: Option<String>,
    /// Who is next
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub order: Option<String>,
    /// How the line is walked: strict, backfill, easy, preempt, replan
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub discipline: Option<String>,
    /// How wide: rigid, elastic, optimus
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub sizing: Option<String>,
    /// Who shares GPUs: none
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub grouping: Option<String>,
    /// Which GPUs: consolidate, spread, first-free, random, rack-aware
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub placement: Option<String>,
    /// What a tenant may use: none, quota:a=8,b=16+4 (GPUs guaranteed, most borrowed), quota:FILE, or cells:FILE (virtual clusters)
    #[arg(long, value_name = "PART", help_heading = "Parts of the policy")]
    pub tenancy: Option<String>,
    /// What the policy may know of remaining time: none, estimate or oracle [default: what the policy needs, exactly]
    #[arg(long, value_name = "LEVEL", help_heading = "How the run goes")]
    pub knowledge: Option<KnowledgeArg>,
    /// How wrong estimates are: standard deviation of their logarithm [default: 0.5]
    #[arg(long, value_name = "X", help_heading = "How the run goes")]
    pub estimate_error: Option<f64>,
    /// Decide when something happens (events) or every round (rounds:300s) [default: events]
    #[arg(long, value_name = "CLOCK", help_heading = "How the run goes")]
    pub clock: Option<String>,
    /// Time paid when a job is started again after it was stopped [default: 0s]
    #[arg(long, value_name = "SPAN", help_heading = "How the run goes")]
    pub restart_cost: Option<String>,
    /// How often jobs write checkpoints; work since the last one is lost with a node [default: no work is lost]
    #[arg(long, value_name = "SPAN", help_heading = "How the run goes")]
    pub checkpoint: Option<String>,
    /// Time each checkpoint takes [default: 0s]
    #[arg(long, value_name = "SPAN", help_heading = "How the run goes")]
    pub checkpoint_cost: Option<String>,
    /// Speed of a job that spans nodes, as a factor of full speed [default: 1]
    #[arg(long, value_name = "X", help_heading = "How the run goes")]
    pub spread_penalty: Option<String>,
    /// Speeds by model (on several nodes, on each kind of GPU): builtin, or a YAML file [default: full speed]
    #[arg(long, value_name = "FILE", help_heading = "How the run goes")]
    pub profiles: Option<String>,
    /// Speed of models over CPU and memory: synergy-3, -4, -5, -6, a YAML file, or none [default: that of the cluster's
    /// CPUs per GPU, where there is one]
    #[arg(long, value_name = "TABLE", help_heading = "How the run goes")]
    pub sensitivity: Option<String>,
    /// Set every switch so that the result equals that system's, quirks included
    #[arg(long, value_name = "SYSTEM", help_heading = "How the run goes")]
    pub compat: Option<CompatArg>,
    /// Average only over jobs with these ids, both ends included (0..99); all others still run
    #[arg(long, value_name = "A..B", help_heading = "How the run goes")]
    pub track: Option<String>,
    /// Check every invariant of the engine after every step
    #[arg(long, help_heading = "How the run goes")]
    pub check: bool,
    /// Write results to this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write the files of another system beside ours into the directory of --out
    #[arg(long, value_name = "SYSTEM", help_heading = "Output")]
    pub emit: Option<EmitArg>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// `--knowledge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KnowledgeArg {
    /// Nothing
    None,
    /// An estimate that may be wrong
    Estimate,
    /// The truth
    Oracle,
}

/// `--compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompatArg {
    /// Blox (EuroSys'24): 300 s rounds, whole rounds of progress, its placement and its walk
    Blox,
    /// Muri's simulator (SIGCOMM'22): srtf, srsf, tiresias, antman, muri-s and muri-l with its time model and its ties
    Muri,
    /// Synergy's simulator (OSDI'22): fifo, srtf, las, ftf, drf and tetris, each with --sizing proportional, greedy or tune
    Synergy,
}

/// `--emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmitArg {
    /// Muri's simulator: job.csv and cluster.csv
    Muri,
}

/// `dovetail simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail simulate --policy srsf
  dovetail simulate --trace philly.csv.gz --cluster 67x8 --policy tiresias:limits=3600 --out out/tiresias
  dovetail simulate scenario.yaml --seed 42 --check")]
pub struct SimulateArgs {
    /// A YAML file holding any of the flags below as keys (policy: srsf, cluster: 16x8, ...); flags win over it
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// A preset: see `dovetail policies` [default: fifo-backfill]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Write the workload of this run as a replay file of Synergy, for `--trace FILE --trace-format synergy`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Show where this job is and what keeps it there, whenever that changes; may be given several times
    #[arg(long, value_name = "JOB", conflicts_with = "json")]
    pub explain: Vec<String>,
    /// The rest.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `dovetail compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail compare
  dovetail compare --policies fifo,srsf,tiresias:limits=3600 --loads 0.7,0.9,1.1 --seeds 1..5
  dovetail compare --trace philly.csv.gz --cluster 67x8 --policies fifo-easy,gittins --out out/philly")]
pub struct CompareArgs {
    /// A YAML file holding any of the flags below as keys; flags win over it
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Presets, separated by commas [default: fifo,fifo-backfill,fifo-easy,sjf,srtf,srsf,las,tiresias,gittins]
    #[arg(long, value_name = "A,B,C")]
    pub policies: Option<String>,
    /// Loads to run at, separated by commas
    #[arg(long, value_name = "X,Y", conflicts_with_all = ["load", "jobs_per_hour"])]
    pub loads: Option<String>,
    /// Seeds to run with: 1..5 or 1,2,3; averages over them are shown with 95 % confidence
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<String>,
    /// Threads to use [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// The rest.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `dovetail trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// What is in a trace: jobs, widths, run times, arrivals, tenants
    Info {
        /// The trace
        file: PathBuf,
        /// Its format; detected if not given
        #[arg(long, value_name = "NAME")]
        trace_format: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Translate a trace; the formats follow from the flags, or from the names of the files
    Convert {
        /// The trace to read
        input: PathBuf,
        /// The file to write (- is standard output); .gz and .zst compress
        output: PathBuf,
        /// The format to read; detected if not given
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// The format to write [default: native, JSONL if the name ends so]
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
    },
    /// Make up a workload
    Generate(Box<GenerateArgs>),
    /// A live cluster's past as a workload, and how well the simulator tells it
    FromJournal(FromJournalArgs),
}

/// `dovetail trace from-journal`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail trace from-journal ~/.local/share/dovetail/journal --out past.csv
  dovetail trace from-journal /var/lib/dovetail/journal --fidelity")]
pub struct FromJournalArgs {
    /// The folder of the journal, of a server that runs or has ended
    pub folder: PathBuf,
    /// The trace to write, in native form (- is standard output)
    #[arg(long, value_name = "FILE", required_unless_present = "fidelity")]
    pub out: Option<PathBuf>,
    /// Replay it under the same policy on the same nodes, and compare each job's completion time with the live one
    #[arg(long)]
    pub fidelity: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `dovetail trace generate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail trace generate --jobs 10000 --out jobs.csv
  dovetail trace generate --generator blox --arrivals bursty --jobs-per-hour 8 --out burst.csv.gz")]
pub struct GenerateArgs {
    /// philly-like, blox or blox-small
    #[arg(long, value_name = "NAME", default_value = "philly-like")]
    pub generator: String,
    /// How many jobs
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub jobs: u64,
    /// The seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Mean rate of arrival
    #[arg(long, value_name = "X")]
    pub jobs_per_hour: Option<f64>,
    /// Mean GPUs asked for as a multiple of --cluster-gpus
    #[arg(
        long,
        value_name = "X",
        requires = "cluster_gpus",
        conflicts_with = "jobs_per_hour"
    )]
    pub load: Option<f64>,
    /// GPUs that --load refers to
    #[arg(long, value_name = "N")]
    pub cluster_gpus: Option<u32>,
    /// When jobs come in: philly, poisson, diurnal, bursty
    #[arg(long, value_name = "PART")]
    pub arrivals: Option<String>,
    /// How long they run: philly, blox, blox-small, fixed:600, lognormal, exponential
    #[arg(long, value_name = "PART")]
    pub durations: Option<String>,
    /// How many GPUs they ask for: philly, or 1:0.7,2:0.1,4:0.15,8:0.05
    #[arg(long, value_name = "MIX")]
    pub gpus: Option<String>,
    /// The file to write; its name says the format and the compression
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
    /// The format to write [default: native, JSONL if the name ends so]
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
}

/// `dovetail policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// A preset or a part; all of them if not given
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `dovetail profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// The stages of each model: data, GPU, network
    List {
        /// Whose stages.
        #[command(flatten)]
        from: StageSource,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Draw how models interleave their stages on the same GPUs, or the speed of one over CPU and memory
    Show(Box<ProfileShowArgs>),
    /// Measure how fast a command runs with how many CPUs, and write it as a table for --sensitivity
    Run(Box<ProfileRunArgs>),
}

/// `dovetail profile run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail profile run -- python train.py
  dovetail profile run --model resnet50 --pattern 'step (\\d+)' --out mine.yaml -- python train.py --steps 100000
  dovetail profile run --cpus 8,4,2,1 --dataset-gb 140 --epoch-iterations 2500 --disk-mbps 400 -- ./train.sh

The command is bound to so many CPUs (affinity; DOVETAIL_CPUS tells it the number) and ended when the time is over.")]
pub struct ProfileRunArgs {
    /// The command and its arguments, after --
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<String>,
    /// Name of the model in the table [default: the name of the command]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// GPUs the command uses: amounts in the table are for each of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// Measure at these numbers of CPUs, whatever comes out [default: from all downwards, where it makes a difference]
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Watch it for so many seconds at each point, from its first iteration on
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// The first iteration may take so many seconds
    #[arg(long, value_name = "N", default_value_t = 120.0)]
    pub patience: f64,
    /// Lines of either output that match are iterations; with a group, the group is their number so far
    /// [default: every line of standard output is one]
    #[arg(long, value_name = "REGEX", conflicts_with = "progress")]
    pub pattern: Option<String>,
    /// The command keeps the number of its iterations so far in this file
    #[arg(long, value_name = "FILE")]
    pub progress: Option<PathBuf>,
    /// Size of the data set read in each epoch; without it memory is taken not to matter
    #[arg(
        long,
        value_name = "GB",
        help_heading = "Memory, by arithmetic",
        requires = "epoch_iterations"
    )]
    pub dataset_gb: Option<f64>,
    /// Iterations of one epoch
    #[arg(
        long,
        value_name = "N",
        help_heading = "Memory, by arithmetic",
        requires = "dataset_gb"
    )]
    pub epoch_iterations: Option<f64>,
    /// Shares of the data set that a cache could hold, in percent
    #[arg(
        long,
        value_name = "A,B,C",
        value_delimiter = ',',
        help_heading = "Memory, by arithmetic",
        default_value = "0,10,20,30,40,50,60,70,80,90,100"
    )]
    pub cache: Vec<f64>,
    /// Bandwidth of the disk in MB/s; it is not measured, since the cache of the system would be measured with it
    #[arg(
        long,
        value_name = "X",
        help_heading = "Memory, by arithmetic",
        default_value_t = 500.0
    )]
    pub disk_mbps: f64,
    /// Bandwidth of memory in GB/s [default: measured, one thread]
    #[arg(long, value_name = "X", help_heading = "Memory, by arithmetic")]
    pub mem_gbps: Option<f64>,
    /// CPUs beside each GPU at which speed is 1 [default: the most that is measured]
    #[arg(long, value_name = "X", help_heading = "The table")]
    pub share_cpus: Option<f64>,
    /// GB beside each GPU at which speed is 1 [default: all memory of this machine]
    #[arg(long, value_name = "X", help_heading = "The table")]
    pub share_gb: Option<f64>,
    /// Write the table to this file; a table of the same share gets the model added
    #[arg(long, value_name = "FILE", help_heading = "The table")]
    pub out: Option<PathBuf>,
    /// Draw the curve into this file, as SVG
    #[arg(long, value_name = "FILE", help_heading = "The table")]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where stages come from.
#[derive(Debug, Args)]
pub struct StageSource {
    /// A CSV of model,gpus,iteration_ms,data_ms,gpu_ms,network_ms [default: the eight models of Muri]
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub profiles: Option<PathBuf>,
    /// A trace with stage columns (Muri's)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// `dovetail profile show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail profile show resnet18 gpt2 a2c --gpus 8
  dovetail profile show vgg16 bert --ordering worst --svg group.svg
  dovetail profile show alexnet
  dovetail profile show resnet18 --curve synergy-4 --svg curve.svg")]
pub struct ProfileShowArgs {
    /// One to four models; one may be there several times
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<String>,
    /// GPUs they run on
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub gpus: u32,
    /// The order of the members: the best one or the worst one
    #[arg(long, value_name = "WHICH", default_value = "best")]
    pub ordering: OrderingArg,
    /// Write the drawing to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Whose stages.
    #[command(flatten)]
    pub from: StageSource,
    /// Draw speed over CPU and memory, out of synergy-3, -4, -5, -6 or a YAML file [default: synergy-3, for a single model
    /// without stages]
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["profiles", "trace"])]
    pub curve: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `--ordering`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderingArg {
    /// The order with the shortest period
    Best,
    /// The order with the longest
    Worst,
}

/// `dovetail calc`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dovetail calc out/srsf/jobs.csv
  dovetail calc muri/result/job.csv out/muri-s/job.csv.gz --json")]
pub struct CalcArgs {
    /// Job files: jobs.csv of `simulate --out`, or job.csv of Muri's simulator or cluster; .gz and .zst too
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
    /// The page to write [default: report.html in the first directory]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The page's title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

/// `dovetail reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// The experiment, such as blox-fig6, jct-bound or muri-fig9; a list if not given
    pub name: Option<String>,
    /// Write tables and figures to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the public traces and results are [default: $DOVETAIL_SHARED/data, or ../shared/data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The seed, for experiments on generated workloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// All runs, also those that take minutes
    #[arg(long)]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
}

/// `dovetail bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value = "sim")]
    pub what: BenchArg,
    /// A trace instead of the generated Philly-like workload (82,247 jobs), or instead of Muri's
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Leave out the million jobs; of kube the ten thousand pods
    #[arg(long)]
    pub short: bool,
    /// How often each scheduler is measured (kube)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Only this one; can be given again (kube)
    #[arg(long, value_enum, value_name = "WHO")]
    pub only: Vec<Rival>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `dovetail bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchArg {
    /// Replays and the rounds of a large cluster
    Sim,
    /// Sharing GPUs: a regrouping, and all policies over Muri's traces
    Grouping,
    /// Cells of virtual clusters: decisions, failures and starts, beside HiveD's figures
    Cells,
    /// CPU and memory by need: rounds on 2,048 and 16,384 GPUs, beside Synergy's simulator
    Sizing,
    /// The live cluster: agents, submissions, starts and restarts over real sockets and a real journal
    Live,
    /// Kubernetes: this scheduler, kube-scheduler and a binder that decides nothing, on a real control plane
    Kube,
    /// The API and its pages: lists over a million jobs, a wide job, and a thousand pages that watch
    Web,
}

/// `dovetail vc`.
#[derive(Debug, Args)]
pub struct VcArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: VcCommand,
}

/// What to do with virtual clusters.
#[derive(Debug, Subcommand)]
pub enum VcCommand {
    /// Check a configuration (HiveD's YAML) and draw its physical and virtual cells
    #[command(after_help = "Examples:
  dovetail vc check cluster.yaml
  dovetail vc check cluster.yaml --json | jq .virtual_clusters")]
    Check {
        /// The configuration
        #[arg(value_name = "FILE")]
        config: PathBuf,
        /// Draw every cell, however many there are
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Virtual clusters of a cluster that runs
    List {
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Make or change one of a cluster that runs
    #[command(after_help = "Examples:
  dovetail vc set vision --guaranteed-gpus 16 --dry-run
  dovetail vc set vision --user-cap-gpus 8 --order las
  dovetail vc set vision --user-cap-gpus none")]
    Set(Box<VcSetArgs>),
    /// Remove one of a cluster that runs
    Remove {
        /// The virtual cluster
        name: String,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Set all of a cluster that runs from a file: mode and vcs, or HiveD's YAML
    Apply {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// How to print it
        #[command(flatten)]
        output: OutputArgs,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Say what a new configuration changes, and what becomes of running jobs or groups
    #[command(after_help = "Examples:
  dovetail vc diff next.yaml                 on the cluster that runs, as `vc apply` would
  dovetail vc diff now.yaml next.yaml
  dovetail vc diff now.yaml next.yaml --running scenario.json")]
    Diff {
        /// The configuration now; if there is no other, the one to come for the cluster that runs
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The configuration to come
        #[arg(value_name = "NEW")]
        new: Option<PathBuf>,
        /// Where the scheduler is
        #[command(flatten)]
        client: ClientArgs,
        /// What runs now: a scenario that is played with the old configuration first
        #[arg(long, value_name = "SCENARIO")]
        running: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Play scenarios recorded from HiveD and print the first difference; exit code 1 if there is one
    #[command(after_help = "Examples:
  dovetail vc replay scenarios/lab6__4-gang.json
  dovetail vc replay scenarios/*.json --configs configs
  dovetail vc replay scenarios/lab6__1-vc-safety.json --explain")]
    Replay {
        /// Scenario files
        #[arg(required = true, value_name = "SCENARIO")]
        scenarios: Vec<PathBuf>,
        /// Where the configurations are [default: configs beside the folder of each scenario]
        #[arg(long, value_name = "DIR")]
        configs: Option<PathBuf>,
        /// Say for each pod that waits why it does, and what would let it start
        #[arg(long)]
        explain: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `dovetail convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// From which system
    #[command(subcommand)]
    pub from: ConvertFrom,
}

/// Systems whose job files are known.
#[derive(Debug, Subcommand)]
pub enum ConvertFrom {
    /// OpenPAI, protocol version 2; what is left out or is not quite the same is told on standard error
    Pai(ConvertPaiArgs),
}

/// `dovetail convert pai`.
#[derive(Debug, Args)]
pub struct ConvertPaiArgs {
    /// The job file; - for standard input
    #[arg(value_name = "JOB.yaml")]
    pub file: PathBuf,
    /// How to print it
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    pub output: FileForm,
    /// The same as -o json
    #[arg(long)]
    pub json: bool,
    /// Leave out keys that are not known, and leave templates that name nothing as they are, instead of refusing the file
    #[arg(long)]
    pub lenient: bool,
    /// Do not tell what is left out
    #[arg(long, short)]
    pub quiet: bool,
}

/// Forms of a job file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FileForm {
    /// YAML
    #[default]
    Yaml,
    /// JSON
    Json,
}

/// `dovetail completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

impl RunArgs {
    /// These flags, with those of a scenario file where a flag was not given.
    pub fn over(self, file: RunArgs) -> RunArgs {
        RunArgs {
            trace: self.trace.or(file.trace),
            trace_format: self.trace_format.or(file.trace_format),
            generate: self.generate.or(file.generate),
            jobs: self.jobs.or(file.jobs),
            jobs_per_hour: if self.load.is_some() {
                None
            } else {
                self.jobs_per_hour.or(file.jobs_per_hour)
            },
            load: if self.jobs_per_hour.is_some() {
                None
            } else {
                self.load.or(file.load)
            },
            elastic: self.elastic.or(file.elastic),
            parallel_share: self.parallel_share.or(file.parallel_share),
            seed: self.seed.or(file.seed),
            cluster: self.cluster.or(file.cluster),
            failures: self.failures.or(file.failures),
            mtbf: self.mtbf.or(file.mtbf),
            repair: self.repair.or(file.repair),
            admission: self.admission.or(file.admission),
            order: self.order.or(file.order),
            discipline: self.discipline.or(file.discipline),
            sizing: self.sizing.or(file.sizing),
            grouping: self.grouping.or(file.grouping),
            placement: self.placement.or(file.placement),
            tenancy: self.tenancy.or(file.tenancy),
            knowledge: self.knowledge.or(file.knowledge),
            estimate_error: self.estimate_error.or(file.estimate_error),
            clock: self.clock.or(file.clock),
            restart_cost: self.restart_cost.or(file.restart_cost),
            checkpoint: self.checkpoint.or(file.checkpoint),
            checkpoint_cost: self.checkpoint_cost.or(file.checkpoint_cost),
            spread_penalty: self.spread_penalty.or(file.spread_penalty),
            profiles: self.profiles.or(file.profiles),
            sensitivity: self.sensitivity.or(file.sensitivity),
            compat: self.compat.or(file.compat),
            track: self.track.or(file.track),
            check: self.check || file.check,
            out: self.out.or(file.out),
            emit: self.emit.or(file.emit),
            json: self.json || file.json,
            quiet: self.quiet || file.quiet,
        }
    }
}
