//! The cluster state: jobs, nodes, virtual clusters and the engine, as they follow from the facts so far.
//!
//! [`ClusterState`] owns one structure for each of them and applies facts. A structure that spans several of them, such as
//! `JobLifecycle`, borrows what it changes for one fact.

mod alternatives;
mod attempts;
mod commands;
mod error;
mod events;
mod explain;
mod feasibility;
mod jobs;
mod names;
mod nodes;
mod policy;
mod preview;
mod queries;
mod scheduler;
mod text;
mod virtual_clusters;

use dovetail_engine::{Capabilities, Clock, Snapshot};
use dovetail_model::{Command, Event, IdVec, JobKey, NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::actor::Actor;
use crate::fact::{Fact, OperatorAction, PolicyText, TaskEnd};
use crate::virtual_clusters::VirtualClusters;
use attempts::AttemptLifecycle;
use events::EventLog;
use jobs::{JobLifecycle, JobTable};
use names::Names;
use nodes::{NodeLifecycle, NodeTable};
use scheduler::{EarlierPolicy, SavedScheduler, Scheduler};

pub use alternatives::Alternative;
pub use commands::{RuntimeCommand, StartInstance, StartTask, TaskPeer};
pub use error::{InconsistentState, Infeasible, PolicyTextError, SnapshotError, VirtualClusterChangeError};
pub use events::{ClusterEvent, EventKind};
pub use explain::{Blocker, JobExplanation};
pub use jobs::{
    Attempt, AttemptEnd, Cause, End, Failures, Hold, JobRecord, JobState, Progress, ProgressSample,
    TaskState, Verdict,
};
pub use nodes::{NodeRecord, NodeState};
pub use preview::{NodeSlots, SubmissionPreview};
pub use virtual_clusters::VirtualClusterChange;

/// Everything that follows from the facts so far.
#[derive(Debug)]
pub struct ClusterState {
    jobs: JobTable,
    nodes: NodeTable,
    virtual_clusters: VirtualClusters,
    scheduler: Scheduler,
    events: EventLog,
    /// Commands to agents that were not taken yet.
    commands: Vec<(NodeId, RuntimeCommand)>,
    /// Time of the last fact.
    now: Time,
}

/// The saved form of a cluster state.
#[derive(Debug, Serialize, Deserialize)]
struct SavedState {
    engine: Snapshot,
    policy: PolicyText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier_policies: Vec<EarlierPolicy>,
    #[serde(default, alias = "clusters")]
    virtual_clusters: VirtualClusters,
    jobs: Vec<JobRecord>,
    nodes: NodeTable,
    names: Names,
    #[serde(alias = "tickets")]
    job_ids: IdVec<JobKey, JobId>,
    now: Time,
    #[serde(alias = "next_notice")]
    next_event: u64,
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
            events: EventLog::new(1),
            commands: Vec::new(),
            now: Time::ZERO,
        })
    }

    /// Returns the state on a runtime: from now on, policies that need more than it can do are refused.
    ///
    /// # Errors
    /// If the policy in force needs more.
    pub fn on(mut self, runtime: Capabilities) -> Result<Self, PolicyTextError> {
        self.scheduler.set_runtime(runtime)?;
        Ok(self)
    }

    /// Returns the state as bytes.
    ///
    /// # Errors
    /// If a value cannot be written as JSON, which would be a bug.
    pub fn save(&self) -> Result<Vec<u8>, serde_json::Error> {
        let SavedScheduler {
            engine,
            policy,
            earlier_policies,
            names,
            job_ids,
        } = self.scheduler.save();
        serde_json::to_vec(&SavedState {
            engine,
            policy,
            earlier_policies,
            virtual_clusters: self.virtual_clusters.clone(),
            jobs: self.jobs.iter().cloned().collect(),
            nodes: self.nodes.clone(),
            names,
            job_ids,
            now: self.now,
            next_event: self.events.next(),
        })
    }

    /// Restores a state from the bytes of [`ClusterState::save`].
    ///
    /// # Errors
    /// If the bytes are not a saved state.
    pub fn load(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let saved: SavedState = serde_json::from_slice(bytes)?;
        let scheduler = SavedScheduler {
            engine: saved.engine,
            policy: saved.policy,
            earlier_policies: saved.earlier_policies,
            names: saved.names,
            job_ids: saved.job_ids,
        };
        Ok(Self {
            scheduler: Scheduler::restore(scheduler, &saved.virtual_clusters, &saved.nodes)?,
            jobs: JobTable::new(saved.jobs),
            nodes: saved.nodes,
            virtual_clusters: saved.virtual_clusters,
            events: EventLog::new(saved.next_event),
            commands: Vec::new(),
            now: saved.now,
        })
    }

    /// Applies a fact. Commands and events that follow from it can be taken afterwards.
    pub fn apply(&mut self, at: Time, fact: &Fact) {
        self.now = self.now.max(at);
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
            | Fact::AttemptAborted { .. }
            | Fact::TimeLimitReached { .. } => self.apply_to_attempts(fact),
            Fact::Operated { action, by } => self.operate(action, by),
            Fact::Woke => self.scheduler.handle(self.now, Event::Wake),
            _ => self.apply_to_jobs(fact),
        }
        self.execute_engine_commands();
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
            Fact::FoundEnded { .. } => jobs.add_ended(fact),
            Fact::WorkloadLost { job } => jobs.lose_workload(*job),
            Fact::WorkloadReady { job, request } => jobs.restore_workload(*job, request.as_deref()),
            Fact::Cancelled { job, by } => jobs.cancel(*job, by),
            Fact::Held { job, by } => jobs.hold(*job, by),
            Fact::Released { job, .. } => jobs.release(*job),
            Fact::Prioritized { job, priority, .. } => jobs.set_priority(*job, *priority),
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
                checkpoint_step,
            } => {
                let record = self.jobs.get_mut(*job);
                if let Some(record) = record.filter(|r| r.attempt().is_some_and(|a| a.is_open(*attempt))) {
                    let reported = Progress {
                        step: *step,
                        total: *total_steps,
                        step_time: *step_time,
                        checkpoint: *checkpoint_step,
                    };
                    record.record_progress(self.now, reported);
                }
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

    /// Executes the commands of the engine until there are no more.
    fn execute_engine_commands(&mut self) {
        while let Some(command) = self.scheduler.engine_mut().poll() {
            match command {
                Command::Launch {
                    job,
                    attempt,
                    allocation,
                } => self.attempt_lifecycle().launch(job, attempt, allocation),
                Command::Resize {
                    job,
                    attempt,
                    allocation,
                } => self.attempt_lifecycle().resize(job, attempt, allocation),
                Command::Stop { job, attempt, reason } => self.attempt_lifecycle().stop(job, attempt, reason),
                Command::Reject { job, reason } => {
                    let end = End::Rejected(self.reason(&reason));
                    let id = self.scheduler.job_id(job);
                    self.attempt_lifecycle().jobs.end(id, end);
                }
            }
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
        // The engine's stop commands come first: tasks must be known to be stopping before they end.
        self.execute_engine_commands();
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

    fn operate(&mut self, action: &OperatorAction, by: &Actor) {
        // Changes are checked before they become facts; an older release may still have accepted one that fails now.
        let changed = match action {
            OperatorAction::Policy(text) => self
                .scheduler
                .set_policy(self.now, text, &self.virtual_clusters, &self.nodes)
                .map_err(|error| format!("policy {}: {error}", text.policy)),
            OperatorAction::VirtualClusters(clusters) => self
                .set_virtual_clusters(clusters)
                .map_err(|error| format!("virtual clusters: {error}")),
            OperatorAction::Round(period) => {
                let clock = period.map_or(Clock::Events, Clock::rounds);
                self.scheduler.engine_mut().set_clock(clock);
                Ok(())
            }
            OperatorAction::Pause | OperatorAction::Resume => {
                let is_paused = *action == OperatorAction::Pause;
                self.scheduler.engine_mut().set_paused(is_paused);
                Ok(())
            }
        };
        let kind = match changed {
            Ok(()) => EventKind::Operated {
                action: action.clone(),
                by: by.clone(),
            },
            Err(error) => EventKind::Refused(error),
        };
        self.events.log(self.now, None, kind);
    }

    fn set_virtual_clusters(&mut self, clusters: &VirtualClusters) -> Result<(), VirtualClusterChangeError> {
        virtual_clusters::check_owners(self, clusters)?;
        self.scheduler.set_virtual_clusters(clusters, &self.nodes)?;
        self.virtual_clusters = clusters.clone();
        self.scheduler.handle(self.now, Event::Wake);
        self.execute_engine_commands();
        self.attempt_lifecycle().jobs.enqueue_below_caps();
        Ok(())
    }

    /// Returns the commands to agents since the last call.
    pub fn take_commands(&mut self) -> Vec<(NodeId, RuntimeCommand)> {
        std::mem::take(&mut self.commands)
    }

    /// Takes over the events of another state that are older than all events of this one.
    pub(crate) fn adopt_older_events(&mut self, other: Self) {
        self.events.prepend(other.events);
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
