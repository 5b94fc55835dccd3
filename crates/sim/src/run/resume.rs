//! Runs that continue from a live engine: its jobs with the work they have done, its queue and its nodes.

use dovetail_engine::{Engine, Job, RunState};
use dovetail_model::{ClusterSpec, Event, JobKey, JobSpec, NodeSpec, Rate, Time, Work};

use super::event_queue::ScheduledEvent;
use super::jobs::Jobs;
use super::observer::Observer;
use super::speeds::{rate_on, span_for};
use super::{Run, RunParts};
use crate::config::{Compat, SimConfig, SimError};
use crate::failures::Failures;
use crate::truth::{Phase, Truth};

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

    /// Returns the next job that is submitted, in order of time; `None` if there is none.
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

impl Run<'_> {
    /// Takes over all jobs of the engine.
    fn take_over(&mut self) {
        let live: Vec<Job> = self.engine.engine.jobs().cloned().collect();
        for job in &live {
            let truth = self.jobs.truth(job);
            self.jobs.add_known(&job.spec, truth);
            self.truths.push(Truth {
                attempt: job.attempt,
                held: job.held_before,
                preemptions: job.preemptions,
                first_start: job.first_start,
                ..Truth::new(truth.work.minus(job.done), 0.0)
            });
            let id = job.spec.id;
            match &job.run_state {
                RunState::Idle => self.enter_queue(id),
                RunState::Starting | RunState::Running => self.take_over_attempt(job),
                RunState::Stopping(_) => {
                    self.enter_queue(id);
                    self.report(Event::Stopped {
                        job: id,
                        attempt: job.attempt,
                        done: job.done,
                    });
                }
            }
        }
    }

    /// Takes over the attempt of a job that holds GPUs.
    fn take_over_attempt(&mut self, job: &Job) {
        let id = job.spec.id;
        let Some(allocation) = job.current_allocation() else {
            return;
        };
        let now = self.queue.now;
        let alone = rate_on(self.config, self.jobs.get(id), allocation);
        let position = self.jobs.position(id);
        let truth = &mut self.truths[position];
        (truth.rate, truth.alone) = (alone, alone);
        (truth.launched, truth.width) = (job.held_since, allocation.gpus());
        self.gpus.join(id, truth, allocation);
        if job.run_state == RunState::Starting {
            truth.phase = Phase::Starting;
            let cost = match job.attempt.0 > 1 {
                true => self.config.restart_cost,
                false => Time::ZERO,
            };
            let at = now.max(job.held_since + cost);
            self.queue.schedule(at, ScheduledEvent::Started(id, job.attempt));
            return;
        }
        truth.phase = Phase::Running;
        truth.rate = if job.rate > Rate::ZERO { job.rate } else { alone };
        (truth.since, truth.epoch) = (job.done_at, 1);
        let span = span_for(self.config, truth.left, truth.rate);
        let at = now.max(job.done_at.saturating_add(span));
        self.queue.schedule(at, ScheduledEvent::End(id, job.attempt, 1));
    }
}
