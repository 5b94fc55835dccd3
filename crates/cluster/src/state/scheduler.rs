//! The engine, with the policy it was built from and the names and numbers of what it schedules.

mod measured;

use dovetail_engine::{Capabilities, CheckError, Clock, Engine, Policy, Snapshot};
use dovetail_model::ids::Id;
use dovetail_model::{
    Allocation, Command, Event, GpuTypeId, IdVec, JobHistory, JobKey, JobSpec, Outcome, Time, Zone, ZoneId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{PolicyTextError, SnapshotError};
use super::jobs::JobRecord;
use super::names::Names;
use super::nodes::NodeTable;
use super::policy::{self, PolicyContext};
use super::running_names::RunningNames;
use crate::JobId;
use crate::fact::PolicyText;
use crate::request::JobRequest;
use crate::virtual_clusters::{DEFAULT_VIRTUAL_CLUSTER, GuaranteeMode, VirtualClusters};

/// The engine and everything that is needed to talk to it in terms of job numbers and names.
///
/// While a journal is replayed, the engine is detached: it gets no events and decides nothing, because the journal has its
/// decisions. Afterwards a new engine gets what exists.
#[derive(Debug, Clone)]
pub(crate) struct Scheduler {
    engine: Engine,
    is_attached: bool,
    /// Whether records of a release without decisions are applied, and the decisions of that release taken again.
    is_recomputing: bool,
    /// Events that the engine has not handled yet.
    events: Vec<(Time, Event)>,
    /// Changes of the policy that failed since they were last taken.
    refusals: Vec<String>,
    /// Jobs that the engine gets with GPUs they hold already.
    adoptions: Vec<JobKey>,
    /// What the order has learned, while the engine is detached.
    learned: Value,
    /// Jobs that completed since then.
    completed: Vec<JobId>,
    policy: PolicyText,
    /// Policies that were in force before, oldest first.
    earlier_policies: Vec<EarlierPolicy>,
    names: Names,
    /// Number of each job that was ever queued, by the engine's handle.
    job_ids: IdVec<JobKey, JobId>,
    /// What the runtime of the cluster can do.
    runtime: Capabilities,
}

/// A policy that was in force before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EarlierPolicy {
    policy: String,
    until: Time,
}

/// Number of earlier policies that are kept.
const MAX_EARLIER_POLICIES: usize = 1000;

/// An engine that an older release saved together with the state.
#[derive(Debug)]
pub(super) struct SavedScheduler {
    pub(super) engine: Snapshot,
    pub(super) policy: PolicyText,
    pub(super) names: Names,
    pub(super) job_ids: IdVec<JobKey, JobId>,
}

impl Scheduler {
    /// Creates a scheduler without jobs and nodes, on a runtime that can do everything.
    pub(super) fn new(policy: PolicyText, clock: Clock) -> Result<Self, PolicyTextError> {
        let mut names = Names::default();
        // Jobs that name no tenant belong to this one, so its number is the first.
        names.tenant(DEFAULT_VIRTUAL_CLUSTER);
        let context = PolicyContext {
            virtual_clusters: &VirtualClusters::default(),
            names: &names,
            nodes: &NodeTable::default(),
            runtime: &Capabilities::ALL,
        };
        let engine = Engine::new(policy::build(&policy, context)?, clock);
        Ok(Self {
            engine,
            is_attached: true,
            is_recomputing: false,
            events: Vec::new(),
            refusals: Vec::new(),
            adoptions: Vec::new(),
            learned: Value::Null,
            completed: Vec::new(),
            policy,
            earlier_policies: Vec::new(),
            names,
            job_ids: IdVec::default(),
            runtime: Capabilities::ALL,
        })
    }

    /// Creates a scheduler whose engine is detached.
    pub(super) fn detached(policy: PolicyText, clock: Clock, names: Names) -> Result<Self, PolicyTextError> {
        let mut scheduler = Self::new(PolicyText::default(), clock)?;
        (scheduler.policy, scheduler.is_attached) = (policy, false);
        if !names.is_empty() {
            scheduler.names = names;
        }
        Ok(scheduler)
    }

    /// Sets what the runtime can do.
    ///
    /// # Errors
    /// If the policy in force needs more than that.
    pub(super) fn set_runtime(&mut self, runtime: Capabilities) -> Result<(), PolicyTextError> {
        dovetail_policies::check_runtime(self.engine.policy(), &runtime)?;
        self.runtime = runtime;
        Ok(())
    }

    /// Returns what the runtime can do.
    pub(in crate::state) fn runtime(&self) -> &Capabilities {
        &self.runtime
    }

    /// Returns the policies that were in force before, oldest first.
    pub(super) fn earlier_policies(&self) -> &[EarlierPolicy] {
        &self.earlier_policies
    }

    /// Restores the policies that were in force before.
    pub(super) fn set_earlier_policies(&mut self, earlier: Vec<EarlierPolicy>) {
        self.earlier_policies = earlier;
    }

    /// Returns the policy that was in force at a moment.
    pub(super) fn policy_at(&self, at: Time) -> &str {
        let mut earlier = self.earlier_policies.iter();
        let then = earlier.find(|earlier| at < earlier.until);
        then.map_or(&self.policy.policy, |earlier| &earlier.policy)
    }

    /// Returns whether the engine decides.
    pub(super) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Returns whether decisions of a release without decision records are taken again. That release decided in the middle
    /// of some facts, and told the engine nothing of progress.
    pub(super) fn is_recomputing(&self) -> bool {
        self.is_recomputing
    }

    /// Begins or ends taking decisions of a release without decision records again.
    pub(super) fn set_recomputing(&mut self, is_recomputing: bool) {
        self.is_recomputing = is_recomputing;
    }

    /// Replaces the detached engine by a new one without jobs, which knows these nodes. Handles start again at zero.
    pub(super) fn attach(
        &mut self,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        let context = PolicyContext {
            virtual_clusters,
            names: &self.names,
            nodes,
            runtime: &self.runtime,
        };
        let mut engine = Engine::new(policy::build(&self.policy, context)?, self.engine.clock());
        engine.set_paused(self.engine.is_paused());
        // What another order has learned is of no use.
        engine.restore_order(&std::mem::take(&mut self.learned));
        self.engine = engine;
        self.job_ids = IdVec::default();
        self.is_attached = true;
        self.set_zones();
        Ok(())
    }

    /// Restores a scheduler that was saved with these virtual clusters and nodes.
    pub(super) fn restore(
        saved: SavedScheduler,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<Self, SnapshotError> {
        let context = PolicyContext {
            virtual_clusters,
            names: &saved.names,
            nodes,
            runtime: &Capabilities::ALL,
        };
        let engine = Engine::restore(saved.engine, policy::build(&saved.policy, context)?)?;
        Ok(Self {
            engine,
            is_attached: true,
            is_recomputing: false,
            events: Vec::new(),
            refusals: Vec::new(),
            adoptions: Vec::new(),
            learned: Value::Null,
            completed: Vec::new(),
            policy: saved.policy,
            earlier_policies: Vec::new(),
            names: saved.names,
            job_ids: saved.job_ids,
            runtime: Capabilities::ALL,
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn policy(&self) -> &PolicyText {
        &self.policy
    }

    /// Adds an event to those that the engine handles before its next decision.
    pub(super) fn handle(&mut self, now: Time, event: Event) {
        if self.is_attached {
            return self.events.push((now, event));
        }
        if let Event::Exited {
            job,
            outcome: Outcome::Completed,
            ..
        } = event
        {
            self.completed.push(self.job_id(job));
        }
    }

    /// Lets the engine handle all events so far.
    pub(super) fn deliver_events(&mut self) {
        for (now, event) in self.events.drain(..) {
            self.engine.handle(now, event);
        }
    }

    /// Returns the next command of the engine.
    pub(super) fn next_command(&mut self) -> Option<Command> {
        self.deliver_events();
        match self.is_attached {
            true => self.engine.poll(),
            false => None,
        }
    }

    /// Sets when decisions are taken, or whether they are paused.
    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.deliver_events();
        self.engine.set_clock(clock);
    }

    /// Pauses or resumes decisions.
    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.deliver_events();
        self.engine.set_paused(is_paused);
    }

    /// Requests [`Scheduler::take_adoptions`] to tell whether this job keeps the GPUs it holds.
    pub(super) fn expect_adoption(&mut self, job: JobKey) {
        if self.is_attached {
            self.adoptions.push(job);
        }
    }

    /// Returns jobs that the engine got with GPUs since the last call, and what it lets them keep.
    pub(super) fn take_adoptions(&mut self) -> Vec<(JobId, Option<Allocation>)> {
        self.deliver_events();
        let adoptions = std::mem::take(&mut self.adoptions).into_iter();
        let kept = |key: JobKey| self.engine.job(key).and_then(|job| job.allocation.clone());
        adoptions.map(|key| (self.job_id(key), kept(key))).collect()
    }

    /// Returns the changes of the policy that failed since the last call.
    pub(super) fn take_refusals(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refusals)
    }

    /// Lets the order learn from a job that completed before the engine was created.
    pub(super) fn learn(&mut self, spec: JobSpec, history: JobHistory, now: Time) {
        self.engine.learn(spec, history, now);
    }

    /// Returns what the order has learned.
    pub(super) fn learned(&self) -> Value {
        self.engine.policy().order.save()
    }

    /// Keeps what the order has learned until the engine is attached.
    pub(super) fn keep_learned(&mut self, learned: Value) {
        self.learned = learned;
    }

    /// Returns the jobs that completed while the engine was detached.
    pub(super) fn take_completed(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.completed)
    }

    /// Returns whether the policy lets several jobs share GPUs.
    pub(super) fn shares_gpus(&self) -> bool {
        self.engine.policy().grouping.shares()
    }

    /// Returns the number of a job.
    pub(super) fn job_id(&self, job_key: JobKey) -> JobId {
        self.job_ids[job_key]
    }

    /// Returns the number of a job, if it has one.
    pub(super) fn find_job_id(&self, job_key: JobKey) -> Option<JobId> {
        self.job_ids.get(job_key).copied()
    }

    /// Returns the handle of the next job.
    pub(crate) fn next_key(&self) -> JobKey {
        JobKey::from_index(self.job_ids.len())
    }

    /// Marks the handles of loaded jobs as used, so that jobs of later records are behind them.
    pub(super) fn reserve_handles(&mut self, jobs: &[JobRecord]) {
        let mut keys: Vec<(JobKey, JobId)> = jobs.iter().filter_map(|j| Some((j.job_key?, j.id))).collect();
        keys.sort_unstable();
        for (_, id) in keys {
            self.job_ids.push(id);
        }
    }

    /// Gives a job a handle. Returns its form for the engine, and whether its user is new.
    pub(super) fn register(
        &mut self,
        id: JobId,
        user: &str,
        request: &JobRequest,
        submitted: Time,
    ) -> (JobSpec, bool) {
        let job_key = self.job_ids.push(id);
        let users = self.names.users.len();
        let spec = JobSpec {
            place: u32::try_from(id).unwrap_or(u32::MAX),
            ..self.names.spec(user, request, submitted, job_key)
        };
        (spec, self.names.users.len() > users)
    }

    /// Returns the form for the engine of a job that is not submitted, with the next free handle.
    pub(super) fn preview_spec(&self, user: &str, request: &JobRequest, now: Time) -> JobSpec {
        JobSpec {
            place: u32::MAX,
            ..self.names.clone().spec(user, request, now, self.next_key())
        }
    }

    /// Adds the GPU type and the rack of a node.
    pub(super) fn register_node(&mut self, gpu_type: &str, rack: &str) -> (GpuTypeId, ZoneId) {
        let numbers = (self.names.gpu_type(gpu_type), self.names.rack(rack));
        self.set_zones();
        numbers
    }

    fn set_zones(&mut self) {
        let zone = |name: &String| Zone {
            name: name.clone(),
            parent: None,
        };
        self.engine.set_zones(self.names.racks.iter().map(zone).collect());
    }

    /// Records the policy that is in force.
    pub(super) fn note_policy(&mut self, now: Time, text: &PolicyText) {
        let earlier = std::mem::replace(&mut self.policy, text.clone());
        if self.earlier_policies.len() == MAX_EARLIER_POLICIES {
            self.earlier_policies.remove(0);
        }
        self.earlier_policies.push(EarlierPolicy {
            policy: earlier.policy,
            until: now,
        });
    }

    /// Adds the names of virtual clusters that are in force.
    pub(super) fn note_virtual_clusters(&mut self, virtual_clusters: &VirtualClusters) {
        self.names = self.names_with(virtual_clusters);
    }

    /// Returns a copy of the engine with another policy or other virtual clusters.
    pub(super) fn preview_policy(
        &self,
        text: &PolicyText,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<Engine, PolicyTextError> {
        let mut engine = self.engine.clone();
        let names = self.names_with(virtual_clusters);
        let policy = self.build_policy(text, &names, virtual_clusters, nodes)?;
        let set = engine.set_policy(policy);
        set.map_err(|error| self.running_jobs_error(error, nodes))?;
        Ok(engine)
    }

    /// Changes the policy of the engine.
    pub(super) fn set_policy(
        &mut self,
        text: &PolicyText,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        self.rebuild_policy(text, &self.names.clone(), virtual_clusters, nodes)
    }

    /// Builds the policy of the engine for other virtual clusters.
    pub(super) fn set_virtual_clusters(
        &mut self,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        let names = self.names_with(virtual_clusters);
        self.rebuild_policy(&self.policy.clone(), &names, virtual_clusters, nodes)
    }

    /// Rebuilds the cells, where GPUs are guaranteed as cells, so that they know all nodes and users.
    pub(super) fn refresh_cells(&mut self, now: Time, virtual_clusters: &VirtualClusters, nodes: &NodeTable) {
        if virtual_clusters.mode != GuaranteeMode::Cells || !self.is_attached {
            return;
        }
        let (text, names) = (self.policy.clone(), self.names.clone());
        match self.rebuild_policy(&text, &names, virtual_clusters, nodes) {
            Ok(()) => self.handle(now, Event::Wake),
            Err(error) => self.refusals.push(format!("cells: {error}")),
        }
    }

    fn rebuild_policy(
        &mut self,
        text: &PolicyText,
        names: &Names,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        let policy = self.build_policy(text, names, virtual_clusters, nodes)?;
        self.deliver_events();
        let set = self.engine.set_policy(policy);
        set.map_err(|error| self.running_jobs_error(error, nodes))
    }

    /// Builds the policy in force from scratch, as if there were no jobs.
    pub(super) fn build_from_scratch(
        &self,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<Policy, PolicyTextError> {
        self.build_policy(&self.policy, &self.names, virtual_clusters, nodes)
    }

    fn build_policy(
        &self,
        text: &PolicyText,
        names: &Names,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<Policy, PolicyTextError> {
        let context = PolicyContext {
            virtual_clusters,
            names,
            nodes,
            runtime: &self.runtime,
        };
        policy::build(text, context)
    }

    /// Returns the error for running jobs that contradict a policy, with the numbers that users know.
    fn running_jobs_error(&self, error: CheckError, nodes: &NodeTable) -> PolicyTextError {
        let names = RunningNames {
            scheduler: self,
            nodes,
        };
        PolicyTextError::RunningJobs(error.render(&names))
    }

    fn names_with(&self, virtual_clusters: &VirtualClusters) -> Names {
        let mut names = self.names.clone();
        for name in virtual_clusters.names() {
            names.tenant(&name);
        }
        names
    }
}
