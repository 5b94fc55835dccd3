//! The engine: facts in, commands out.

use std::collections::VecDeque;

use dovetail_model::run::Solved;
use dovetail_model::{
    Allocation, ClusterSpec, Command, Event, JobId, JobSpec, Outcome, Share, StopReason, Time, Work,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smallvec::SmallVec;

use crate::draft::Changes;
use crate::job::{Job, Live};
use crate::parts::Policy;
use crate::replan::same_gpus;
use crate::round::Round;
use crate::state::{Entry, Seat, State};

/// When decisions are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// Whenever something happens.
    Events,
    /// Only at multiples of a period.
    Rounds {
        /// The period.
        period: Time,
        /// Rounds are this long after the multiples.
        #[serde(default)]
        offset: Time,
    },
}

impl Clock {
    /// Rounds at the multiples of a period.
    pub fn rounds(period: Time) -> Self {
        Self::Rounds {
            period,
            offset: Time::ZERO,
        }
    }

    /// The first moment from `at` on at which a decision may be taken.
    fn next(self, at: Time) -> Time {
        match self {
            Self::Events => at,
            Self::Rounds { period, offset } => (at - offset).next_multiple_of(period) + offset,
        }
    }
}

/// The scheduling engine. `Clone` gives an independent copy; a snapshot, or a journal of all events, gives the same
/// engine again.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) books: Books,
    pub(crate) commands: VecDeque<Command>,
}

/// What the engine remembers of its own decisions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Books {
    pub(crate) clock: Clock,
    /// Something changed since the last decision.
    pub(crate) dirty: bool,
    pub(crate) last_decision: Option<Time>,
    /// The discipline wants to decide again at this moment.
    pub(crate) wake: Option<Time>,
    /// GPUs are kept for this job, which should start at that moment.
    pub(crate) kept_for: Option<(JobId, Option<Time>)>,
    pub(crate) decisions: u64,
    pub(crate) redraw: bool,
    /// An operator wants no decisions for now.
    #[serde(default)]
    pub(crate) paused: bool,
}

/// Everything it takes to go on later, or elsewhere, exactly as before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub(crate) state: State,
    pub(crate) books: Books,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) parts: [Value; 7],
}

impl Engine {
    /// An engine with no nodes and no jobs.
    pub fn new(policy: Policy, clock: Clock) -> Self {
        let mut state = State::default();
        state.suit(&policy);
        let books = Books {
            clock,
            dirty: false,
            last_decision: None,
            wake: None,
            kept_for: None,
            decisions: 0,
            redraw: false,
            paused: false,
        };
        Self {
            state,
            policy,
            books,
            commands: VecDeque::new(),
        }
    }

    /// An engine over a cluster whose nodes are all up at the epoch.
    pub fn with_cluster(policy: Policy, clock: Clock, cluster: &ClusterSpec) -> Self {
        let mut engine = Self::new(policy, clock);
        engine.state.cluster.zones = cluster.zones.clone();
        for (node, spec) in cluster.nodes.iter() {
            engine.handle(
                Time::ZERO,
                Event::NodeUp {
                    node,
                    spec: spec.clone(),
                },
            );
        }
        engine
    }

    /// Learns a fact. Facts come in order of time; one that was told before, or that answers an old command, changes
    /// nothing.
    pub fn handle(&mut self, now: Time, event: Event) {
        debug_assert!(now >= self.state.now, "facts come in order of time");
        self.state.now = now.max(self.state.now);
        match event {
            Event::Submitted(spec) => self.submitted(spec),
            Event::Returned(returned) => self.returned(*returned),
            Event::Cancelled { job } => self.cancelled(job),
            Event::Started {
                job,
                generation,
                rate,
            } => {
                if self.lives(job, generation, |live| *live == Live::Launched) {
                    let entry = self.state.entry(job);
                    entry.job.live = Live::Running;
                    (entry.job.rate, entry.job.done_at) = (rate, now);
                    self.holder_changed(job);
                }
            }
            Event::Progressed {
                job,
                generation,
                done,
                rate,
            } => {
                if self.lives(job, generation, |live| *live == Live::Running) {
                    let entry = self.state.entry(job);
                    (entry.job.done, entry.job.rate, entry.job.done_at) = (done, rate, now);
                    self.holder_changed(job);
                }
            }
            Event::Exited {
                job,
                generation,
                outcome,
            } => {
                if self.lives(job, generation, |live| *live != Live::Nothing) {
                    self.exited(job, outcome);
                }
            }
            Event::Stopped {
                job,
                generation,
                done,
            } => {
                if self.lives(job, generation, |live| *live != Live::Nothing) {
                    self.stopped(job, done);
                }
            }
            Event::NodeUp { node, spec } => self.node_up(node, spec),
            Event::NodeDown { node } => self.node_down(node),
            Event::NodeDraining { node } => self.node_open(node, true),
            Event::NodeResumed { node } => self.node_open(node, false),
            Event::NodeWithheld {
                node,
                gpus,
                cpu_milli,
                memory_mib,
            } => self.node_withheld(node, gpus, Share::new(cpu_milli, memory_mib)),
            Event::Fenced { fence, nodes } => self.fenced(fence, &nodes),
            Event::Wake => {
                self.books.dirty |= self.books.wake.is_some_and(|w| w <= now);
                self.books.dirty |= self.state.expiries.first().is_some_and(|(at, _)| *at <= now);
                self.books.dirty |= self.time_matters();
            }
        }
    }

    /// The integer programs behind its decisions so far.
    pub fn solved(&self) -> Solved {
        self.policy.sizing.solved()
    }

    /// What should be done next, if anything. Takes a decision first when one is due.
    pub fn poll(&mut self) -> Option<Command> {
        if self.commands.is_empty() && self.books.dirty && !self.books.paused && self.decision_is_due() {
            self.decide();
        }
        if self.commands.is_empty() && self.may_share_out() {
            // Someone has really gone since the decision: what he had is there for the others now.
            self.share_out();
        }
        let command = self.commands.pop_front();
        if command.is_none() {
            // What happened since the decision may have changed lines, and with them the moment to wake.
            if self.policy.order.sees_again() && self.state.has_stale() {
                self.see_all();
            }
            self.state.reseat(&*self.policy.order, &*self.policy.tenancy);
        }
        command
    }

    /// The moment at which `Wake` should be told, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        if self.books.paused {
            return None;
        }
        let asked = self
            .books
            .wake
            .into_iter()
            .chain(
                self.state
                    .expiries
                    .first()
                    .map(|(at, _)| *at)
                    .filter(|_| self.someone_waits()),
            )
            .min();
        match self.books.clock {
            Clock::Events => asked,
            Clock::Rounds { period, .. } => {
                let next = match self.books.last_decision {
                    Some(last) if last == self.state.now => last + period,
                    _ => self.books.clock.next(self.state.now),
                };
                if self.books.dirty || self.time_matters() {
                    return Some(next);
                }
                asked.map(|at| self.books.clock.next(at.max(next)))
            }
        }
    }

    /// Whether a line that runs out can matter: to who is served next, when nobody waits, it cannot.
    fn someone_waits(&self) -> bool {
        self.state.idle_jobs > 0
    }

    /// In rounds, jobs that move along their lines can pass each other between two rounds.
    fn time_matters(&self) -> bool {
        self.policy.discipline.preempts()
            && matches!(self.books.clock, Clock::Rounds { .. })
            && self.state.holding.len() > 0
            && (self.state.waiting.len() > 0 || !self.state.stale.is_empty())
    }

    /// Whether CPU and memory may change now without a decision: in rounds only at the moment of one.
    fn may_share_out(&self) -> bool {
        self.books.clock == Clock::Events || self.books.last_decision == Some(self.state.now)
    }

    fn decision_is_due(&self) -> bool {
        match self.books.clock {
            Clock::Events => true,
            Clock::Rounds { .. } => {
                self.books.clock.next(self.state.now) == self.state.now
                    && self.books.last_decision != Some(self.state.now)
            }
        }
    }

    /// One decision: admit, order, walk (size, group, place), diff.
    fn decide(&mut self) {
        self.books.dirty = false;
        self.books.wake = None;
        self.books.last_decision = Some(self.state.now);
        self.books.decisions += 1;
        self.withhold_what_is_free();
        self.admit();
        self.draw_lines();
        let policy = &mut self.policy;
        let mut round = Round::new(
            &mut self.state,
            &mut *policy.sizing,
            &mut *policy.grouping,
            &mut *policy.tenancy,
            &mut *policy.placement,
        );
        round.enough_only = round.sizing.enough_first() && policy.discipline.fills_up();
        let settle = round.enough_only;
        policy.discipline.walk(&mut round);
        if settle {
            round.settle();
        }
        let (draft, wake, kept_for) = round.finish();
        (self.books.wake, self.books.kept_for) = (wake, kept_for);
        let changed = !draft.is_empty();
        if changed {
            self.carry_out(draft.changes(&self.state));
        }
        self.share_out();
        if changed {
            self.launch_what_can_start();
        }
        for id in self.policy.tenancy.decided() {
            self.state.mark_stale(id);
        }
    }

    /// Brings every line that has run out, or whose job changed, up to date.
    fn draw_lines(&mut self) {
        if std::mem::take(&mut self.books.redraw) {
            let all: Vec<JobId> = self.state.jobs().map(|j| j.spec.id).collect();
            all.into_iter().for_each(|id| self.state.mark_stale(id));
        }
        if self.policy.order.looks_at_crowd() {
            self.see_all();
        }
        self.state.expire();
        self.state.reseat(&*self.policy.order, &*self.policy.tenancy);
    }

    /// Lets the order look at all jobs, which are then asked for anew.
    fn see_all(&mut self) {
        let state = &self.state;
        self.policy
            .order
            .see(&mut state.jobs(), &state.cluster, state.now);
        self.state.mark_all_stale();
    }

    /// The one place where the difference between plan and present becomes commands.
    fn carry_out(&mut self, changes: Changes) {
        // Who comes is told nothing before he can start, so all of them come together, by id.
        let Changes { mut come, others } = changes;
        come.sort_unstable();
        self.state.unseat_all(&come);
        self.state.pend_all(&come);
        come.into_iter().for_each(|id| self.holder_changed(id));
        for (id, before) in others {
            self.change_holder(id, before);
        }
    }

    /// What becomes of a job that held something.
    fn change_holder(&mut self, id: JobId, before: Allocation) {
        match self.state.known(id).allocation.clone() {
            None => {
                self.state.unpend(id);
                if self.state.known(id).is_up() {
                    self.stop(id, before, StopReason::Preempted);
                } else {
                    self.state.entry(id).job.granted = None;
                    self.state.mark_stale(id);
                }
            }
            Some(target) if same_gpus(&before, &target) && self.state.known(id).is_up() => {
                if !self.state.fills {
                    self.resize(id, target);
                }
            }
            Some(target) => {
                if self.state.known(id).is_up() {
                    let reason = if before.gpus() == target.gpus() {
                        StopReason::Moved
                    } else {
                        StopReason::Resized
                    };
                    self.stop(id, before, reason);
                }
                self.state.pend(id);
                self.holder_changed(id);
            }
        }
    }

    /// Tells a job to stop. Its GPUs are no longer its own, but not free either until it has stopped.
    pub(crate) fn stop(&mut self, id: JobId, held: Allocation, reason: StopReason) {
        let now = self.state.now;
        let held = self.state.entry(id).job.granted.take().unwrap_or(held);
        self.state.cluster.linger(&held);
        self.state.touch(&held);
        let job = &mut self.state.entry(id).job;
        let span = now.since(job.held_since);
        job.done = job.done(now);
        job.done_at = now;
        job.held_before += span;
        job.gpu_time_before += i128::from(span.0) * i128::from(held.gpus());
        job.live = Live::Stopping(held);
        job.waiting_since = now;
        job.preemptions += u32::from(reason == StopReason::Preempted);
        job.stopped_in = self.books.decisions;
        let generation = job.generation;
        self.state.mark_stale(id);
        self.commands.push_back(Command::Stop {
            job: id,
            generation,
            reason,
        });
    }

    /// Launches every placed job whose GPUs are really free.
    fn launch_what_can_start(&mut self) {
        if self.state.pending.is_empty() {
            return;
        }
        let now = self.state.now;
        let mut pending = std::mem::take(&mut self.state.pending);
        let can_start = |id: &JobId| {
            let job = self.state.known(*id);
            let allocation = job.allocation.as_ref();
            let allocation = allocation.expect("what is about to start was placed");
            job.live == Live::Nothing && self.state.cluster.is_given_up(allocation)
        };
        let start: SmallVec<[JobId; 16]> = pending.iter().copied().filter(can_start).collect();
        if start.len() == pending.len() {
            pending.clear();
        } else {
            pending.retain(|id| start.binary_search(id).is_err());
        }
        self.state.pending = pending;
        self.commands.reserve(start.len());
        for id in start {
            let job = &mut self.state.entry(id).job;
            job.generation.0 += 1;
            job.live = Live::Launched;
            job.held_since = now;
            job.first_start.get_or_insert(now);
            let allocation = job.holds().cloned().expect("looked at above");
            self.commands.push_back(Command::Launch {
                job: id,
                generation: job.generation,
                allocation,
            });
        }
    }

    fn lives(
        &self,
        id: JobId,
        generation: dovetail_model::Generation,
        wanted: impl Fn(&Live) -> bool,
    ) -> bool {
        self.state
            .job(id)
            .is_some_and(|job| job.generation == generation && wanted(&job.live))
    }

    pub(crate) fn holder_changed(&mut self, id: JobId) {
        if self.state.keep_holders {
            self.state.mark_stale(id);
        }
    }

    pub(crate) fn submitted(&mut self, spec: JobSpec) {
        let id = spec.id;
        // Ids are dense: one inside the table was told before, and its job may be over.
        if self.state.jobs.get(id).is_some() {
            return;
        }
        self.state.count_crowd();
        self.state.idle_jobs += 1;
        self.state.idle_gpus += u64::from(spec.gpus);
        let mut job = Job::new(spec, self.state.now);
        job.job_time_before = self.state.job_time;
        *self.state.jobs.entry(id) = Some(Box::new(Entry {
            job,
            seat: Seat::None,
            stale: false,
        }));
        self.state.inbox.push(id);
        self.books.dirty = true;
    }

    fn cancelled(&mut self, id: JobId) {
        let Some(job) = self.state.job(id) else { return };
        self.books.dirty = true;
        match job.live {
            Live::Nothing => drop(self.forget(id)),
            Live::Launched | Live::Running => {
                self.state.entry(id).job.cancelled = true;
                let held = self.take_back(id);
                self.stop(id, held, StopReason::Cancelled);
            }
            Live::Stopping(_) => {
                self.state.entry(id).job.cancelled = true;
                if self.state.known(id).allocation.is_some() {
                    self.take_back(id);
                }
            }
        }
    }

    fn exited(&mut self, id: JobId, outcome: Outcome) {
        let job = self.forget(id);
        if let Live::Stopping(held) = &job.live {
            self.state.cluster.unlinger(held);
            self.state.touch(held);
        }
        if outcome == Outcome::Completed {
            self.books.redraw |= self.policy.order.finished(&job, self.state.now);
        }
        self.books.dirty = true;
        self.launch_what_can_start();
    }

    fn stopped(&mut self, id: JobId, done: Work) {
        let now = self.state.now;
        if !matches!(self.state.known(id).live, Live::Stopping(_)) {
            let held = self.take_back(id);
            self.stop(id, held, StopReason::Preempted);
            self.commands.pop_back();
            self.books.dirty = true;
        }
        let job = &mut self.state.entry(id).job;
        let Live::Stopping(held) = std::mem::replace(&mut job.live, Live::Nothing) else {
            unreachable!("it was stopping")
        };
        (job.done, job.done_at, job.waiting_since) = (done, now, now);
        let (cancelled, stopped_in) = (job.cancelled, job.stopped_in);
        self.state.cluster.unlinger(&held);
        self.state.touch(&held);
        if cancelled {
            self.forget(id);
        } else {
            self.state.mark_stale(id);
        }
        // A job thrown out by a decision of this very moment was looked at in that decision, though not in later ones.
        self.books.dirty |= self.books.last_decision != Some(now) || stopped_in != self.books.decisions;
        self.launch_what_can_start();
    }

    /// Takes the GPUs of a holder outside a draft.
    pub(crate) fn take_back(&mut self, id: JobId) -> Allocation {
        let held = self
            .state
            .entry(id)
            .job
            .allocation
            .take()
            .expect("a holder holds GPUs");
        self.state.give_back(id, &held, &mut *self.policy.tenancy);
        self.state.unpend(id);
        self.state.mark_stale(id);
        let job = &mut self.state.entry(id).job;
        if !job.is_up() {
            job.granted = None;
        }
        held
    }

    fn forget(&mut self, id: JobId) -> Job {
        if self.state.known(id).stage != crate::job::Stage::Active {
            self.state.inbox.retain(|j| *j != id);
            self.state
                .held
                .values_mut()
                .for_each(|lane| lane.retain(|j| *j != id));
        }
        self.state.forget(id, &mut *self.policy.tenancy)
    }
}
