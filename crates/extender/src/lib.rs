//! A replacement for HiveD's scheduler extender: kube-scheduler asks over HTTP where a pod may run and which pods must be
//! preempted for it, and leaves binding to the extender. Requests, answers, annotations and configuration are HiveD's;
//! the crates `hived` and `cells` decide.
//!
//! [`Extender`] is a plain value that opens no sockets and reads no clocks. [`server`] serves it over HTTP, and
//! [`kubernetes`] connects it to a cluster. `docs/kubernetes-extender.md` lists the differences from HiveD.

mod annotation;
mod error;
mod extender;
mod inspect;
pub mod kubernetes;
mod overdue;
mod pods;
pub mod server;
mod service;
mod settings;
mod status;
mod updates;
mod wire;

pub use annotation::{read_bind_info, read_spec};
pub use error::ExtenderError;
pub use extender::{Extender, FilterAnswer, Rules};
pub use inspect::{CellSnapshot, affinity_group, affinity_groups};
pub use overdue::{Command, Eviction, overdue_commands};
pub use pods::{BindCommand, PodName, Timestamp};
pub use service::{Options, RunError, Service};
pub use settings::{Settings, SettingsError};
pub use status::{
    AffinityGroup, CellState, CellStatus, ClusterStatus, GroupMeta, GroupStatus, Healthiness, LazyPreemption,
    PhysicalCell, VirtualCell,
};
pub use wire::{
    BindCall, BindResult, FilterCall, FilterResult, MetaPod, MetaVictims, PreemptCall, PreemptResult,
};
