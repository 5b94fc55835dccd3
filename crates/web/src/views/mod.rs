//! Request and response bodies of the API. The server writes what the command line reads, with the same types.

mod accounts;
mod cluster;
mod events;
mod gates;
mod jobs;
mod logs;
mod nodes;
mod profiles;
mod queue;
mod roles;
mod templates;
mod usage;
mod virtual_clusters;

pub use accounts::{
    AccountChange, AccountView, CreatedToken, CurrentUser, DeliveryResult, NewPassword, NewToken, NewUser,
    NewUserSecrets, NotifyTest, OidcOption, ServerInfo, SessionView, SignIn, SignInOptions, TokenView,
};
pub use cluster::{ClusterView, Operation, PolicyView, PolicyWarning};
pub use dovetail_jobfile::ArrayRequest;
pub use events::EventView;
pub use gates::{GatedGroupView, GatedJobView, GatedStageView, GatesView};
pub(crate) use jobs::state_of;
pub use jobs::{
    ActionResult, AttemptView, BulkAction, FileCheck, JobPage, JobView, NewPriority, ProgressPoint,
    StepsView, Submission, SubmitResponse,
};
pub use logs::{LogLine, LogMatch};
pub(crate) use nodes::node_state;
pub use nodes::{DrainRequest, NodeView, SlotView};
pub use profiles::{EstimateView, MeasurementView, ProfileView};
pub use queue::{ExplanationView, JobAhead, QueueEntry};
pub(crate) use roles::role_views_at;
pub use roles::{InstanceView, RoleView};
pub use templates::{Parameter, ParameterKind, RenderedTemplate, TemplateValues, TemplateView};
pub use usage::{GpuPoint, GpuSeries, GpuUtilization, NodeUtilization, UsageRow};
pub use virtual_clusters::{CellView, FieldChange, VcDiff, VcEdit, VcFile, VcList, VcView};
