//! HiveD's formats and semantics on top of the crate `cells`.
//!
//! | module | content |
//! |---|---|
//! | [`config`] | HiveD's configuration file |
//! | [`pod_spec`], [`bind_info`] | HiveD's annotations on pods: the request, and the placement |
//! | [`scheduler`] | groups of pods by name, scheduled pod by pod |
//! | [`scenario`], [`replay`] | recorded scenarios of HiveD, replayed and compared |
//! | [`overview`], [`changes`] | the content of a configuration, and the difference of two |
//! | [`explain`] | why a group of pods is pending |
//!
//! Each of these formats is parsed here and nowhere else.

mod annotation;
mod answer;
pub mod bind_info;
pub mod changes;
mod compare;
pub mod config;
mod exceptions;
pub mod explain;
pub mod overview;
mod place;
pub mod pod_spec;
mod recovery;
pub mod replay;
pub mod scenario;
pub mod scheduler;

pub use annotation::{AnnotationError, BIND_INFO, ENABLE, ISOLATION, SPEC};
pub use answer::{Answer, Phase, UserError};
pub use bind_info::{BindInfo, MemberBindInfo, PodPlacement};
pub use changes::{LayoutChange, layout_changes};
pub use compare::Mismatch;
pub use config::{ConfigError, config_of, parse_config, read_config};
pub use exceptions::{EXCEPTIONS, Exception};
pub use explain::explanation_lines;
pub use overview::{ConfigOverview, FaultOverview, LevelOverview, level_overviews};
pub use place::{GroupView, Place};
pub use pod_spec::{Member, PodGroup, PodSpec, SpecError};
pub use replay::{Replay, ReplayError, ScenarioFile};
pub use scenario::{
    ConfigLoader, Observer, Scenario, ScenarioError, ScenarioReport, ScenarioTarget, Step, StepResult,
};
pub use scheduler::GroupScheduler;
