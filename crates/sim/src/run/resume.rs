//! Runs that continue from a live engine: its jobs with the work they have done, its queue and its nodes.

use dovetail_engine::{Engine, Job};
use dovetail_model::{ClusterSpec, JobKey, JobSpec, NodeSpec, Time, Work};

use super::jobs::Jobs;
use super::observer::Observer;
use super::{Run, RunParts};
use crate::config::{Compat, SimConfig, SimError};
use crate::failures::Failures;

/// What is true of a job and what no policy knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrueJob {
    /// Its whole work, including what is done.
    pub work: Work,
    /// Interval between checkpoints; `None` for that of the configuration.
    pub checkpoint: Option<Time>,
}

/// A job that is submitted later.
#[derive(Debug, Clone)]
pub struct FutureJob {
    /// What is submitted, and when. It gets a key of its own.
    pub spec: JobSpec,
    /// What is true of it.
    pub truth: TrueJob,
}

/// What happens after the moment of a live engine.
pub trait Future {
    /// Returns what is true of a job that the engine has.
    fn truth(&mut self, job: &Job) -> TrueJob;

    /// Returns the next job that is submitted, in order of time; `None` after the last one.
    fn next_job(&mut self) -> Option<FutureJob>;
}

impl SimConfig {
    /// Returns the configuration of a run that continues from a live engine: its nodes and its clock, without failures.
    pub fn of_engine(engine: &Engine) -> Self {
        let cluster = engine.cluster();
        let mut spec = ClusterSpec {
            zones: cluster.zones.clone(),
            ..ClusterSpec::default()
        };
        for (id, node) in cluster.nodes() {
            while spec.nodes.len() < id.0 as usize {
                // A number that no node has.
                spec.nodes.push(NodeSpec::plain(String::new(), 0));
            }
            spec.nodes.push(node.spec.clone());
        }
        Self {
            clock: engine.clock(),
            segments: 0,
            ..Self::new(spec)
        }
    }

    /// Returns the same model of the cluster for a run that continues from a live engine: no failures, no checks, no
    /// records.
    pub fn for_future(&self) -> Self {
        Self {
            failures: Failures::default(),
            track: None,
            stop_after_tracked: false,
            check: false,
            segments: 0,
            moments: false,
            ..self.clone()
        }
    }
}

/// Continues from a live engine until nothing is left to do or the observer ends the run. Jobs that are submitted later get
/// keys from `first_new` on. The configuration must have the nodes of the engine.
///
/// # Errors
/// If the configuration counts progress as a reference system does, or the policy makes no progress.
pub fn resume(
    engine: Engine,
    first_new: JobKey,
    config: &SimConfig,
    future: &mut dyn Future,
    observer: &mut dyn Observer,
) -> Result<(), SimError> {
    if config.compat != Compat::Exact {
        return Err(SimError::Unsupported(
            "a run that continues from a live engine must not have compat quirks".to_owned(),
        ));
    }
    let start = engine.now();
    let jobs = Jobs::of_engine(first_new, future);
    let mut run = Run::from_parts(RunParts {
        config,
        engine,
        jobs,
        observer: Some(observer),
        start,
    });
    run.queue.now = start;
    run.recorder.blocking.advance(start);
    run.take_over();
    run.handle_due_events();
    match run.observe() {
        std::ops::ControlFlow::Break(()) => Ok(()),
        std::ops::ControlFlow::Continue(()) => run.run_to_end(&mut |_| {}),
    }
}
