//! The event loop: commands of the engine become later events.

mod attempts;
mod event_queue;
mod jobs;
mod leases;
mod observer;
mod outages;
mod recording;
mod resume;
mod speeds;
mod steps;

use std::ops::ControlFlow;

use dovetail_engine::{Capabilities, Engine, Knowledge, Policy, Runtime};
use dovetail_model::run::{Moment, RunRecord, Segment, SolverStats};
use dovetail_model::{Command, Event, Time};
use dovetail_workload::Workload;

use crate::blocking::Blocking;
use crate::config::{Compat, SimConfig, SimError, knowledge_name};
use crate::metrics;
use crate::runtime::SIMULATOR;
use crate::timeline::{Levels, Timeline};
use crate::truth::{KnowledgeFilter, Truth};
use event_queue::{EventQueue, ScheduledEvent};
use jobs::Jobs;
use leases::Leases;
use observer::ObservedEngine;
use outages::OutageSchedule;
use recording::Recorder;
use speeds::BusyGpus;
use steps::Steps;

pub use observer::{Journal, Observer};
pub use resume::{Future, FutureJob, TrueJob, resume};

/// Runs the workload under the policy, which needs at least `needs` of remaining work.
///
/// # Errors
/// If the configuration is not supported, or the engine violated an invariant.
pub fn simulate(
    workload: &Workload,
    policy: Policy,
    needs: Knowledge,
    config: &SimConfig,
) -> Result<RunRecord, SimError> {
    simulate_with(workload, policy, needs, config, None, &mut |_| {})
}

/// Like [`simulate`], with an observer such as a [`Journal`] if one is given, and reporting the number of finished jobs from time to time.
///
/// # Errors
/// If the configuration is not supported, or the engine violated an invariant.
pub fn simulate_with(
    workload: &Workload,
    policy: Policy,
    needs: Knowledge,
    config: &SimConfig,
    observer: Option<&mut dyn Observer>,
    progress: &mut dyn FnMut(u64),
) -> Result<RunRecord, SimError> {
    let started = std::time::Instant::now();
    let knowledge = knowledge_for(&policy.name, needs, config)?;
    if workload.jobs.is_empty() {
        return Err(SimError::Empty(format!("{}: no jobs to run", workload.source)));
    }
    let observer = observer.map(|observer| observer as &mut dyn Observer);
    let mut run = Run::new(workload, policy, knowledge, config, observer);
    run.run_to_end(progress)?;
    let mut record = metrics::record(&run.finish(), workload, config)?;
    record.summary.knowledge = knowledge_name(knowledge).to_owned();
    record.summary.wall_ms = started.elapsed().as_secs_f64() * 1000.0;
    Ok(record)
}

/// Returns what the policy knows: as configured, or the truth for a policy that needs any knowledge.
fn knowledge_for(policy: &str, needs: Knowledge, config: &SimConfig) -> Result<Knowledge, SimError> {
    let default = if needs == Knowledge::None {
        Knowledge::None
    } else {
        Knowledge::Oracle
    };
    let given = config.knowledge.unwrap_or(default);
    if given < needs {
        return Err(SimError::NotEnoughKnowledge {
            policy: policy.to_owned(),
            needs: knowledge_name(needs),
            given: knowledge_name(given),
        });
    }
    Ok(given)
}

/// The state after the loop, from which metrics are computed.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) policy: String,
    pub(crate) truths: Vec<Truth>,
    pub(crate) timeline: Timeline,
    pub(crate) segments: Vec<Segment>,
    pub(crate) blocking: Blocking,
    pub(crate) moments: Vec<Moment>,
    pub(crate) events: u64,
    pub(crate) rounds: u64,
    pub(crate) solved: SolverStats,
}

/// A run: the engine, and the truth about the jobs that it schedules.
struct Run<'a> {
    config: &'a SimConfig,
    engine: ObservedEngine<'a>,
    jobs: Jobs<'a>,
    /// The truth about each job that was submitted.
    truths: Vec<Truth>,
    queue: EventQueue,
    outages: OutageSchedule<'a>,
    gpus: BusyGpus,
    recorder: Recorder,
    finished: u64,
    /// Number of tracked jobs that have not finished, if the run ends with them.
    tracked_left: usize,
    /// Progress by iterations, where it is counted as in Muri's simulator.
    steps: Option<Steps>,
    /// Progress by rounds, where it is counted as in Synergy's simulator.
    leases: Option<Leases>,
}

impl Runtime for Run<'_> {
    type Command = Command;

    fn capabilities(&self) -> Capabilities {
        SIMULATOR
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = Command>) {
        for command in commands {
            match command {
                Command::Launch {
                    job,
                    attempt,
                    allocation,
                    ..
                } => self.launch(job, attempt, allocation),
                Command::Stop { job, attempt, reason } => self.stop(job, attempt, reason),
                Command::Resize { job, allocation, .. } => self.resize(job, allocation),
                Command::Reject { job, .. } => self.reject(job),
            }
        }
    }
}

/// What a run begins with.
struct RunParts<'a> {
    config: &'a SimConfig,
    engine: Engine,
    jobs: Jobs<'a>,
    observer: Option<&'a mut dyn Observer>,
    /// When its records begin.
    start: Time,
}

impl<'a> Run<'a> {
    /// Returns a run of a workload on an empty cluster.
    fn new(
        workload: &'a Workload,
        policy: Policy,
        knowledge: Knowledge,
        config: &'a SimConfig,
        observer: Option<&'a mut dyn Observer>,
    ) -> Self {
        let filter = KnowledgeFilter::new(knowledge, config, workload);
        let steps = match config.compat {
            Compat::Muri(time) => Some(Steps::new(time, workload, &filter)),
            Compat::Exact | Compat::Blox { .. } | Compat::Synergy { .. } => None,
        };
        let mut engine = Engine::new(policy, config.clock);
        engine.set_zones(config.cluster.zones.clone());
        engine.set_slowdowns(config.slowdowns.clone());
        let mut run = Self::from_parts(RunParts {
            config,
            engine,
            jobs: Jobs::of_trace(workload, filter),
            observer,
            start: workload.jobs[0].submit,
        });
        run.steps = steps;
        run.leases = matches!(config.compat, Compat::Synergy { .. }).then(Leases::default);
        if config.stop_after_tracked {
            let is_tracked = |i: &usize| metrics::is_tracked(&workload.jobs[*i], *i, config);
            run.tracked_left = (0..workload.jobs.len()).filter(is_tracked).count();
        }
        for (node, spec) in config.cluster.nodes.iter() {
            let spec = spec.clone();
            run.report(Event::NodeUp { node, spec });
        }
        run
    }

    fn from_parts(parts: RunParts<'a>) -> Self {
        let grouping = &parts.engine.policy().grouping;
        let gpus = BusyGpus::new(grouping.shares(), grouping.terms());
        let mut queue = EventQueue::default();
        Self {
            config: parts.config,
            engine: ObservedEngine::new(parts.engine, parts.observer),
            jobs: parts.jobs,
            truths: Vec::new(),
            outages: OutageSchedule::new(parts.config, &mut queue),
            queue,
            gpus,
            recorder: Recorder::new(parts.start, parts.config.segments),
            finished: 0,
            tracked_left: usize::MAX,
            steps: None,
            leases: None,
        }
    }

    fn run_to_end(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), SimError> {
        let mut repeated = 0;
        while let Some(next) = self.next_event_time() {
            repeated = if next == self.queue.now { repeated + 1 } else { 0 };
            if repeated > 1000 {
                return Err(SimError::Stuck {
                    policy: self.engine.engine.policy().name.clone(),
                    at_s: self.queue.now.as_secs_f64(),
                });
            }
            self.advance_to(next);
            self.handle_due_events();
            let is_ended = self.observe().is_break();
            if self.config.check {
                let check = self.engine.engine.check();
                check.map_err(|violation| SimError::Invariant {
                    at_s: next.as_secs_f64(),
                    violation: violation.to_string(),
                })?;
            }
            if self.queue.handled.trailing_zeros() >= 13 {
                progress(self.finished);
            }
            if is_ended {
                break;
            }
        }
        progress(self.finished);
        Ok(())
    }

    /// Records this moment, and shows it to the observer.
    fn observe(&mut self) -> ControlFlow<()> {
        let now = self.queue.now;
        if self.config.moments && !self.truths.is_empty() {
            let gpus = (self.outages.up_gpus, self.gpus.number);
            self.recorder
                .record_moment(now, &self.engine.engine, gpus, self.finished);
        }
        self.engine.end_moment(now)
    }

    /// Returns when the next job is submitted.
    fn next_arrival(&self) -> Option<Time> {
        self.jobs.next_submission(self.truths.len())
    }

    /// Returns the time of the next event; `None` when all jobs have finished or no job can ever proceed.
    fn next_event_time(&mut self) -> Option<Time> {
        let arrival = self.next_arrival();
        let engine = &self.engine.engine;
        let alive = engine.idle().0 + engine.holding() > 0;
        if (arrival.is_none() && !alive) || self.tracked_left == 0 {
            return None;
        }
        let wake = engine.wake_at();
        let next_completion = self.steps.as_ref().and_then(Steps::next_end);
        let next = arrival
            .into_iter()
            .chain(self.queue.next_time())
            .chain(next_completion)
            .chain(wake)
            .min()?;
        let stuck = arrival.is_none() && self.gpus.number == 0 && wake.is_none();
        // All nodes that will ever return are up, and nothing runs: only failures are left, so queued jobs never start.
        if stuck && self.queue.has_only_failures() && engine.decisions() > 0 {
            None
        } else {
            Some(next)
        }
    }

    /// Advances the time.
    fn advance_to(&mut self, next: Time) {
        let engine = &self.engine.engine;
        let (idle, idle_gpus) = engine.idle();
        let levels = Levels {
            busy_gpus: self.gpus.number,
            up_gpus: self.outages.up_gpus,
            running: engine.holding(),
            waiting: idle,
            waiting_gpus: idle_gpus,
            fragmented_gpus: engine.cluster().fragmented_gpus(),
        };
        if !self.truths.is_empty() {
            self.recorder.advance(self.queue.now, next, &levels);
        }
        self.recorder.blocking.advance(next);
        self.queue.now = next;
    }

    /// Handles all events of this moment, then lets the engine decide.
    fn handle_due_events(&mut self) {
        while let Some(event) = self.queue.pop_due() {
            match event {
                ScheduledEvent::End(job, attempt, epoch) => self.end(job, attempt, epoch),
                ScheduledEvent::Started(job, attempt) => self.started(job, attempt),
                ScheduledEvent::Stopped(job, attempt, done) => {
                    self.report(Event::Stopped { job, attempt, done })
                }
                ScheduledEvent::NodeDown(node, up) => {
                    let event = self.outages.begin(node, up, &mut self.queue);
                    event.into_iter().for_each(|event| self.report(event));
                }
                ScheduledEvent::NodeUp(node) => {
                    let event = self.outages.end(node, &mut self.queue);
                    event.into_iter().for_each(|event| self.report(event));
                }
            }
        }
        self.complete_due_jobs();
        self.submit_due_jobs();
        self.report_progress();
        let now = self.queue.now;
        if self.engine.engine.wake_at().is_some_and(|at| at <= now) {
            self.queue.handled += 1;
            self.report(Event::Wake);
        }
        while let Some(command) = self.engine.poll(now) {
            self.execute(&mut std::iter::once(command));
        }
        if let Some(leases) = &mut self.leases {
            let decisions = self.engine.engine.decisions();
            leases.credit(self.config, decisions, &mut self.truths, &mut self.queue);
        }
        let arrival = self.next_arrival();
        match &mut self.steps {
            Some(steps) => steps.schedule_next(self.config, now, arrival),
            None => self.update_shared_speeds(),
        }
    }

    /// Completes the jobs whose iterations are done.
    fn complete_due_jobs(&mut self) {
        let Some(steps) = &mut self.steps else { return };
        for id in steps.take_due(self.queue.now) {
            self.queue.handled += 1;
            let truth = &self.truths[self.jobs.position(id)];
            self.end(id, truth.attempt, truth.epoch);
        }
    }

    fn submit_due_jobs(&mut self) {
        let now = self.queue.now;
        while self.next_arrival().is_some_and(|at| at <= now) {
            let Some(mut spec) = self.jobs.submit_next(self.truths.len()) else {
                break;
            };
            let work = self.jobs.get(spec.id).work;
            self.truths.push(Truth::new(work, self.recorder.alive_integral));
            self.recorder.blocking.enter(now.since(spec.submit), work);
            if self.steps.is_some() {
                spec.expected = spec.expected.map(steps::slower_alone);
            }
            self.queue.handled += 1;
            self.report(Event::Submitted(spec));
        }
    }

    /// Reports the progress of running jobs where it is counted by iterations or rounds.
    fn report_progress(&mut self) {
        let (now, jobs) = (self.queue.now, self.jobs.all());
        if let Some(steps) = &mut self.steps {
            for event in steps.credit(now, &mut self.truths, jobs) {
                self.engine.report(now, event);
            }
        }
        if let Some(leases) = &self.leases {
            for event in leases.progress(&self.truths, jobs) {
                self.engine.report(now, event);
            }
        }
    }

    fn report(&mut self, mut event: Event) {
        if self.config.reports_steps {
            self.jobs.count_in_steps(&mut event);
        }
        self.engine.report(self.queue.now, event);
    }

    fn finish(self) -> Outcomes {
        let engine = self.engine.engine;
        Outcomes {
            policy: engine.policy().name.clone(),
            truths: self.truths,
            timeline: self.recorder.timeline,
            segments: self.recorder.segments,
            blocking: self.recorder.blocking,
            moments: self.recorder.moments,
            events: self.queue.handled,
            rounds: engine.decisions(),
            solved: engine.solver_stats(),
        }
    }
}
