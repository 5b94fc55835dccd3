//! The engine, with the policy it was built from and the names and numbers of what it schedules.

use dovetail_engine::{Capabilities, CheckError, Clock, Engine, Policy, Snapshot};
use dovetail_model::ids::Id;
use dovetail_model::{Event, GpuTypeId, IdVec, JobKey, JobSpec, NameLookup, NodeId, Time, Zone, ZoneId};
use serde::{Deserialize, Serialize};

use super::error::{PolicyTextError, SnapshotError};
use super::names::Names;
use super::nodes::NodeTable;
use super::policy::{self, PolicyContext};
use crate::JobId;
use crate::fact::PolicyText;
use crate::request::JobRequest;
use crate::virtual_clusters::{DEFAULT_VIRTUAL_CLUSTER, GuaranteeMode, VirtualClusters};

/// The engine and everything that is needed to talk to it in terms of job numbers and names.
#[derive(Debug)]
pub(crate) struct Scheduler {
    engine: Engine,
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

/// What is saved of a scheduler.
#[derive(Debug)]
pub(super) struct SavedScheduler {
    pub(super) engine: Snapshot,
    pub(super) policy: PolicyText,
    pub(super) earlier_policies: Vec<EarlierPolicy>,
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
            policy,
            earlier_policies: Vec::new(),
            names,
            job_ids: IdVec::default(),
            runtime: Capabilities::ALL,
        })
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
            policy: saved.policy,
            earlier_policies: saved.earlier_policies,
            names: saved.names,
            job_ids: saved.job_ids,
            runtime: Capabilities::ALL,
        })
    }

    /// Returns what has to be saved.
    pub(super) fn save(&self) -> SavedScheduler {
        SavedScheduler {
            engine: self.engine.snapshot(),
            policy: self.policy.clone(),
            earlier_policies: self.earlier_policies.clone(),
            names: self.names.clone(),
            job_ids: self.job_ids.clone(),
        }
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
    pub(super) fn runtime(&self) -> &Capabilities {
        &self.runtime
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn policy(&self) -> &PolicyText {
        &self.policy
    }

    /// Returns the policy that was in force at a moment.
    pub(super) fn policy_at(&self, at: Time) -> &str {
        let mut earlier = self.earlier_policies.iter();
        let then = earlier.find(|earlier| at < earlier.until);
        then.map_or(&self.policy.policy, |earlier| &earlier.policy)
    }

    /// Passes an event to the engine.
    pub(super) fn handle(&mut self, now: Time, event: Event) {
        self.engine.handle(now, event);
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
        let spec = self.names.spec(user, request, submitted, job_key);
        (spec, self.names.users.len() > users)
    }

    /// Returns the form for the engine of a job that is not submitted, with the next free handle.
    pub(super) fn preview_spec(&self, user: &str, request: &JobRequest, now: Time) -> JobSpec {
        self.names.clone().spec(user, request, now, self.next_key())
    }

    /// Adds the GPU type and the rack of a node.
    pub(super) fn register_node(&mut self, gpu_type: &str, rack: &str) -> (GpuTypeId, ZoneId) {
        let numbers = (self.names.gpu_type(gpu_type), self.names.rack(rack));
        let zone = |name: &String| Zone {
            name: name.clone(),
            parent: None,
        };
        self.engine.set_zones(self.names.racks.iter().map(zone).collect());
        numbers
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

    /// Changes the policy.
    pub(super) fn set_policy(
        &mut self,
        now: Time,
        text: &PolicyText,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        self.rebuild_policy(text, &self.names.clone(), virtual_clusters, nodes)?;
        let earlier = std::mem::replace(&mut self.policy, text.clone());
        if self.earlier_policies.len() == MAX_EARLIER_POLICIES {
            self.earlier_policies.remove(0);
        }
        self.earlier_policies.push(EarlierPolicy {
            policy: earlier.policy,
            until: now,
        });
        Ok(())
    }

    /// Builds the policy for other virtual clusters.
    pub(super) fn set_virtual_clusters(
        &mut self,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        let names = self.names_with(virtual_clusters);
        self.rebuild_policy(&self.policy.clone(), &names, virtual_clusters, nodes)?;
        self.names = names;
        Ok(())
    }

    /// Rebuilds the cells, where GPUs are guaranteed as cells, so that they know all nodes and users.
    pub(super) fn refresh_cells(
        &mut self,
        now: Time,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        if virtual_clusters.mode != GuaranteeMode::Cells {
            return Ok(());
        }
        let (text, names) = (self.policy.clone(), self.names.clone());
        self.rebuild_policy(&text, &names, virtual_clusters, nodes)?;
        self.handle(now, Event::Wake);
        Ok(())
    }

    fn rebuild_policy(
        &mut self,
        text: &PolicyText,
        names: &Names,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        let policy = self.build_policy(text, names, virtual_clusters, nodes)?;
        let set = self.engine.set_policy(policy);
        set.map_err(|error| self.running_jobs_error(error, nodes))
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

/// Names of running jobs and their nodes.
struct RunningNames<'a> {
    scheduler: &'a Scheduler,
    nodes: &'a NodeTable,
}

impl NameLookup for RunningNames<'_> {
    fn job(&self, job: JobKey) -> String {
        match self.scheduler.find_job_id(job) {
            Some(id) => format!("job {id}"),
            None => "a job that is not registered yet".to_owned(),
        }
    }

    fn node(&self, node: NodeId) -> String {
        match self.nodes.get(node) {
            Some(node) => format!("node {}", node.spec.name),
            None => format!("node {node}"),
        }
    }
}
