//! A real Kubernetes control plane on this machine, for tests and benchmarks.
//!
//! A [`Lab`] runs etcd and kube-apiserver, and on request kube-controller-manager and kube-scheduler, as processes on
//! loopback that end when the value is dropped. They are one binary (`tests/kubernetes`), which
//! `scripts/kube-control-plane` builds once for each version. Without Go to build it, tests print `SKIPPED` and pass.
//!
//! Nodes are objects without a machine ([`create_nodes`](Lab::create_nodes)), and one [`Kubelet`] simulates the kubelets of
//! all of them. A [`Machine`] is a node with a real kubelet and a real containerd, on machines that support it.

mod arguments;
mod binary;
mod component;
mod error;
mod folder;
mod http;
mod identity;
mod kubeconfig;
mod kubelet;
mod lab;
mod machine;
mod machine_support;
mod node_api;
mod node_exec;
mod nodes;
mod pods;
mod ports;
mod proxy;
mod settings;
mod subprocess;
mod tools;

pub use binary::{binary, binary_or_skip};
pub use component::{Component, cpu_of};
pub use error::LabError;
pub use http::Response;
pub use identity::{Authority, Identity};
pub use kubelet::{Counts, EXIT_CODE, Kubelet, RESIZE, RUN_SECONDS};
pub use lab::{Lab, shared};
pub use machine::{BUSYBOX, Machine};
pub use node_api::NodeApi;
pub use nodes::{NodeShape, create_nodes, set_ready};
pub use pods::Behaviour;
pub use proxy::Proxy;
pub use settings::{Scheduler, Settings};
pub use subprocess::Subprocess;
pub use tools::helm;
