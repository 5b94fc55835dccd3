//! A small client of the Kubernetes API for schedulers, in JSON over HTTP/1.1 and TLS.
//!
//! Objects have only the fields that Dovetail uses; the rest is skipped during parsing. Together with reused connections,
//! this keeps the cost of a pod at a fraction of a millisecond. See `docs/decisions/0019-own-kubernetes-client.md`.

mod client;
mod config;
mod devices;
mod discovery;
mod error;
mod event;
mod exec;
mod kubeconfig;
mod objects;
mod quantity;
mod stream;
mod time;
mod watch;
mod websocket;

pub use client::{Client, DeleteOptions, Patch};
pub use config::{Auth, Config, ExecPlugin};
pub use devices::{
    ClaimSpec, ClaimStatus, ClaimUser, ClaimedDevices, Device, DeviceRequest, ExactRequest, Pool,
    ResourceClaim, ResourceSlice, SliceSpec,
};
pub use discovery::{ApiResource, ApiResources, may, resources};
pub use error::{ConfigError, Error, KubeconfigError, Status};
pub use event::{Event, EventSource};
pub use exec::{Channel, Ended, Exec, ExecRequest, Input, Output};
pub use objects::{
    Binding, Condition, Container, ContainerState, ContainerStatus, Lease, LeaseSpec, List, Meta, Namespace,
    Node, NodeAddress, NodeSelectorTerm, NodeSpec, NodeStatus, Object, ObjectRef, Owner, Pod, PodSpec,
    PodStatus, Requirement, ResizePolicy, Resources, Taint, Target, Terminated, Toleration,
};
pub use quantity::{cpu_milli, memory_mib, whole};
pub use stream::Lines;
pub use time::{micro_time, now_micros, parse_time, seconds_time};
pub use watch::{Change, Watcher};
pub use websocket::{FrameError, Frames, Message, Side, accept, frame};
