//! The cluster state: jobs, nodes, virtual clusters and the engine, as they follow from the facts so far.
//!
//! [`ClusterState`] owns one structure for each of them and applies facts. A structure that spans several of them, such as
//! `JobLifecycle`, borrows what it changes for one fact.

mod alternatives;
mod attempts;
mod commands;
mod decisions;
mod error;
mod events;
mod explain;
mod feasibility;
mod jobs;
pub(crate) mod learning;
mod names;
mod nodes;
mod policy;
mod preview;
mod queries;
mod restart;
mod running_names;
mod saved;
mod scheduler;
mod text;
mod trials;
mod virtual_clusters;

use std::collections::BTreeSet;

use dovetail_engine::{Capabilities, Clock};
use dovetail_model::{Event, NodeId, Time};

use crate::JobId;
use crate::decision::Decision;
use crate::fact::{Fact, PolicyText, TaskEnd};
use crate::virtual_clusters::VirtualClusters;
use attempts::AttemptLifecycle;
use events::EventLog;
use jobs::{JobLifecycle, JobTable, record_progress, set_running_since};
use learning::Learning;
pub(crate) use names::Names;
use nodes::{NodeLifecycle, NodeTable};
use scheduler::Scheduler;

pub use alternatives::Alternative;
pub use commands::{RuntimeCommand, StartInstance, StartTask, TaskPeer};
pub use error::{InconsistentState, Infeasible, PolicyTextError, SnapshotError, VirtualClusterChangeError};
pub use events::{ClusterEvent, EventKind};
pub use explain::{Blocker, ExplainContext, JobExplanation, explain_end};
pub use jobs::{
    ArchiveChange, Attempt, AttemptEnd, Cause, EarlierService, End, Estimate, EstimateSource, Failures, Hold,
    JobRecord, JobState, PastEnd, Progress, ProgressSample, TaskState, Verdict,
};
pub use learning::LearnedTraits;
pub use nodes::{NodeRecord, NodeState};
pub use preview::{NodeSlots, SubmissionPreview};
pub use trials::CpuTrial;
pub use virtual_clusters::VirtualClusterChange;

/// Everything that follows from the facts so far.
#[derive(Debug, Clone)]
pub struct ClusterState {
    jobs: JobTable,
    nodes: NodeTable,
    virtual_clusters: VirtualClusters,
    scheduler: Scheduler,
    learning: Learning,
    events: EventLog,
    /// Commands to agents that were not taken yet.
    commands: Vec<(NodeId, RuntimeCommand)>,
    /// Decisions that were not taken yet, for the journal.
    decisions: Vec<Decision>,
    /// Jobs that are measured with other CPU than they were given.
    in_trial: BTreeSet<JobId>,
    /// Time of the last fact.
    now: Time,
}

impl ClusterState {
    /// Creates a state without jobs and nodes, on a runtime that can do everything; see [`ClusterState::on`].
    ///
    /// # Errors
    /// If the policy cannot be built.
    pub fn new(policy: PolicyText, clock: Clock) -> Result<Self, PolicyTextError> {
        Ok(Self {
            jobs: JobTable::default(),
            nodes: NodeTable::default(),
            virtual_clusters: VirtualClusters::default(),
            scheduler: Scheduler::new(policy, clock)?,
            learning: Learning::default(),
            events: EventLog::new(1),
            commands: Vec::new(),
            decisions: Vec::new(),
            in_trial: BTreeSet::new(),
            now: Time::ZERO,
        })
    }

    /// Creates a state without jobs and nodes, to which the records of a journal are applied. The engine is detached until
    /// [`ClusterState::attach_engine`].
    ///
    /// # Errors
    /// If the default policy cannot be built, which would be a bug.
    pub fn replaying(policy: PolicyText, clock: Clock) -> Result<Self, PolicyTextError> {
        let mut state = Self::new(PolicyText::default(), clock)?;
        state.scheduler = Scheduler::detached(policy, clock, Names::default())?;
        Ok(state)
    }

    /// Returns the state as bytes.
    ///
    /// # Errors
    /// If a value cannot be written as JSON, which would be a bug.
    pub fn save(&self) -> Result<Vec<u8>, serde_json::Error> {
        saved::save(self)
    }

    /// Restores a state from the bytes of [`ClusterState::save`].
    ///
    /// # Errors
    /// If the bytes are not a saved state.
    pub fn load(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut state = Self::load_detached(bytes)?;
        if !state.scheduler.is_attached() {
            state.attach_engine()?;
        }
        Ok(state)
    }

    /// Restores a state to which the records after it are to be applied.
    pub(crate) fn load_detached(bytes: &[u8]) -> Result<Self, SnapshotError> {
        saved::load_detached(bytes)
    }

    /// Returns whether the engine decides; not while the records of a journal are applied.
    pub(crate) fn is_attached(&self) -> bool {
        self.scheduler.is_attached()
    }

    /// Begins or ends applying records of a release that did not record its decisions: the engine takes them again, as that
    /// release did.
    pub(crate) fn set_recomputing(&mut self, is_recomputing: bool) {
        self.scheduler.set_recomputing(is_recomputing);
    }

    /// Gives a new engine everything that exists: nodes, queued jobs with their history, and jobs with the GPUs they hold.
    ///
    /// # Errors
    /// If the policy cannot be built. The engine stays detached.
    pub fn attach_engine(&mut self) -> Result<(), PolicyTextError> {
        restart::attach(self)
    }

    /// Returns the state on a runtime: from now on, policies that need more than it can do are refused.
    ///
    /// # Errors
    /// If the policy in force needs more.
    pub fn on(mut self, runtime: Capabilities) -> Result<Self, PolicyTextError> {
        self.scheduler.set_runtime(runtime)?;
        self.scheduler.set_group_factors(&self.learning);
        Ok(self)
    }

    /// Applies a fact, and takes the decisions that are due. Commands, decisions and events that follow can be taken
    /// afterwards.
    pub fn apply(&mut self, at: Time, fact: &Fact) {
        self.now = self.now.max(at);
        self.apply_fact(fact);
        decisions::decide(self);
        if let Fact::Progressed { job, .. } | Fact::Reported { job, .. } = fact {
            trials::advance(self, *job);
        }
    }

    fn apply_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::NodeJoined { .. }
            | Fact::NodeLost { .. }
            | Fact::NodeDrained { .. }
            | Fact::NodeResumed { .. }
            | Fact::NodeUnavailable { .. }
            | Fact::NodeConstraintSet { .. } => self.apply_to_nodes(fact),
            Fact::TaskStarted { .. }
            | Fact::InstanceEnded { .. }
            | Fact::TaskEnded { .. }
            | Fact::Progressed { .. }
            | Fact::Reported { .. }
            | Fact::RunningSince { .. }
            | Fact::AttemptAborted { .. }
            | Fact::TimeLimitReached { .. } => self.apply_to_attempts(fact),
            Fact::Operated { action, by } => decisions::operate(self, action, by),
            Fact::Woke => self.scheduler.handle(self.now, Event::Wake),
            // What it says was used to create the state.
            Fact::Began { .. } => {}
            _ => self.apply_to_jobs(fact),
        }
    }

    /// Applies a decision as the journal has it. Only for a state whose journal is replayed.
    pub fn apply_recorded(&mut self, at: Time, decision: &Decision) {
        self.now = self.now.max(at);
        decisions::apply(self, decision);
    }

    fn apply_to_jobs(&mut self, fact: &Fact) {
        let mut jobs = self.attempt_lifecycle().jobs;
        match fact {
            Fact::Submitted {
                job,
                user,
                request,
                key,
            } => jobs.submit(*job, user, request, key.as_ref()),
            Fact::Announced {
                job,
                user,
                request,
                key,
            } => jobs.announce(*job, user, request, key.as_ref()),
            Fact::Found { .. } => jobs.adopt(fact),
            Fact::Recalled {
                job,
                submitted,
                queued,
                earlier,
            } => jobs.recall(*job, *submitted, *queued, *earlier),
            Fact::FoundEnded { .. } => jobs.add_ended(fact),
            Fact::WorkloadLost { job } => jobs.lose_workload(*job),
            Fact::WorkloadReady { job, request } => jobs.restore_workload(*job, request.as_deref()),
            Fact::Cancelled { job, by } => jobs.cancel(*job, by),
            Fact::Held { job, by } => jobs.hold(*job, by),
            Fact::Released { job, .. } => jobs.release(*job),
            Fact::Prioritized { job, priority, .. } => jobs.set_priority(*job, *priority),
            Fact::DependenciesEnded { jobs: ends } => jobs.jobs.note_past_ends(ends),
            Fact::Labelled { job, key, value, .. } => jobs.set_label(*job, key, value.as_deref()),
            _ => {}
        }
    }

    fn apply_to_attempts(&mut self, fact: &Fact) {
        match fact {
            Fact::TaskStarted {
                job,
                attempt,
                node,
                sharing,
                remarks,
            } => self
                .attempt_lifecycle()
                .start_task(*job, *attempt, *node, sharing, remarks),
            Fact::InstanceEnded { job, attempt, end } => {
                self.attempt_lifecycle().end_instance(*job, *attempt, end);
            }
            Fact::TaskEnded {
                job,
                attempt,
                node,
                end,
            } => self.end_task(*job, *attempt, *node, end),
            Fact::Progressed {
                job,
                attempt,
                step,
                total_steps,
                step_time,
                data_time,
                checkpoint_step,
                stages,
            } => {
                let reported = Progress {
                    step: *step,
                    total: *total_steps,
                    step_time: *step_time,
                    data_time: *data_time,
                    checkpoint: *checkpoint_step,
                };
                let now = self.now;
                record_progress(
                    &mut self.attempt_lifecycle().jobs,
                    (*job, *attempt),
                    now,
                    (reported, stages.as_deref()),
                );
            }
            Fact::Reported {
                job,
                attempt,
                made,
                progress,
            } => record_progress(
                &mut self.attempt_lifecycle().jobs,
                (*job, *attempt),
                *made,
                (*progress, None),
            ),
            Fact::RunningSince { job, attempt, since } => {
                set_running_since(&mut self.attempt_lifecycle().jobs, *job, *attempt, *since);
            }
            Fact::AttemptAborted { job, attempt, reason } => {
                self.attempt_lifecycle().abort(*job, *attempt, reason)
            }
            Fact::TimeLimitReached { job, attempt } => self.attempt_lifecycle().expire(*job, *attempt),
            _ => {}
        }
    }

    fn apply_to_nodes(&mut self, fact: &Fact) {
        match fact {
            Fact::NodeJoined { .. } => self.node_lifecycle().join(fact),
            Fact::NodeLost { node } => self.lose_node(*node),
            Fact::NodeDrained { node, by, reason } => self.node_lifecycle().drain(*node, by, reason),
            Fact::NodeResumed { node, by } => self.node_lifecycle().resume(*node, by),
            Fact::NodeUnavailable {
                node,
                gpus,
                cpu_milli,
                memory_mib,
            } => self.scheduler.handle(
                self.now,
                Event::NodeUnavailable {
                    node: *node,
                    gpus: *gpus,
                    cpu_milli: *cpu_milli,
                    memory_mib: *memory_mib,
                },
            ),
            Fact::NodeConstraintSet { constraint, nodes } => self.scheduler.handle(
                self.now,
                Event::NodeConstraintSet {
                    constraint: *constraint,
                    nodes: nodes.clone(),
                },
            ),
            _ => {}
        }
    }

    fn attempt_lifecycle(&mut self) -> AttemptLifecycle<'_> {
        AttemptLifecycle {
            jobs: JobLifecycle {
                jobs: &mut self.jobs,
                scheduler: &mut self.scheduler,
                learning: &mut self.learning,
                nodes: &self.nodes,
                virtual_clusters: &self.virtual_clusters,
                events: &mut self.events,
                now: self.now,
            },
            commands: &mut self.commands,
        }
    }

    fn node_lifecycle(&mut self) -> NodeLifecycle<'_> {
        NodeLifecycle {
            nodes: &mut self.nodes,
            scheduler: &mut self.scheduler,
            virtual_clusters: &self.virtual_clusters,
            events: &mut self.events,
            now: self.now,
        }
    }

    fn end_task(&mut self, job: JobId, attempt: crate::AttemptId, node: NodeId, end: &TaskEnd) {
        if !self.attempt_lifecycle().record_task_end(job, attempt, node, end) {
            return;
        }
        // A node is drained before its GPUs become free, so that the job does not get them again.
        if let Some(error) = end.platform_error.as_ref().filter(|_| !end.refused) {
            self.node_lifecycle().record_fault(node, error);
        }
        self.attempt_lifecycle()
            .continue_after_task_end(job, attempt, end);
    }

    fn lose_node(&mut self, node: NodeId) {
        if !self.node_lifecycle().lose(node) {
            return;
        }
        if self.scheduler.is_recomputing() {
            decisions::decide(self);
        }
        // Tasks must be known to be stopping before they end.
        let attempts: Vec<_> = self
            .jobs
            .active()
            .filter_map(|job| job.attempt().map(|attempt| (job.id, attempt)))
            .filter(|(_, attempt)| attempt.end.is_none() && attempt.place_of(node).is_some())
            .map(|(job, attempt)| (job, attempt.id))
            .collect();
        for (job, attempt) in attempts {
            self.attempt_lifecycle()
                .stop_attempt(job, attempt, Cause::NodeLost(node));
        }
        // The agent of a lost node ends its tasks by itself.
        let tasks = commands::tasks_on(&self.jobs, node).into_iter();
        let tasks: Vec<_> = tasks.map(|(job, attempt, _)| (job.id, attempt.id)).collect();
        let end = TaskEnd {
            was_stopped: true,
            ..TaskEnd::default()
        };
        for (job, attempt) in tasks {
            self.end_task(job, attempt, node, &end);
        }
    }

    /// Returns the decisions since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// Returns the commands to agents since the last call.
    pub fn take_commands(&mut self) -> Vec<(NodeId, RuntimeCommand)> {
        std::mem::take(&mut self.commands)
    }

    /// Replaces another state, which had changes that are not durable: takes over its older events, and numbers the changes
    /// for the history database after those of the other state.
    pub(crate) fn replace(&mut self, other: Self) {
        self.jobs.number_changes_after(other.jobs.last_change());
        self.events.prepend(other.events);
    }

    /// Begins to note what a history database does not have: from now on ended jobs can leave memory.
    pub fn start_archive(&mut self) {
        if self.jobs.start_archive() {
            self.events.keep_unstored(Vec::new());
        }
    }

    /// Notes what the history database has: changes and events up to these numbers.
    pub fn acknowledge(&mut self, change: u64, event: u64) {
        self.jobs.acknowledge(change);
        self.events.note_stored(event);
    }

    /// Notes that the history database does not have these jobs, although it had confirmed them.
    pub(crate) fn note_missing(&mut self, ids: &[JobId]) {
        self.jobs.note_missing(ids);
    }

    /// Removes and returns the ended jobs that the history database has and that nothing needs any more. The newest `keep`
    /// stay, for forecasts, and those of recent events.
    pub fn depart(&mut self, keep: usize) -> Vec<JobRecord> {
        let recent = self.events.after(0).filter_map(|event| event.job).collect();
        self.jobs.depart(keep, &recent)
    }

    /// Takes back jobs that left memory, because the snapshot without them could not be written.
    pub(crate) fn readmit(&mut self, jobs: Vec<JobRecord>) {
        self.jobs.readmit(jobs);
    }

    /// Checks the invariants of the state.
    ///
    /// # Errors
    /// Returns the first invariant that does not hold.
    pub fn check(&self) -> Result<(), InconsistentState> {
        self.scheduler.engine().check()?;
        for job in self.jobs.iter() {
            let state = || Box::new(job.state.clone());
            if job.state.holds_gpus() != self.jobs.is_active(job.id) {
                return Err(InconsistentState::ActiveIndex {
                    job: job.id,
                    state: state(),
                });
            }
            let engine = self.scheduler.engine();
            let in_engine = job.job_key.is_some_and(|key| engine.job(key).is_some());
            if in_engine != job.state.is_in_engine() {
                return Err(InconsistentState::EngineJob {
                    job: job.id,
                    state: state(),
                    in_engine,
                });
            }
        }
        Ok(())
    }
}
