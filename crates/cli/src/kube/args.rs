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
    /// Run in the place of HiveD's scheduler extender
    Extender(ExtenderArgs),
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
