//! The event loop: commands of the engine become later events.

mod attempts;
mod leases;
mod outages;
mod recording;
mod speeds;
mod steps;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use dovetail_engine::{Engine, Explanation, Knowledge, Policy};
use dovetail_model::run::{Moment, RunRecord, Segment, SolverStats};
use dovetail_model::{AttemptKey, Command, Event, JobKey, NodeId, Time};
use dovetail_workload::Workload;

use crate::blocking::Blocking;
use crate::config::{Compat, SimConfig, SimError, knowledge_name};
use crate::failures::Process;
use crate::metrics;
use crate::sharing::Sharing;
use crate::timeline::{Levels, Timeline};
use crate::truth::{KnowledgeFilter, Phase, Truth};
use leases::Leases;
use steps::Steps;

/// Everything that happened, for a replay: the events passed to the engine and the commands it gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Journal {
    /// Events with their times.
    pub events: Vec<(Time, Event)>,
    /// Commands with their times.
    pub commands: Vec<(Time, Command)>,
    /// Jobs to explain at every moment.
    pub followed: BTreeSet<JobKey>,
    /// Explanations of those jobs, whenever they change.
    pub explanations: Vec<(Time, JobKey, Explanation)>,
}

/// A future event. The order of the variants is the order of handling at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledEvent {
    End(JobKey, AttemptKey, u32),
    Started(JobKey, AttemptKey),
    NodeDown(NodeId, Time),
    NodeUp(NodeId),
}

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

/// Like [`simulate`], recording a journal if one is given, and reporting the number of finished jobs from time to time.
///
/// # Errors
/// If the configuration is not supported, or the engine violated an invariant.
pub fn simulate_with(
    workload: &Workload,
    policy: Policy,
    needs: Knowledge,
    config: &SimConfig,
    journal: Option<&mut Journal>,
    progress: &mut dyn FnMut(u64),
) -> Result<RunRecord, SimError> {
    let started = std::time::Instant::now();
    let knowledge = knowledge_for(&policy.name, needs, config)?;
    if workload.jobs.is_empty() {
        return Err(SimError::Empty(format!("{}: no jobs to run", workload.source)));
    }
    let mut run = Run::new(workload, policy, knowledge, config, journal);
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

struct Run<'a> {
    workload: &'a Workload,
    config: &'a SimConfig,
    engine: Engine,
    knowledge_filter: KnowledgeFilter,
    truths: Vec<Truth>,
    scheduled: BinaryHeap<Reverse<(Time, ScheduledEvent)>>,
    now: Time,
    events: u64,
    busy_gpus: u32,
    up_gpus: u32,
    finished: u64,
    timeline: Timeline,
    alive_integral: f64,
    segments: Vec<Segment>,
    blocking: Blocking,
    moments: Vec<Moment>,
    process: Option<Process>,
    /// End of each node's outage; `None` for nodes that are up.
    down: Vec<Option<Time>>,
    tracked_left: usize,
    /// GPU sharing; `None` under a policy that never shares.
    sharing: Option<Sharing>,
    /// Progress by iterations, where it is counted as in Muri's simulator.
    steps: Option<Steps>,
    /// Progress by rounds, where it is counted as in Synergy's simulator.
    leases: Option<Leases>,
    journal: Option<&'a mut Journal>,
}

impl<'a> Run<'a> {
    fn new(
        workload: &'a Workload,
        policy: Policy,
        knowledge: Knowledge,
        config: &'a SimConfig,
        journal: Option<&'a mut Journal>,
    ) -> Self {
        let knowledge_filter = KnowledgeFilter::new(knowledge, config, workload);
        let start = workload.jobs[0].submit;
        let terms = policy.grouping.terms();
        let sharing = policy.grouping.shares().then(|| Sharing::new(terms));
        let steps = match config.compat {
            Compat::Muri(time) => Some(Steps::new(time, workload, &knowledge_filter)),
            Compat::Exact | Compat::Blox { .. } | Compat::Synergy { .. } => None,
        };
        let leases = matches!(config.compat, Compat::Synergy { .. }).then(Leases::default);
        let mut run = Self {
            workload,
            config,
            sharing,
            steps,
            leases,
            engine: Engine::new(policy, config.clock),
            knowledge_filter,
            truths: Vec::with_capacity(workload.jobs.len()),
            scheduled: BinaryHeap::new(),
            now: Time::ZERO,
            events: 0,
            busy_gpus: 0,
            up_gpus: 0,
            finished: 0,
            timeline: Timeline::new(start),
            alive_integral: 0.0,
            segments: Vec::new(),
            blocking: Blocking::default(),
            moments: Vec::new(),
            process: Process::new(&config.failures, config.seed),
            down: vec![None; config.cluster.nodes.len()],
            tracked_left: match config.stop_after_tracked {
                true => (0..workload.jobs.len())
                    .filter(|i| metrics::is_tracked(*i, workload, config))
                    .count(),
                false => usize::MAX,
            },
            journal,
        };
        run.engine.set_zones(config.cluster.zones.clone());
        run.engine.set_slowdowns(config.slowdowns.clone());
        for (node, spec) in config.cluster.nodes.iter() {
            run.report(Event::NodeUp {
                node,
                spec: spec.clone(),
            });
            run.up_gpus += spec.gpus;
            if let Some(outage) = run.process.as_mut().map(|p| p.next(node, Time::ZERO)) {
                let up = outage.up.unwrap_or(Time::MAX);
                run.scheduled
                    .push(Reverse((outage.down, ScheduledEvent::NodeDown(node, up))));
            }
        }
        for outage in &config.failures.outages {
            let up = outage.up.unwrap_or(Time::MAX);
            run.scheduled
                .push(Reverse((outage.down, ScheduledEvent::NodeDown(outage.node, up))));
        }
        run
    }

    fn run_to_end(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), SimError> {
        let mut repeated = 0;
        while let Some(next) = self.next_event_time() {
            repeated = if next == self.now { repeated + 1 } else { 0 };
            if repeated > 1000 {
                return Err(SimError::Stuck {
                    policy: self.engine.policy().name.clone(),
                    at_s: self.now.as_secs_f64(),
                });
            }
            self.advance_to(next);
            self.handle_due_events();
            if self.config.moments && !self.truths.is_empty() {
                self.record_state();
            }
            self.record_explanations();
            if self.config.check {
                self.engine.check().map_err(|violation| SimError::Invariant {
                    at_s: self.now.as_secs_f64(),
                    violation: violation.to_string(),
                })?;
            }
            if self.events.trailing_zeros() >= 13 {
                progress(self.finished);
            }
        }
        progress(self.finished);
        Ok(())
    }

    /// Returns the time of the next event; `None` when all jobs have finished or no job can ever proceed.
    fn next_event_time(&mut self) -> Option<Time> {
        let arrival = self.workload.jobs.get(self.truths.len()).map(|j| j.submit);
        let alive = self.engine.idle().0 + self.engine.holding() > 0;
        if (arrival.is_none() && !alive) || self.tracked_left == 0 {
            return None;
        }
        let scheduled = self.scheduled.peek().map(|Reverse((at, _))| *at);
        let wake = self.engine.wake_at();
        let next_completion = self.steps.as_ref().and_then(Steps::next_end);
        let next = arrival
            .into_iter()
            .chain(scheduled)
            .chain(next_completion)
            .chain(wake)
            .min()?;
        let stuck = arrival.is_none() && self.busy_gpus == 0 && wake.is_none();
        // All nodes that will ever return are up, and nothing runs: only failures are left, so queued jobs never start.
        if stuck && self.only_failures_scheduled() && self.engine.decisions() > 0 {
            None
        } else {
            Some(next)
        }
    }

    /// Advances the time.
    fn advance_to(&mut self, next: Time) {
        let (idle, idle_gpus) = self.engine.idle();
        let levels = Levels {
            busy_gpus: self.busy_gpus,
            up_gpus: self.up_gpus,
            running: self.engine.holding(),
            waiting: idle,
            waiting_gpus: idle_gpus,
            fragmented_gpus: self.engine.cluster().fragmented_gpus(),
        };
        if !self.truths.is_empty() {
            let span = next.since(self.now).as_secs_f64();
            self.alive_integral += span * f64::from(levels.running + levels.waiting);
            self.timeline.advance(next, &levels);
        }
        self.blocking.advance(next);
        self.now = next;
    }

    /// Handles all events of this moment, then lets the engine decide.
    fn handle_due_events(&mut self) {
        while let Some(Reverse((at, scheduled))) = self.scheduled.peek().copied() {
            if at > self.now {
                break;
            }
            self.scheduled.pop();
            self.events += 1;
            match scheduled {
                ScheduledEvent::End(job, attempt, epoch) => self.end(job, attempt, epoch),
                ScheduledEvent::Started(job, attempt) => self.started(job, attempt),
                ScheduledEvent::NodeDown(node, up) => self.node_down(node, up),
                ScheduledEvent::NodeUp(node) => self.node_up(node),
            }
        }
        self.complete_due_jobs();
        while let Some(job) = self
            .workload
            .jobs
            .get(self.truths.len())
            .filter(|j| j.submit <= self.now)
        {
            let id = JobKey(self.truths.len() as u32);
            self.truths.push(Truth::new(job.work, self.alive_integral));
            self.blocking.enter(self.now.since(job.submit), job.work);
            let mut spec = self.knowledge_filter.spec(id, job);
            if self.steps.is_some() {
                spec.expected = spec.expected.map(steps::slower_alone);
            }
            self.events += 1;
            self.report(Event::Submitted(spec));
        }
        self.credit_iterations();
        self.report_leases();
        if self.engine.wake_at().is_some_and(|at| at <= self.now) {
            self.events += 1;
            self.report(Event::Wake);
        }
        while let Some(command) = self.engine.poll() {
            if let Some(journal) = &mut self.journal {
                journal.commands.push((self.now, command.clone()));
            }
            match command {
                Command::Launch {
                    job,
                    attempt,
                    allocation,
                } => self.launch(job, attempt, allocation),
                Command::Stop { job, attempt, reason } => self.stop(job, attempt, reason),
                Command::Resize { job, allocation, .. } => self.resize(job, allocation),
                Command::Reject { job, .. } => {
                    self.blocking
                        .leave(self.waited(job), self.truths[job.0 as usize].left);
                    let truth = &mut self.truths[job.0 as usize];
                    (truth.rejected, truth.phase) = (true, Phase::Done);
                    self.remove_job(job);
                }
            }
        }
        self.credit_leases();
        if self.steps.is_some() {
            self.schedule_next_completion();
        } else {
            self.update_shared_speeds();
        }
    }

    fn report(&mut self, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.events.push((self.now, event.clone()));
        }
        self.engine.handle(self.now, event);
    }

    fn finish(self) -> Outcomes {
        Outcomes {
            policy: self.engine.policy().name.clone(),
            truths: self.truths,
            timeline: self.timeline,
            segments: self.segments,
            blocking: self.blocking,
            moments: self.moments,
            events: self.events,
            rounds: self.engine.decisions(),
            solved: self.engine.solver_stats(),
        }
    }
}
