//! A real Kubernetes control plane on this machine, for tests and benchmarks: etcd and kube-apiserver, and where they are
//! asked for kube-controller-manager and kube-scheduler, as processes on loopback that end with the value.
//!
//! There are no machines behind it: [`create_nodes`](Lab::create_nodes) makes nodes that are only an object, and a
//! [`Kubelet`] stands in for all of theirs. A [`Machine`] is a real kubelet with a real containerd, where that can be. The processes are one binary of our own making
//! (`tests/kubernetes`), which `scripts/kube-control-plane` builds once for each version; where there is no Go to build
//! it with, tests say `SKIPPED` and pass.

mod binary;
mod identity;
mod kubeconfig;
mod kubelet;
mod lab;
mod line;
mod machine;
mod node_api;
mod node_exec;
mod nodes;
mod part;
mod plain;
mod pods;
mod settings;
mod tools;

pub use binary::{binary, binary_or_skip};
pub use identity::{Authority, Identity};
pub use kubelet::{Counts, EXIT_CODE, Kubelet, RUN_SECONDS};
pub use lab::{Lab, shared};
pub use line::Line;
pub use machine::{BUSYBOX, Machine};
pub use node_api::NodeApi;
pub use nodes::{NodeShape, create_nodes, set_ready};
pub use part::{Part, cpu_of};
pub use plain::Answer;
pub use pods::Behaviour;
pub use settings::{Scheduler, Settings};
pub use tools::helm;

use std::path::PathBuf;

/// Why there is no control plane.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LabError {
    /// The binary cannot be had here: a test skips.
    #[error("{0}")]
    Unavailable(String),
    /// It could be had, but does not build.
    #[error("the Kubernetes control plane does not build: {0}")]
    Build(String),
    /// A file or folder.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A key or a certificate.
    #[error("{what}: {why}")]
    Certificate {
        /// Which.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A component does not run.
    #[error("{part} {why}; the end of its log:\n{log}")]
    Part {
        /// Which.
        part: Part,
        /// What it does instead.
        why: String,
        /// The last lines it wrote.
        log: String,
    },
    /// A node does not run.
    #[error("node {name} {why}; the ends of its logs:\n{log}")]
    Machine {
        /// Which.
        name: String,
        /// What it does instead.
        why: String,
        /// The last lines that were written.
        log: String,
    },
    /// A request got no answer.
    #[error("{request}: {why}")]
    Request {
        /// Method and path.
        request: String,
        /// What went wrong.
        why: String,
    },
}

impl LabError {
    fn file(path: &std::path::Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |e| Self::File {
            path: path.clone(),
            why: e.to_string(),
        }
    }
}
