//! The engine: facts in, commands out.

use std::collections::VecDeque;

use dovetail_model::run::SolverStats;
use dovetail_model::{ClusterSpec, Command, Event, IdVec, JobHistory, JobKey, JobSpec, Time, Zone, ZoneId};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::admit;
use crate::check::{self, CheckError};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::dispatch::Dispatcher;
use crate::explain::{Explainer, Explanation, QueuePositions};
use crate::fill::NodeFiller;
use crate::job::Job;
use crate::load::ClusterLoad;
use crate::parts::{LoadError, Policy};
use crate::planner::Steps;
use crate::round::{Plan, Reservation, Round};
use crate::snapshot::Snapshot;
use crate::state::State;

/// The scheduling engine. `Clone` gives an independent copy; a snapshot, or the journal of all events, reproduces the same
/// engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) progress: Progress,
    pub(crate) commands: VecDeque<Command>,
}

/// What the engine knows about its own decisions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) clock: Clock,
    /// Whether something changed since the last decision.
    pub(crate) dirty: bool,
    pub(crate) last_decision: Option<Time>,
    /// When the discipline wants to decide again.
    pub(crate) wake: Option<Time>,
    /// The job for which GPUs are reserved.
    #[serde(alias = "kept_for")]
    pub(crate) reserved_for: Option<Reservation>,
    /// Number of decisions so far.
    pub(crate) decisions: u64,
    /// Whether the sort keys of all jobs have to be computed again.
    #[serde(alias = "redraw")]
    pub(crate) rekey_all: bool,
    /// Whether an operator has paused decisions.
    #[serde(default)]
    pub(crate) paused: bool,
    /// Whether jobs were taken over with their GPUs since the last decision.
    #[serde(default)]
    pub(crate) adopted: bool,
}

impl Engine {
    /// Returns an engine with no nodes and no jobs.
    pub fn new(mut policy: Policy, clock: Clock) -> Self {
        let mut state = State::default();
        state.adapt_to(&mut policy);
        let progress = Progress {
            clock,
            dirty: false,
            last_decision: None,
            wake: None,
            reserved_for: None,
            decisions: 0,
            rekey_all: false,
            paused: false,
            adopted: false,
        };
        Self {
            state,
            policy,
            progress,
            commands: VecDeque::new(),
        }
    }

    /// Returns an engine over a cluster whose nodes are all up at the epoch.
    pub fn with_cluster(policy: Policy, clock: Clock, cluster: &ClusterSpec) -> Self {
        let mut engine = Self::new(policy, clock);
        engine.set_zones(cluster.zones.clone());
        for (node, spec) in cluster.nodes.iter() {
            let spec = spec.clone();
            engine.handle(Time::ZERO, Event::NodeUp { node, spec });
        }
        engine
    }

    /// Returns the next command, if there is any. Takes a decision first when one is due.
    pub fn poll(&mut self) -> Option<Command> {
        if self.commands.is_empty() && self.progress.dirty && !self.progress.paused && self.decision_is_due()
        {
            self.decide();
        }
        if self.commands.is_empty() && self.may_fill_nodes() {
            // Jobs that have stopped since the decision have left CPU and memory to the others.
            self.fill_nodes();
        }
        let command = self.commands.pop_front();
        if command.is_none() {
            // Events since the decision may have changed sort keys, and with them the moment to wake.
            if self.policy.order.observes_between_decisions() && !self.state.stale.is_empty() {
                self.observe_all();
            }
            // A key that has expired may be renewed here, before the wake for it comes.
            self.progress.wake = self.progress.wake.into_iter().chain(self.state.overdue()).min();
            self.state.update_keys(&*self.policy.order, &*self.policy.tenancy);
        }
        command
    }

    /// Takes one decision: admit, order, walk (size, group, place), diff.
    fn decide(&mut self) {
        self.begin_decision();
        self.admit();
        self.order();
        let policy = &mut self.policy;
        let steps = Steps {
            size: &mut *policy.sizing,
            group: &mut *policy.grouping,
            limit: &mut *policy.tenancy,
            place: &mut *policy.placement,
        };
        let plan = Round::new(&mut self.state, steps).walk(&mut *policy.discipline);
        self.diff(plan);
    }

    fn begin_decision(&mut self) {
        self.progress.dirty = false;
        self.progress.wake = None;
        self.progress.last_decision = Some(self.state.now);
        self.progress.decisions += 1;
        self.set_aside_unavailable();
        if std::mem::take(&mut self.progress.adopted) {
            self.commit_tenancy();
        }
    }

    /// Admits, holds or rejects new and held jobs.
    fn admit(&mut self) {
        admit::admit(&mut self.state, &mut self.policy, &mut self.commands);
    }

    /// Computes every sort key again that has expired, or whose job changed.
    fn order(&mut self) {
        if std::mem::take(&mut self.progress.rekey_all) {
            let all: Vec<JobKey> = self.state.jobs().map(|j| j.spec.id).collect();
            all.into_iter().for_each(|id| self.state.mark_stale(id));
        }
        if self.policy.order.depends_on_all_jobs() {
            self.observe_all();
        }
        self.state.expire_keys();
        self.state.update_keys(&*self.policy.order, &*self.policy.tenancy);
    }

    /// Turns the difference between the plan and what runs into commands.
    fn diff(&mut self, plan: Plan) {
        (self.progress.wake, self.progress.reserved_for) = (plan.wake, plan.reserved_for);
        let has_changes = !plan.draft.is_empty();
        if has_changes {
            let changes = plan.draft.changes(&self.state);
            self.dispatcher().apply(changes);
        }
        self.fill_nodes();
        if has_changes {
            self.dispatcher().launch_ready();
        }
        self.commit_tenancy();
    }

    /// Lets the order look at all jobs, and requests new sort keys for all of them.
    fn observe_all(&mut self) {
        let state = &self.state;
        self.policy
            .order
            .observe(&mut state.jobs(), &state.cluster, state.now);
        self.state.mark_all_stale();
    }

    /// Makes the changes of the tenancy's ledger final, and requests new sort keys for jobs whose class changed.
    pub(crate) fn commit_tenancy(&mut self) {
        for id in self.policy.tenancy.commit() {
            self.state.mark_stale(id);
        }
    }

    /// Sets aside what should be unavailable and has become free.
    pub(crate) fn set_aside_unavailable(&mut self) {
        let nodes = self.state.cluster.set_aside_unavailable();
        if self.state.fills {
            self.state.touched.extend(nodes);
        }
    }

    /// Distributes the CPU and memory of nodes whose jobs changed.
    fn fill_nodes(&mut self) {
        if self.state.touched.is_empty() {
            return;
        }
        let nodes = std::mem::take(&mut self.state.touched);
        if let Some(filling) = self.policy.sizing.filling() {
            NodeFiller {
                state: &mut self.state,
                filling,
                commands: &mut self.commands,
            }
            .run(nodes);
        }
    }

    pub(crate) fn dispatcher(&mut self) -> Dispatcher<'_> {
        Dispatcher {
            state: &mut self.state,
            tenancy: &mut *self.policy.tenancy,
            commands: &mut self.commands,
            decision: self.progress.decisions,
            interleaving: self.policy.grouping.interleaving(),
        }
    }

    /// Returns the moment at which [`Event::Wake`] should be handled if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        if self.progress.paused {
            return None;
        }
        // An expiring key matters only while a job waits.
        let expiry = self.state.queues.expiries.first().map(|(at, _)| *at);
        let expiry = expiry.filter(|_| self.state.idle_jobs > 0);
        let requested = self.progress.wake.into_iter().chain(expiry).min();
        let Clock::Rounds { period, .. } = self.progress.clock else {
            return requested;
        };
        let next = match self.progress.last_decision {
            Some(last) if last == self.state.now => last + period,
            _ => self.progress.clock.next(self.state.now),
        };
        if self.progress.dirty || self.time_matters() {
            return Some(next);
        }
        requested.map(|at| self.progress.clock.next(at.max(next)))
    }

    /// Whether the passing of time alone can change a decision: with rounds, the keys of jobs can cross between two of
    /// them.
    pub(crate) fn time_matters(&self) -> bool {
        self.policy.discipline.preempts()
            && matches!(self.progress.clock, Clock::Rounds { .. })
            && self.state.queues.holders.len() > 0
            && (self.state.queues.queued.len() > 0 || !self.state.stale.is_empty())
    }

    /// Whether CPU and memory may change now without a decision; with rounds, only at the moment of one.
    fn may_fill_nodes(&self) -> bool {
        self.progress.clock == Clock::Events || self.progress.last_decision == Some(self.state.now)
    }

    fn decision_is_due(&self) -> bool {
        match self.progress.clock {
            Clock::Events => true,
            Clock::Rounds { .. } => {
                self.progress.clock.next(self.state.now) == self.state.now
                    && self.progress.last_decision != Some(self.state.now)
            }
        }
    }
}

/// What an operator may change while the engine runs.
impl Engine {
    /// Continues under another policy. No job is stopped for it; the next decision is the new policy's. A part that has the
    /// same name in both policies keeps what it has learned.
    ///
    /// # Errors
    /// Fails when jobs run in a way the new policy does not allow, such as two on one GPU; the old policy then stays.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), CheckError> {
        let mut trial = self.clone();
        trial.change_policy(policy);
        trial.check()?;
        *self = trial;
        Ok(())
    }

    fn change_policy(&mut self, mut policy: Policy) {
        policy.adopt(&self.policy);
        self.policy = policy;
        let all: Vec<JobKey> = self.state.jobs().map(|j| j.spec.id).collect();
        self.state.leave_queues(&all);
        self.state.occupants = Default::default();
        self.state.adapt_to(&mut self.policy);
        for id in all {
            if let Some(allocation) = self.state.job(id).allocation.clone() {
                self.state.occupants.add(id, &allocation);
                self.state.touch(&allocation);
                let fills = self.state.fills;
                let job = &mut self.state.entry(id).job;
                // Under a sizing that grants nothing beyond its promises, every job is left with what it was promised.
                if !fills && job.granted.take().is_some() && job.holds_gpus() {
                    self.dispatcher().resize(id, allocation);
                }
            }
            self.state.mark_stale(id);
        }
        self.inform_tenancy();
        self.progress.wake = None;
        self.progress.reserved_for = None;
        self.progress.dirty = true;
    }

    /// Tells a new tenancy of all jobs that hold GPUs, and then of all nodes.
    pub(crate) fn inform_tenancy(&mut self) {
        let tenancy = &mut self.policy.tenancy;
        for job in self.state.jobs() {
            if let Some(allocation) = &job.allocation {
                tenancy.allocated(&job.spec, allocation);
            }
        }
        for (id, node) in self.state.cluster.nodes() {
            tenancy.node_changed(id, node);
        }
        self.commit_tenancy();
    }

    /// Lets the order learn from a job that completed before this engine was created.
    pub fn learn(&mut self, spec: JobSpec, history: JobHistory, now: Time) {
        let mut job = Job::new(spec, now);
        (job.held_before, job.gpu_time_before) = (history.held, history.gpu_time);
        (job.done, job.first_start) = (history.done, history.first_start);
        self.progress.rekey_all |= self.policy.order.job_finished(&job, now);
    }

    /// Gives the order what an order learned before. Returns whether it accepts it.
    pub fn restore_order(&mut self, learned: &Value) -> bool {
        let mut order = self.policy.order.clone();
        let is_accepted = order.load(learned).is_ok();
        if is_accepted {
            self.policy.order = order;
            self.progress.rekey_all = true;
        }
        is_accepted
    }

    /// Sets when decisions are taken from now on.
    pub fn set_clock(&mut self, clock: Clock) {
        self.progress.clock = clock;
        self.progress.dirty = true;
    }

    /// Pauses or resumes decisions. While paused the engine starts and stops no job, but still handles events.
    pub fn set_paused(&mut self, paused: bool) {
        self.progress.paused = paused;
        self.progress.dirty |= !paused;
    }

    /// Sets the tree above the nodes, for placements that look at racks.
    pub fn set_zones(&mut self, zones: IdVec<ZoneId, Zone>) {
        self.state.cluster.zones = zones;
    }
}

/// What a driver may look at.
impl Engine {
    /// Returns when decisions are taken.
    pub fn clock(&self) -> Clock {
        self.progress.clock
    }

    /// Whether decisions are paused.
    pub fn is_paused(&self) -> bool {
        self.progress.paused
    }

    /// Returns the moment of the last event.
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// Returns the nodes.
    pub fn cluster(&self) -> &Cluster {
        &self.state.cluster
    }

    /// Returns a job that has not ended.
    pub fn job(&self, id: JobKey) -> Option<&Job> {
        self.state.find_job(id)
    }

    /// Returns all unfinished jobs, in order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.state.jobs()
    }

    /// Returns the number of unfinished jobs without an allocation, and of the GPUs they ask for.
    pub fn idle(&self) -> (u32, u64) {
        (self.state.idle_jobs, self.state.idle_gpus)
    }

    /// Returns the number of jobs with an allocation.
    pub fn holding(&self) -> u32 {
        self.state.holding_jobs
    }

    /// Returns the load of the cluster.
    pub fn load(&self) -> ClusterLoad {
        self.state.load()
    }

    /// Returns the number of decisions so far.
    pub fn decisions(&self) -> u64 {
        self.progress.decisions
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns statistics of the integer programs solved for its decisions so far.
    pub fn solver_stats(&self) -> SolverStats {
        self.policy.sizing.solver_stats()
    }

    /// Returns the jobs that wait for GPUs, in queue order.
    pub fn queue(&self) -> Vec<JobKey> {
        let queue = self.state.queues.queued.sorted(self.state.now);
        queue.iter().map(|rank| rank.job).collect()
    }

    /// Returns the positions of all jobs that are queued or held by admission, for [`Engine::explain_at`].
    pub fn queue_positions(&self) -> QueuePositions {
        QueuePositions::new(self.queue(), self.state.held.values())
    }

    /// Explains what a job is doing, and why it is pending if it is.
    pub fn explain(&self, id: JobKey) -> Explanation {
        Explainer::new(self, None).explain(id)
    }

    /// Explains a job like [`Engine::explain`], with positions taken before instead of a sort of the queue.
    pub fn explain_at(&self, id: JobKey, positions: &QueuePositions) -> Explanation {
        Explainer::new(self, Some(positions)).explain(id)
    }

    /// Checks the invariants of the engine.
    ///
    /// # Errors
    /// Describes the first invariant that does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        check::check(&self.state, self.policy.grouping.terms())?;
        let mut holders = self.state.jobs().filter(|j| j.allocation.is_some());
        self.policy.tenancy.check(&mut holders)
    }

    /// Returns everything that is needed to build this engine again.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state.clone(),
            progress: self.progress.clone(),
            commands: self.commands.clone(),
            parts: self.policy.parts().map(|(_, part)| part.save()),
        }
    }

    /// Builds the engine of a snapshot. `policy` must consist of the same parts.
    ///
    /// # Errors
    /// Fails when a part does not accept its saved state.
    pub fn restore(snapshot: Snapshot, mut policy: Policy) -> Result<Self, LoadError> {
        policy.load(&snapshot.parts)?;
        let mut engine = Self {
            state: snapshot.state,
            policy,
            progress: snapshot.progress,
            commands: snapshot.commands,
        };
        engine.state.adapt_to(&mut engine.policy);
        engine.state.rebuild(&*engine.policy.tenancy);
        engine.inform_tenancy();
        Ok(engine)
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.snapshot().serialize(serializer)
    }
}
