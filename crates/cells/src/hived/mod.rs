//! HiveD's own way of talking about cells: pods that come one by one, with names instead of numbers; and scenario files
//! that say what HiveD does, to compare with.

mod compare;
mod extender;
mod place;
mod scenario;

pub use compare::Mismatch;
pub use extender::{Answer, Extender, Member, Phase, PodGroup, PodSpec, UserError};
pub use place::{GroupView, Place};
pub use scenario::{EXCEPTIONS, Exception, Played, Player, Scenario, Step, StepResult, Watch};
