//! Experiments: from the description of a run, or of a grid of runs, to results.
//!
//! A [`RunSpec`] describes a run with plain values: the workload, the cluster, replaced parts of the policy and
//! settings such as the clock. It comes from a scenario file, from flags, or from the arguments of a function call.
//! [`Run`] is one such run with its policy, checked and ready to start; [`Comparison`] is a grid of runs over
//! policies, loads and seeds. This crate knows no command line and no terminal: what a person should know before a run
//! starts is a [`Notice`], and progress is a callback.
//!
//! ```
//! use dovetail_experiment::{Run, RunSpec};
//!
//! let spec = RunSpec {
//!     cluster: Some("4x8".to_owned()),
//!     jobs: Some(20),
//!     ..RunSpec::default()
//! };
//! let run = Run::new("srsf", &spec, &mut |_notice| {})?;
//! let record = run.simulate(None, &mut |_finished_jobs| {})?;
//! assert_eq!(record.summary.finished, 20);
//! # Ok::<(), dovetail_experiment::ExperimentError>(())
//! ```

mod aggregate;
mod axes;
mod comparison;
mod config;
mod error;
mod jobs;
mod notice;
mod output;
mod replay;
mod run;
pub mod scenario;
mod spec;
mod tenancy;
mod values;
mod workload;

pub use aggregate::{LoadSummary, PolicySummary};
pub use axes::{Axes, DEFAULT_POLICIES, parse_loads, parse_seeds, split_policies};
pub use comparison::{Comparison, ComparisonRecord};
pub use error::ExperimentError;
pub use jobs::find_jobs;
pub use notice::{Notice, ShortTimeSlices};
pub use output::{OutputSpec, ResultLayout};
pub use replay::{Fidelity, fidelity, past_workload};
pub use run::{DEFAULT_POLICY, Run};
pub use scenario::{Scenario, ScenarioError};
pub use spec::{ReferenceSystem, RunSpec};
