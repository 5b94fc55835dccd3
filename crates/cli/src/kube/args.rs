//! Flags of `dovetail kube`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// There is no other replica: no lease is asked for
    #[arg(long)]
    pub alone: bool,
    /// The policy, until a SchedulingPolicy says otherwise
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
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
