//! The types shared by all crates: ids, units, the cluster, jobs, events, commands and reasons.
//!
//! Nothing here takes decisions or performs input and output. Amounts are integers ([`units`]), ids are types ([`ids`]),
//! and every refusal is a value with numbers in it ([`reason::Reason`]).

pub mod allocation;
pub mod change;
pub mod command;
pub mod cpu_set;
pub mod event;
pub mod fairness;
pub mod gpu_set;
pub mod group_factors;
pub mod ids;
pub mod job;
pub mod layout;
pub mod numa;
pub mod phase_plan;
pub mod reason;
pub mod rfc3339;
pub mod run;
pub mod sensitivity;
pub mod sharing;
pub mod span;
pub mod stages;
pub mod suggest;
pub mod topology;
pub mod units;

pub use allocation::{Allocation, NodeShare};
pub use change::Change;
pub use command::{Command, StopReason};
pub use cpu_set::CpuSet;
pub use event::{Event, JobHistory, Outcome, RestoredJob};
pub use gpu_set::GpuSet;
pub use group_factors::{GroupFactors, ProfileKey, SharedGroupFactors};
pub use ids::{
    AttemptKey, GpuTypeId, IdVec, JobKey, ModelId, NodeConstraintId, NodeId, TenantId, UserId, ZoneId,
};
pub use job::{JobProfile, JobSpec, Scaling, SpeedTable, SpeedTableError};
pub use numa::NumaDomain;
pub use phase_plan::{PhasePlan, StepStage};
pub use reason::{NameLookup, Reason};
pub use sensitivity::{Sensitivity, Share};
pub use sharing::{SharingTerms, Slowdowns, Speeds};
pub use span::parse_span;
pub use stages::{InterleavingTerms, Stages};
pub use topology::{ClusterSpec, NodeSpec, Zone};
pub use units::{Rate, Time, Work};
