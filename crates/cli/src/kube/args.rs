//! Flags of `dovetail kube`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dovetail_kube::TaskName;

/// `dovetail kube`.
#[derive(Debug, Args)]
pub struct KubeArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: Kube,
}

/// Commands of `dovetail kube`.
#[derive(Debug, Subcommand)]
pub enum Kube {
    /// Run the scheduler for pods with `schedulerName: dovetail`
    Scheduler(SchedulerArgs),
    /// Run a drop-in replacement of HiveD's scheduler extender
    Extender(ExtenderArgs),
    /// Create the Jobs of a job file, native or OpenPAI
    Submit(SubmitArgs),
    /// Run a command in a pod of a job
    Exec(ExecArgs),
    /// Convert a HiveD configuration into Kubernetes objects, on standard output
    Convert(ConvertArgs),
}

/// `dovetail kube scheduler`.
#[derive(Debug, Args)]
pub struct SchedulerArgs {
    /// Settings file (YAML); every key has a default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR")]
    pub http: Option<std::net::SocketAddr>,
    /// Address of the web page and its API, without TLS; put a proxy with TLS in front of it
    #[arg(long, value_name = "ADDR")]
    pub page: Option<std::net::SocketAddr>,
    /// Namespace of jobs that are submitted to the page [default: that of the context]
    #[arg(long, value_name = "NAME")]
    pub page_namespace: Option<String>,
    /// Run without a lease, as the only replica
    #[arg(long)]
    pub alone: bool,
    /// Policy, unless a SchedulingPolicy object sets another
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
}

/// `dovetail kube submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Job file, native or OpenPAI; - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only print the objects, and create nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the objects in this format [default: print the name of the job]
    #[arg(long, short, value_name = "FORM")]
    pub output: Option<ObjectForm>,
    /// Namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the objects [default: the name in the file and five random letters]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// User that submits the job
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "nobody"
    )]
    pub user: String,
    /// Container image of roles without one
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Name of the GPU resource; none if no device plugin advertises GPUs
    #[arg(long, value_name = "NAME", default_value = "nvidia.com/gpu")]
    pub gpu_resource: String,
    /// Maximum number of GPUs per pod of a job without roles
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    pub gpus_per_pod: u32,
    /// schedulerName of the pods
    #[arg(long, value_name = "NAME", default_value = "dovetail")]
    pub scheduler_name: String,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `dovetail kube exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Name or id of a job, or name of a pod
    #[arg(value_name = "JOB|POD")]
    pub name: String,
    /// Command and arguments, after --
    #[arg(value_name = "CMD", last = true, required = true)]
    pub command: Vec<String>,
    /// Index of the job's pod, from 0; ROLE/N if the job has several roles [default: the first pod]
    #[arg(long, value_name = "N")]
    pub task: Option<TaskName>,
    /// Container [default: the pod's default container, or its first]
    #[arg(long, short, value_name = "NAME")]
    pub container: Option<String>,
    /// Forward standard input
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Allocate a terminal
    #[arg(long, short)]
    pub tty: bool,
    /// Namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Formats of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectForm {
    /// YAML, for `kubectl apply -f -`
    Yaml,
    /// A List in JSON
    Json,
}

/// `dovetail kube convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// HiveD's configuration file, or a ConfigMap that contains it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the ClusterTopology
    #[arg(long, default_value = "cluster", value_name = "NAME")]
    pub name: String,
}

/// `dovetail kube extender`.
#[derive(Debug, Args)]
pub struct ExtenderArgs {
    /// HiveD's configuration file; reloaded when it changes, and on SIGHUP
    #[arg(
        long,
        value_name = "FILE",
        env = "CONFIG",
        hide_env_values = true,
        default_value = "./hivedscheduler.yaml"
    )]
    pub config: PathBuf,
    /// Kubeconfig file, instead of kubeConfigFilePath in the configuration [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address to listen on, instead of webServerAddress in the configuration [default: :9096]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Do not delete preempted pods; leave that to kube-scheduler, as HiveD does
    #[arg(long)]
    pub leave_eviction: bool,
    /// Log every answer
    #[arg(long, short)]
    pub verbose: bool,
}
