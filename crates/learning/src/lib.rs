//! What a cluster learns from its jobs: how long jobs of a kind run, and how fast a model is.
//!
//! Both are bounded in size, depend only on what they were told and in which order, and can be saved. The live cluster and
//! the simulator use the same code.

mod groups;
mod profiles;
mod restarts;
mod run_times;

pub use groups::LearnedGroups;
pub use profiles::{
    Conditions, LearnedProfile, LearnedProfiles, Measurement, StepSample, UNNAMED, model_key, owner_of,
};
pub use restarts::LearnedRestarts;
pub use run_times::{Basis, JobTraits, Prediction, RunTimePredictor};
