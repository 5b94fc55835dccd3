//! Flags of `dovetail up`, `dovetail server` and `dovetail agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::part_names::PresetNames;

/// Flags that `up` and `server` share.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Directory of the journal, certificates, tokens and logs [default: ~/.local/share/dovetail]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of the HTTP API and the web page; port 0 picks a free port [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Address that agents connect to; port 0 picks a free port [default: 127.0.0.1:7879]
    #[arg(long, value_name = "ADDR")]
    pub grpc: Option<SocketAddr>,
    /// Policy of a new cluster, see `dovetail policies`; an existing cluster keeps its policy [default: fifo-backfill:priority=true]
    #[arg(long, value_name = "NAME", value_parser = PresetNames, hide_possible_values = true)]
    pub policy: Option<String>,
    /// Serve the API without TLS, which is only allowed on a loopback address
    #[arg(long)]
    pub no_tls: bool,
}

/// `dovetail up`
#[derive(Debug, Clone, Default, Args)]
pub struct UpArgs {
    /// Flags shared with `server`.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Number of virtual GPUs to offer instead of real ones [default: the GPUs of this machine, or 4 virtual GPUs if it has no GPU]
    #[arg(long, value_name = "N")]
    pub virtual_gpus: Option<u32>,
    /// Number of simulated nodes, each with the virtual GPUs above
    #[arg(long, value_name = "N", default_value_t = 1, requires = "virtual_gpus")]
    pub nodes: u32,
    /// How to treat jobs with a container image if neither podman nor docker is installed
    #[arg(long, value_name = "HOW", default_value = "ignore")]
    pub images: ImagesArg,
}

/// How a node without a container runtime treats jobs with a container image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ImagesArg {
    /// Reject the job
    Require,
    /// Run the job without its image, and note that in its log and record
    #[default]
    Ignore,
}

impl From<ImagesArg> for dovetail_agent::Images {
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
    /// Settings file (YAML); flags take precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Flags shared with `up`.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Print the token that nodes join with, and exit
    #[arg(long)]
    pub print_join_token: bool,
}

/// `dovetail agent`
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// HOST:PORT of the scheduler's --grpc address, optionally with https://
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// Join token, needed once; visible to other users in the process list, so prefer --token-file or $DOVETAIL_JOIN_TOKEN
    #[arg(
        long,
        value_name = "TOKEN",
        env = "DOVETAIL_JOIN_TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// File with the join token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Directory of the certificate, tasks and logs, on a local disk [default: ~/.local/share/dovetail/agent]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Number of virtual GPUs to offer instead of real ones
    #[arg(long, value_name = "N")]
    pub virtual_gpus: Option<u32>,
    /// Address of this node for other nodes [default: the local address of the connection to the scheduler]
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,
    /// Rack of this node
    #[arg(long, value_name = "NAME", default_value = "")]
    pub rack: String,
    /// Label of this node; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Container runtime, or none [default: podman or docker, whichever is installed]
    #[arg(long, value_name = "PROGRAM")]
    pub container_runtime: Option<PathBuf>,
    /// How to treat jobs with a container image if neither podman nor docker is installed
    #[arg(long, value_name = "HOW", default_value = "require")]
    pub images: ImagesArg,
    /// Parent cgroup (v2) of the tasks [default: the agent's own]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
}
