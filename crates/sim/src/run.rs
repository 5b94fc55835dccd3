//! The event loop: commands of the engine become later events.

mod leases;
mod outages;
mod speeds;
mod steps;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use dovetail_engine::{Clock, Engine, Explanation, Knowledge, Policy};
use dovetail_model::run::{Moment, RunRecord, Segment, Solved};
use dovetail_model::{
    Allocation, Command, Event, Generation, JobId, NodeId, Outcome, Rate, StopReason, Time, Work,
};
use dovetail_workload::Workload;

use crate::blocking::Blocking;
use crate::config::{Compat, SimConfig, SimError, knowledge_name};
use crate::failures::Process;
use crate::metrics;
use crate::sharing::Sharing;
use crate::timeline::{Levels, Timeline};
use crate::truth::{Doing, Teller, Truth};
use leases::Leases;
use steps::Steps;

/// Everything that happened, to replay it: the events told to the engine and the commands it gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Journal {
    /// What the engine was told, and when.
    pub events: Vec<(Time, Event)>,
    /// What the engine wanted, and when.
    pub commands: Vec<(Time, Command)>,
    /// Jobs to ask after at every moment.
    pub asks: BTreeSet<JobId>,
    /// Where those are and what keeps them there, whenever the answer changes.
    pub answers: Vec<(Time, JobId, Explanation)>,
}

/// Something that will happen. The order of the variants is the order at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    End(JobId, Generation, u32),
    Started(JobId, Generation),
    NodeDown(NodeId, Time),
    NodeUp(NodeId),
}

/// Runs the workload under the policy, which needs to know at least `needs` of remaining work.
///
/// # Errors
/// Says what cannot be, or which promise the engine broke.
pub fn simulate(
    workload: &Workload,
    policy: Policy,
    needs: Knowledge,
    config: &SimConfig,
) -> Result<RunRecord, SimError> {
    simulate_with(workload, policy, needs, config, None, &mut |_| {})
}

/// Like [`simulate`], writing a journal if one is given, and telling now and then how many jobs are done.
///
/// # Errors
/// Says what cannot be, or which promise the engine broke.
pub fn simulate_with(
    workload: &Workload,
    policy: Policy,
    needs: Knowledge,
    config: &SimConfig,
    journal: Option<&mut Journal>,
    progress: &mut dyn FnMut(u64),
) -> Result<RunRecord, SimError> {
    let began = std::time::Instant::now();
    let knowledge = knowledge_for(&policy.name, needs, config)?;
    if workload.jobs.is_empty() {
        return Err(SimError::Empty(format!(
            "{}: there are no jobs to run",
            workload.source
        )));
    }
    let mut run = Run::new(workload, policy, knowledge, config, journal);
    run.go(progress)?;
    let mut record = metrics::record(&run.finish(), workload, config)?;
    record.summary.knowledge = knowledge_name(knowledge).to_owned();
    record.summary.wall_ms = began.elapsed().as_secs_f64() * 1000.0;
    Ok(record)
}

/// What the policy gets to know: as configured, or the truth for a policy that needs to know anything.
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

/// What the loop leaves behind, before it is made into figures.
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
    pub(crate) solved: Solved,
}

struct Run<'a> {
    workload: &'a Workload,
    config: &'a SimConfig,
    engine: Engine,
    teller: Teller,
    truths: Vec<Truth>,
    coming: BinaryHeap<Reverse<(Time, Coming)>>,
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
    /// Until when each node is down; none for those that are up.
    down: Vec<Option<Time>>,
    tracked_left: usize,
    /// Who shares GPUs; none under a policy that never shares.
    sharing: Option<Sharing>,
    /// Progress by iterations, where it is counted as Muri's simulator does.
    steps: Option<Steps>,
    /// Progress by rounds, where it is counted as Synergy's simulator does.
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
        let teller = Teller::new(knowledge, config, workload);
        let start = workload.jobs[0].submit;
        let terms = policy.grouping.terms();
        let sharing = policy.grouping.shares().then(|| Sharing::new(terms));
        let steps = match config.compat {
            Compat::Muri(time) => Some(Steps::new(time, workload, &teller)),
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
            teller,
            truths: Vec::with_capacity(workload.jobs.len()),
            coming: BinaryHeap::new(),
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
            run.tell(Event::NodeUp {
                node,
                spec: spec.clone(),
            });
            run.up_gpus += spec.gpus;
            if let Some(outage) = run.process.as_mut().map(|p| p.next(node, Time::ZERO)) {
                let up = outage.up.unwrap_or(Time::MAX);
                run.coming
                    .push(Reverse((outage.down, Coming::NodeDown(node, up))));
            }
        }
        for outage in &config.failures.outages {
            let up = outage.up.unwrap_or(Time::MAX);
            run.coming
                .push(Reverse((outage.down, Coming::NodeDown(outage.node, up))));
        }
        run
    }

    fn go(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), SimError> {
        let mut repeated = 0;
        while let Some(next) = self.next_moment() {
            repeated = if next == self.now { repeated + 1 } else { 0 };
            if repeated > 1000 {
                return Err(SimError::Stuck {
                    policy: self.engine.policy().name.clone(),
                    at_s: self.now.as_secs_f64(),
                });
            }
            self.move_to(next);
            self.happen();
            if self.config.moments && !self.truths.is_empty() {
                self.note_moment();
            }
            self.ask_after_jobs();
            if self.config.check {
                self.engine.check().map_err(|what| SimError::Invariant {
                    at_s: self.now.as_secs_f64(),
                    what,
                })?;
            }
            if self.events.trailing_zeros() >= 13 {
                progress(self.finished);
            }
        }
        progress(self.finished);
        Ok(())
    }

    /// The next moment at which anything happens; none when all jobs are done or none will ever move again.
    fn next_moment(&mut self) -> Option<Time> {
        let arrival = self.workload.jobs.get(self.truths.len()).map(|j| j.submit);
        let alive = self.engine.idle().0 + self.engine.holding() > 0;
        if (arrival.is_none() && !alive) || self.tracked_left == 0 {
            return None;
        }
        let coming = self.coming.peek().map(|Reverse((at, _))| *at);
        let wake = self.engine.wake_at();
        let foreseen = self.steps.as_ref().and_then(Steps::next_end);
        let next = arrival
            .into_iter()
            .chain(coming)
            .chain(foreseen)
            .chain(wake)
            .min()?;
        let stuck = arrival.is_none() && self.busy_gpus == 0 && wake.is_none();
        // With every node up that will ever be, and nothing running, only failures are to come: who waits now waits for
        // ever.
        if stuck && self.only_failures_coming() && self.engine.decisions() > 0 {
            None
        } else {
            Some(next)
        }
    }

    /// Time passes.
    fn move_to(&mut self, next: Time) {
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

    /// Everything that happens at this moment, then the engine's answer.
    fn happen(&mut self) {
        while let Some(Reverse((at, coming))) = self.coming.peek().copied() {
            if at > self.now {
                break;
            }
            self.coming.pop();
            self.events += 1;
            match coming {
                Coming::End(job, generation, epoch) => self.end(job, generation, epoch),
                Coming::Started(job, generation) => self.started(job, generation),
                Coming::NodeDown(node, up) => self.node_down(node, up),
                Coming::NodeUp(node) => self.node_up(node),
            }
        }
        self.end_foreseen();
        while let Some(job) = self
            .workload
            .jobs
            .get(self.truths.len())
            .filter(|j| j.submit <= self.now)
        {
            let id = JobId(self.truths.len() as u32);
            self.truths.push(Truth::new(job.work, self.alive_integral));
            self.blocking.enter(self.now.since(job.submit), job.work);
            let mut spec = self.teller.spec(id, job);
            if self.steps.is_some() {
                spec.expected = spec.expected.map(steps::slower_alone);
            }
            self.events += 1;
            self.tell(Event::Submitted(spec));
        }
        self.step_all();
        self.report_leases();
        if self.engine.wake_at().is_some_and(|at| at <= self.now) {
            self.events += 1;
            self.tell(Event::Wake);
        }
        while let Some(command) = self.engine.poll() {
            if let Some(journal) = &mut self.journal {
                journal.commands.push((self.now, command.clone()));
            }
            match command {
                Command::Launch {
                    job,
                    generation,
                    allocation,
                } => self.launch(job, generation, allocation),
                Command::Stop {
                    job,
                    generation,
                    reason,
                } => self.stop(job, generation, reason),
                Command::Resize { job, allocation, .. } => self.resize(job, allocation),
                Command::Reject { job, .. } => {
                    self.blocking
                        .leave(self.waited(job), self.truths[job.0 as usize].left);
                    let truth = &mut self.truths[job.0 as usize];
                    (truth.rejected, truth.doing) = (true, Doing::Done);
                    self.job_is_over(job);
                }
            }
        }
        self.credit_leases();
        if self.steps.is_some() {
            self.foresee();
        } else {
            self.update_shared_speeds();
        }
    }

    /// All time a job that holds no GPUs has been without them.
    fn waited(&self, id: JobId) -> Time {
        let (truth, job) = (&self.truths[id.0 as usize], &self.workload.jobs[id.0 as usize]);
        self.now.since(job.submit).since(truth.held)
    }

    /// Writes down what the cluster is like now, if that has changed; of several times at one moment the last counts.
    fn note_moment(&mut self) {
        let mut moment = Moment {
            at: self.now,
            idle_nodes: 0,
            busy_nodes: 0,
            full_nodes: 0,
            idle_gpus: self.up_gpus.saturating_sub(self.busy_gpus),
            busy_gpus: self.busy_gpus,
            waiting: self.engine.idle().0,
            running: self.engine.holding(),
            finished: self.finished,
        };
        for (_, node) in self.engine.cluster().nodes().filter(|(_, n)| n.up) {
            match node.free_gpus {
                0 => moment.full_nodes += 1,
                free if free == node.spec.gpus => moment.idle_nodes += 1,
                _ => moment.busy_nodes += 1,
            }
        }
        self.moments.pop_if(|last| last.at == moment.at);
        let unchanged = |last: &Moment| {
            Moment {
                at: moment.at,
                ..*last
            } == moment
        };
        if !self.moments.last().is_some_and(unchanged) {
            self.moments.push(moment);
        }
    }

    /// Asks after the jobs the journal wants to know of, and writes down what is new.
    fn ask_after_jobs(&mut self) {
        let Some(journal) = self.journal.as_mut().filter(|j| !j.asks.is_empty()) else {
            return;
        };
        for job in &journal.asks {
            let answer = self.engine.explain(*job);
            let last = journal.answers.iter().rev().find(|(_, other, _)| other == job);
            if last.map_or(&Explanation::Unknown, |(_, _, last)| last) != &answer {
                journal.answers.push((self.now, *job, answer));
            }
        }
    }

    fn tell(&mut self, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.events.push((self.now, event.clone()));
        }
        self.engine.handle(self.now, event);
    }

    fn launch(&mut self, id: JobId, generation: Generation, allocation: Allocation) {
        let rate = self.rate_on(id, &allocation);
        self.blocking
            .leave(self.waited(id), self.truths[id.0 as usize].left);
        let again = generation.0 > 1 && self.config.restart_cost > Time::ZERO;
        let truth = &mut self.truths[id.0 as usize];
        truth.generation = generation;
        (truth.rate, truth.alone, truth.kept) = (rate, rate, Rate::FULL);
        truth.launched = self.now;
        truth.width = allocation.gpus();
        truth.first_start.get_or_insert(self.now);
        self.busy_gpus += match &mut self.sharing {
            None => truth.width,
            Some(sharing) => {
                let (seat, idle) = sharing.join(id, &allocation);
                truth.seat = Some(seat);
                idle
            }
        };
        if let Some(steps) = &mut self.steps {
            steps.launched(id, allocation.clone());
        }
        if let Some(leases) = &mut self.leases {
            leases.take(id, allocation.clone());
        }
        if self.segments.len() < self.config.segments {
            truth.place = Some(Box::new(allocation));
        }
        if again {
            truth.doing = Doing::Starting;
            self.coming.push(Reverse((
                self.now + self.config.restart_cost,
                Coming::Started(id, generation),
            )));
        } else {
            self.run(id, generation);
        }
    }

    fn started(&mut self, id: JobId, generation: Generation) {
        let truth = &self.truths[id.0 as usize];
        if truth.generation == generation && truth.doing == Doing::Starting {
            self.run(id, generation);
        }
    }

    /// The job makes progress from now on.
    fn run(&mut self, id: JobId, generation: Generation) {
        let truth = &mut self.truths[id.0 as usize];
        truth.doing = Doing::Running;
        truth.since = self.now;
        let rate = truth.rate;
        truth.epoch += 1;
        let epoch = truth.epoch;
        if self.steps.is_none() && self.leases.is_none() {
            let span = self.config.span_for(truth.left, rate);
            self.coming.push(Reverse((
                self.now.saturating_add(span),
                Coming::End(id, generation, epoch),
            )));
        }
        self.tell(Event::Started {
            job: id,
            generation,
            rate,
        });
    }

    fn end(&mut self, id: JobId, generation: Generation, epoch: u32) {
        let now = self.now;
        let truth = &mut self.truths[id.0 as usize];
        if truth.generation != generation || truth.doing != Doing::Running || truth.epoch != epoch {
            return;
        }
        if let Some(steps) = &mut self.steps {
            steps.gone(id);
            (truth.left, truth.since) = (Work(0), now);
        }
        if let Some(leases) = &mut self.leases {
            leases.gone(id);
        }
        truth.stop(now, None);
        debug_assert!(truth.left == Work(0), "a job ends when its work is done");
        truth.doing = Doing::Done;
        truth.finish = Some(now);
        let submit = self.workload.jobs[id.0 as usize].submit;
        truth.contention =
            (self.alive_integral - truth.contention) / now.since(submit).as_secs_f64().max(1e-9);
        self.leave_gpus(id);
        self.finished += 1;
        self.job_is_over(id);
        self.close_segment(id);
        self.tell(Event::Exited {
            job: id,
            generation,
            outcome: Outcome::Completed,
        });
    }

    fn job_is_over(&mut self, id: JobId) {
        if self.config.stop_after_tracked && metrics::is_tracked(id.0 as usize, self.workload, self.config) {
            self.tracked_left -= 1;
        }
    }

    fn stop(&mut self, id: JobId, generation: Generation, reason: StopReason) {
        let job = &self.workload.jobs[id.0 as usize];
        let interval = job.checkpoint.or(self.config.checkpoint);
        let unsaved = (!self.config.saves_on_stop).then(|| interval.unwrap_or(Time::MAX));
        let lost = match reason {
            StopReason::NodeLost(_) => interval,
            StopReason::Preempted | StopReason::Moved | StopReason::Resized | StopReason::Cancelled => {
                unsaved
            }
        };
        if let Some(steps) = &mut self.steps {
            steps.gone(id);
        }
        if let Some(leases) = &mut self.leases {
            leases.gone(id);
        }
        let truth = &mut self.truths[id.0 as usize];
        truth.stop(self.now, lost);
        truth.preemptions += 1;
        let work = match self.steps {
            Some(_) => steps::slower_alone(job.work),
            None => job.work,
        };
        let done = work.minus(truth.left);
        let left = truth.left;
        self.blocking.enter(self.waited(id), left);
        self.leave_gpus(id);
        self.close_segment(id);
        self.tell(Event::Stopped {
            job: id,
            generation,
            done,
        });
    }

    fn close_segment(&mut self, id: JobId) {
        let truth = &mut self.truths[id.0 as usize];
        let Some(place) = truth.place.take() else { return };
        let (start, end) = (truth.launched, self.now);
        if end > start {
            let piece = |share: &dovetail_model::NodeShare| Segment {
                job: id,
                node: share.node,
                slots: share.gpus.iter().collect(),
                start,
                end,
            };
            self.segments.extend(place.shares.iter().map(piece));
        }
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
            solved: self.engine.solved(),
        }
    }
}

impl SimConfig {
    /// How long this much work takes, in whole rounds where the reference counts so.
    fn span_for(&self, left: Work, rate: Rate) -> Time {
        let exact = rate.time_for(left);
        match (self.compat, self.clock) {
            (Compat::Blox { .. }, Clock::Rounds { period, .. }) => exact.next_multiple_of(period).max(period),
            _ => exact,
        }
    }
}
