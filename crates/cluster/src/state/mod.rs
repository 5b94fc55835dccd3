//! The book: all jobs, all nodes and the engine, as they follow from the facts so far.

mod arrays;
mod caps;
mod clusters;
mod instances;
mod instead;
mod jobs;
mod nodes;
mod notices;
mod orders;
mod parts;
mod policy;
mod tasks;
mod why;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dovetail_engine::{Clock, Engine, Snapshot};
use dovetail_model::{Command, Event, IdVec, JobKey, NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::actor::Actor;
use crate::clusters::{DEFAULT_VIRTUAL_CLUSTER, VirtualClusters};
use crate::fact::{Fact, OperatorAction, PolicyText};
use policy::Ground;

pub use clusters::VirtualClusterChange;
pub use instead::Alternative;
pub use jobs::{
    Attempt, AttemptEnd, Cause, End, Hold, JobRecord, JobState, ProgressSample, TaskState, Verdict,
};
pub use nodes::{NodeRecord, NodeState};
pub use notices::{ClusterEvent, EventKind};
pub use orders::{RuntimeCommand, StartInstance, StartTask, TaskPeer};
pub use why::{Blocker, JobExplanation, NodeSlots, SubmissionPreview};

/// Names that are numbers in the engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    tenants: Vec<String>,
    users: Vec<String>,
    gpu_types: Vec<String>,
    racks: Vec<String>,
}

impl Names {
    fn number(table: &mut Vec<String>, name: &str) -> u32 {
        let known = table.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            table.push(name.to_owned());
            table.len() - 1
        });
        number as u32
    }
}

/// Everything that follows from the facts so far.
#[derive(Debug)]
pub struct ClusterState {
    pub(crate) engine: Engine,
    policy: PolicyText,
    clusters: VirtualClusters,
    jobs: BTreeMap<JobId, JobRecord>,
    /// Jobs that hold GPUs.
    up: BTreeSet<JobId>,
    /// Jobs that are not over.
    live: BTreeSet<JobId>,
    nodes: IdVec<NodeId, NodeRecord>,
    pub(crate) names: Names,
    /// The number of each job that is in the engine, by its number there.
    pub(crate) job_ids: IdVec<JobKey, JobId>,
    /// Jobs that wait for another, by that other.
    waiting_for: BTreeMap<JobId, Vec<JobId>>,
    /// Jobs by whoever sent them and what they call the request.
    keys: BTreeMap<(String, String), JobId>,
    /// Jobs that wait because their user has enough already.
    capped: BTreeSet<JobId>,
    /// When running jobs have had their time, with the launch.
    limits: BTreeMap<(Time, JobId), u64>,
    pub(crate) now: Time,
    /// What happened lately, for people who watch.
    notices: VecDeque<ClusterEvent>,
    next_event: u64,
    /// What agents are to be told.
    orders: Vec<(NodeId, RuntimeCommand)>,
}

/// A book on paper.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    engine: Snapshot,
    policy: PolicyText,
    #[serde(default, alias = "clusters")]
    virtual_clusters: VirtualClusters,
    jobs: Vec<JobRecord>,
    nodes: IdVec<NodeId, NodeRecord>,
    names: Names,
    job_ids: IdVec<JobKey, JobId>,
    now: Time,
    #[serde(alias = "next_notice")]
    next_event: u64,
}

impl ClusterState {
    /// An empty book.
    ///
    /// # Errors
    /// Names the part of the policy that does not exist.
    pub fn new(policy: PolicyText, clock: Clock) -> Result<Self, String> {
        let (clusters, mut names, nodes) = (VirtualClusters::default(), Names::default(), IdVec::default());
        // Whoever names no tenant is this one, so it is there before all others.
        Names::number(&mut names.tenants, DEFAULT_VIRTUAL_CLUSTER);
        let ground = Ground {
            clusters: &clusters,
            names: &names,
            nodes: &nodes,
        };
        let engine = Engine::new(policy::build(&policy, ground)?, clock);
        Ok(Self {
            engine,
            policy,
            clusters,
            jobs: BTreeMap::new(),
            up: BTreeSet::new(),
            live: BTreeSet::new(),
            nodes,
            names,
            job_ids: IdVec::default(),
            waiting_for: BTreeMap::new(),
            keys: BTreeMap::new(),
            capped: BTreeSet::new(),
            limits: BTreeMap::new(),
            now: Time::ZERO,
            notices: VecDeque::new(),
            next_event: 1,
            orders: Vec::new(),
        })
    }

    /// The book as bytes.
    ///
    /// # Errors
    /// When a value cannot be written as JSON, which would be a bug.
    pub fn save(&self) -> Result<Vec<u8>, String> {
        let saved = Saved {
            engine: self.engine.snapshot(),
            policy: self.policy.clone(),
            virtual_clusters: self.clusters.clone(),
            jobs: self.jobs.values().cloned().collect(),
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            job_ids: self.job_ids.clone(),
            now: self.now,
            next_event: self.next_event,
        };
        serde_json::to_vec(&saved).map_err(|e| e.to_string())
    }

    /// The book that [`ClusterState::save`] gave the bytes of.
    ///
    /// # Errors
    /// Says what is wrong with them.
    pub fn load(bytes: &[u8]) -> Result<Self, String> {
        let saved: Saved = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let ground = Ground {
            clusters: &saved.virtual_clusters,
            names: &saved.names,
            nodes: &saved.nodes,
        };
        let engine = Engine::restore(saved.engine, policy::build(&saved.policy, ground)?)
            .map_err(|e| e.to_string())?;
        let mut state = Self {
            engine,
            policy: saved.policy,
            clusters: saved.virtual_clusters,
            jobs: saved.jobs.into_iter().map(|job| (job.id, job)).collect(),
            up: BTreeSet::new(),
            live: BTreeSet::new(),
            nodes: saved.nodes,
            names: saved.names,
            job_ids: saved.job_ids,
            waiting_for: BTreeMap::new(),
            keys: BTreeMap::new(),
            capped: BTreeSet::new(),
            limits: BTreeMap::new(),
            now: saved.now,
            notices: VecDeque::new(),
            next_event: saved.next_event,
            orders: Vec::new(),
        };
        state.index();
        Ok(state)
    }

    /// Learns a fact. Orders and notices that follow from it can be taken afterwards.
    pub fn apply(&mut self, at: Time, fact: &Fact) {
        self.now = self.now.max(at);
        match fact {
            Fact::Submitted {
                job,
                user,
                request,
                key,
            } => self.submitted(*job, user, request, key.as_ref()),
            Fact::Announced {
                job,
                user,
                request,
                key,
            } => self.announced(*job, user, request, key.as_ref()),
            Fact::Found { .. } => self.found(fact),
            Fact::FoundEnded { .. } => self.past(fact),
            Fact::WorkloadLost { job } => self.scattered(*job),
            Fact::AttemptAborted { job, attempt, reason } => self.attempt_aborted(*job, *attempt, reason),
            Fact::WorkloadReady { job, request } => self.gathered(*job, request.as_deref()),
            Fact::Cancelled { job, by } => self.cancelled(*job, by),
            Fact::Held { job, by } => self.held(*job, by),
            Fact::Released { job, by } => self.released(*job, by),
            Fact::Prioritized { job, priority, .. } => self.prioritized(*job, *priority),
            Fact::Labelled { job, key, value, .. } => self.labelled(*job, key, value.as_deref()),
            Fact::NodeJoined { .. } => self.node_joined(fact),
            Fact::NodeLost { node } => self.node_lost(*node),
            Fact::NodeDrained { node, by, reason } => self.node_drained(*node, by, reason),
            Fact::NodeResumed { node, by } => self.node_resumed(*node, by),
            Fact::NodeUnavailable {
                node,
                gpus,
                cpu_milli,
                memory_mib,
            } => self.tell(Event::NodeUnavailable {
                node: *node,
                gpus: *gpus,
                cpu_milli: *cpu_milli,
                memory_mib: *memory_mib,
            }),
            Fact::NodeConstraintSet { constraint, nodes } => self.tell(Event::NodeConstraintSet {
                constraint: *constraint,
                nodes: nodes.clone(),
            }),
            Fact::TaskStarted {
                job,
                attempt: attempt_id,
                node,
                sharing,
                remarks,
            } => self.task_started(*job, *attempt_id, *node, sharing, remarks),
            Fact::InstanceEnded {
                job,
                attempt: attempt_id,
                end,
            } => self.instance_ended(*job, *attempt_id, end),
            Fact::TaskEnded {
                job,
                attempt: attempt_id,
                node,
                end,
            } => self.task_ended(*job, *attempt_id, *node, end),
            Fact::Progressed { .. } => self.progressed(fact),
            Fact::TimeLimitReached {
                job,
                attempt: attempt_id,
            } => self.time_is_up(*job, *attempt_id),
            Fact::Operated { action, by } => self.operated(action, by),
            Fact::Woke => self.tell(Event::Wake),
        }
        self.pump();
    }

    fn tell(&mut self, event: Event) {
        self.engine.handle(self.now, event);
    }

    /// Does what the engine wants, until it wants nothing more.
    fn pump(&mut self) {
        while let Some(command) = self.engine.poll() {
            match command {
                Command::Launch {
                    job,
                    attempt: key,
                    allocation,
                } => self.launch(job, key, allocation),
                Command::Resize {
                    job,
                    attempt: key,
                    allocation,
                } => self.resized(job, key, allocation),
                Command::Stop {
                    job,
                    attempt: key,
                    reason,
                } => self.stop(job, key, reason),
                Command::Reject { job, reason } => {
                    let why = self.reason(&reason);
                    self.rejected(job, &why);
                }
            }
        }
    }

    pub(super) fn set_policy(&mut self, policy: dovetail_engine::Policy) -> Result<(), String> {
        self.engine.set_policy(policy).map_err(|e| e.to_string())
    }

    fn operated(&mut self, action: &OperatorAction, by: &Actor) {
        match action {
            OperatorAction::Policy(text) => {
                // It was checked before it was written down; a book from elsewhere may still not know it.
                let changed = policy::build(text, self.ground()).and_then(|policy| self.set_policy(policy));
                match changed {
                    Ok(()) => self.policy = text.clone(),
                    Err(why) => {
                        return self
                            .log_event(None, EventKind::Refused(format!("policy {}: {why}", text.policy)));
                    }
                }
            }
            OperatorAction::Round(None) => self.engine.set_clock(Clock::Events),
            OperatorAction::Round(Some(period)) => self.engine.set_clock(Clock::rounds(*period)),
            OperatorAction::Pause => self.engine.set_paused(true),
            OperatorAction::Resume => self.engine.set_paused(false),
            OperatorAction::VirtualClusters(clusters) => {
                if let Err(why) = self.set_clusters(clusters) {
                    return self.log_event(None, EventKind::Refused(format!("virtual clusters: {why}")));
                }
            }
        }
        self.log_event(
            None,
            EventKind::Operated {
                action: action.clone(),
                by: by.clone(),
            },
        );
    }

    /// Whether another policy would be taken.
    ///
    /// # Errors
    /// Says why not.
    pub fn check_policy(&self, text: &PolicyText) -> Result<(), String> {
        self.engine
            .clone()
            .set_policy(policy::build(text, self.ground())?)
            .map_err(|e| e.to_string())
    }

    /// The moment at which [`Fact::Woke`] or [`Fact::TimeLimitReached`] is due, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        let limit = self.limits.keys().next().map(|(at, _)| *at);
        self.engine.wake_at().into_iter().chain(limit).min()
    }

    /// What is due now because time has passed.
    pub fn due(&self, now: Time) -> Vec<Fact> {
        let over = self.limits.iter().take_while(|((at, _), _)| *at <= now);
        let mut due: Vec<Fact> = over
            .map(|((_, job), attempt_id)| Fact::TimeLimitReached {
                job: *job,
                attempt: *attempt_id,
            })
            .collect();
        if self.engine.wake_at().is_some_and(|at| at <= now) {
            due.push(Fact::Woke);
        }
        due
    }

    /// What agents are to be told since the last time.
    pub fn take_commands(&mut self) -> Vec<(NodeId, RuntimeCommand)> {
        std::mem::take(&mut self.orders)
    }

    /// The number the next job gets.
    pub fn next_job(&self) -> JobId {
        self.jobs.last_key_value().map_or(1, |(no, _)| no + 1)
    }

    /// A job.
    pub fn job(&self, no: JobId) -> Option<&JobRecord> {
        self.jobs.get(&no)
    }

    /// The job that came with this request of the user.
    pub fn job_of_key(&self, user: &str, key: &str) -> Option<&JobRecord> {
        let no = self.keys.get(&(user.to_owned(), key.to_owned()))?;
        self.jobs.get(no)
    }

    /// All jobs, oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.jobs.values()
    }

    /// Jobs from this one on, oldest first.
    pub fn jobs_from(&self, no: JobId) -> impl Iterator<Item = &JobRecord> {
        self.jobs.range(no..).map(|(_, job)| job)
    }

    /// Jobs that are not over, oldest first.
    pub fn unfinished_jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.live.iter().map(|no| &self.jobs[no])
    }

    /// Jobs that hold GPUs, oldest first.
    pub fn active_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.up.iter().map(|no| &self.jobs[no])
    }

    /// Whether nothing is decided for now.
    pub fn is_paused(&self) -> bool {
        self.engine.is_paused()
    }

    /// When the engine decides, in words: `events`, or `rounds:300s`.
    pub fn clock(&self) -> String {
        match self.engine.clock() {
            Clock::Events => "events".to_owned(),
            Clock::Rounds { period, .. } => format!("rounds:{}s", period.as_secs_f64()),
        }
    }

    /// All nodes that ever joined.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter()
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(id)
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes
            .iter()
            .find(|(_, node)| node.spec.name == name)
            .map(|(id, _)| id)
    }

    /// The engine, to look into.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The policy, as it was written.
    pub fn policy(&self) -> &PolicyText {
        &self.policy
    }

    /// The time of the last fact.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether everything agrees: the engine with itself, and every record with the engine.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), String> {
        self.engine.check().map_err(|e| e.to_string())?;
        for job in self.jobs.values() {
            if job.state.holds_gpus() != self.up.contains(&job.id) {
                return Err(format!(
                    "job {} is {:?}, which the list of jobs that are up does not say",
                    job.id, job.state
                ));
            }
            let lives = job.job_key.is_some_and(|t| self.engine.job(t).is_some());
            if lives != job.state.is_in_engine() {
                return Err(format!(
                    "job {} is {:?}, but the engine {}",
                    job.id,
                    job.state,
                    if lives { "has it" } else { "has not" }
                ));
            }
        }
        Ok(())
    }
}
