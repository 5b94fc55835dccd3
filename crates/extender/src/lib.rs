//! A drop-in for HiveD's scheduler extender: kube-scheduler asks over HTTP where a pod may go, which pods have to go for it,
//! and leaves the binding to us. Requests, answers, annotations and configuration are HiveD's; the decisions are those of
//! crate `cells`.
//!
//! [`Extender`] is a plain value that neither opens sockets nor reads clocks. [`web`] puts HTTP in front of it, and
//! [`cluster`] puts Kubernetes behind it. What is different from HiveD is in `docs/kubernetes-extender.md`.

mod annotation;
pub mod cluster;
mod due;
mod extender;
mod inspect;
mod life;
mod pods;
mod run;
mod settings;
mod shapes;
pub mod web;
mod wire;

pub use annotation::{BIND_INFO, BindInfo, ENABLE, ISOLATION, MemberBindInfo, PodPlacement, SPEC, read_spec};
pub use due::{Command, Eviction};
pub use extender::{Extender, Filtered, Rules};
pub use inspect::Picture;
pub use pods::{BindOrder, Moment, PodName};
pub use run::{Options, RunError, Service};
pub use settings::{Settings, SettingsError};
pub use shapes::{
    AffinityGroup, CellState, CellStatus, ClusterStatus, GroupMeta, GroupStatus, Healthiness, LazyPreemption,
    PhysicalCell, VirtualCell,
};
pub use wire::{
    BindCall, BindResult, Fault, FilterCall, FilterResult, MetaPod, MetaVictims, PreemptCall, PreemptResult,
};
