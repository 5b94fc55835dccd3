//! Flags of `dovetail kube`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dovetail_kube::TaskName;

/// `dovetail kube`.
#[derive(Debug, Args)]
pub struct KubeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Kube,
}

/// Commands on Kubernetes.
#[derive(Debug, Subcommand)]
pub enum Kube {
    /// Run the scheduler: pods with `schedulerName: dovetail` are started, gangs whole or not at all
    Scheduler(SchedulerArgs),
    /// Run in the place of HiveD's scheduler extender
    Extender(ExtenderArgs),
    /// Make the Jobs of a job file, also of one of OpenPAI
    Submit(SubmitArgs),
    /// Run a command in a pod of a job
    Exec(ExecArgs),
    /// Turn HiveD's configuration into objects of Kubernetes, on standard output
    Convert(ConvertArgs),
}

/// `dovetail kube scheduler`.
#[derive(Debug, Args)]
pub struct SchedulerArgs {
    /// Settings; every key has a usual value
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Another context of the kubeconfig than the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Where to answer /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR")]
    pub http: Option<std::net::SocketAddr>,
    /// Where to answer the page and its API; over TLS only if something before it does
    #[arg(long, value_name = "ADDR")]
    pub page: Option<std::net::SocketAddr>,
    /// The namespace of jobs that are sent to the page [default: that of the context]
    #[arg(long, value_name = "NAME")]
    pub page_namespace: Option<String>,
    /// There is no other replica: no lease is asked for
    #[arg(long)]
    pub alone: bool,
    /// The policy, until a SchedulingPolicy says otherwise
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
}

/// `dovetail kube submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The job file, ours or one of OpenPAI; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only print the objects
    #[arg(long)]
    pub dry_run: bool,
    /// How objects are printed; without it, the name of the job
    #[arg(long, short, value_name = "FORM")]
    pub output: Option<ObjectForm>,
    /// The namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The name of the objects [default: that of the file and five letters more]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Who sends it
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "nobody"
    )]
    pub user: String,
    /// The image of whatever names none
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The resource that is a GPU; `none` where no device plugin counts them
    #[arg(long, value_name = "NAME", default_value = "nvidia.com/gpu")]
    pub gpu_resource: String,
    /// A job without roles has pods of so many GPUs at most
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    pub gpus_per_pod: u32,
    /// Who looks after its pods
    #[arg(long, value_name = "NAME", default_value = "dovetail")]
    pub scheduler_name: String,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Another context of the kubeconfig than the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `dovetail kube exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The name or the number of a job, or the name of a pod
    #[arg(value_name = "JOB|POD")]
    pub name: String,
    /// The command and its arguments, after `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    pub command: Vec<String>,
    /// Which pod of the job, from 0 on; ROLE/N where it has several roles [default: the first]
    #[arg(long, value_name = "N")]
    pub task: Option<TaskName>,
    /// The container [default: the pod's usual one, or its first]
    #[arg(long, short, value_name = "NAME")]
    pub container: Option<String>,
    /// Pass on standard input
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Give it a terminal
    #[arg(long, short)]
    pub tty: bool,
    /// The namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Another context of the kubeconfig than the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// How objects are printed.
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
    /// HiveD's file, or a ConfigMap that holds it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The name of the ClusterTopology
    #[arg(long, default_value = "cluster", value_name = "NAME")]
    pub name: String,
}

/// `dovetail kube extender`.
#[derive(Debug, Args)]
pub struct ExtenderArgs {
    /// HiveD's configuration file; read again when it changes, or on SIGHUP
    #[arg(
        long,
        value_name = "FILE",
        env = "CONFIG",
        hide_env_values = true,
        default_value = "./hivedscheduler.yaml"
    )]
    pub config: PathBuf,
    /// The kubeconfig, before kubeConfigFilePath of the file [default: KUBECONFIG, ~/.kube/config, the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where to listen, before webServerAddress of the file [default: :9096]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Never delete a pod that has to make room: leave that to kube-scheduler, as HiveD does
    #[arg(long)]
    pub leave_eviction: bool,
    /// Say every answer
    #[arg(long, short)]
    pub verbose: bool,
}
