//! The engine, with the policy it was built from and the names and numbers of what it schedules.

use dovetail_engine::{Clock, Engine, Snapshot};
use dovetail_model::ids::Id;
use dovetail_model::{Event, GpuTypeId, IdVec, JobKey, JobSpec, Time, Zone, ZoneId};

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
    names: Names,
    /// Number of each job that was ever queued, by the engine's handle.
    job_ids: IdVec<JobKey, JobId>,
}

/// What is saved of a scheduler.
#[derive(Debug)]
pub(super) struct SavedScheduler {
    pub(super) engine: Snapshot,
    pub(super) policy: PolicyText,
    pub(super) names: Names,
    pub(super) job_ids: IdVec<JobKey, JobId>,
}

impl Scheduler {
    /// Creates a scheduler without jobs and nodes.
    pub(super) fn new(policy: PolicyText, clock: Clock) -> Result<Self, PolicyTextError> {
        let mut names = Names::default();
        // Jobs that name no tenant belong to this one, so its number is the first.
        names.tenant(DEFAULT_VIRTUAL_CLUSTER);
        let context = PolicyContext {
            virtual_clusters: &VirtualClusters::default(),
            names: &names,
            nodes: &NodeTable::default(),
        };
        let engine = Engine::new(policy::build(&policy, context)?, clock);
        Ok(Self {
            engine,
            policy,
            names,
            job_ids: IdVec::default(),
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
        };
        let engine = Engine::restore(saved.engine, policy::build(&saved.policy, context)?)?;
        Ok(Self {
            engine,
            policy: saved.policy,
            names: saved.names,
            job_ids: saved.job_ids,
        })
    }

    /// Returns what has to be saved.
    pub(super) fn save(&self) -> SavedScheduler {
        SavedScheduler {
            engine: self.engine.snapshot(),
            policy: self.policy.clone(),
            names: self.names.clone(),
            job_ids: self.job_ids.clone(),
        }
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
        let context = PolicyContext {
            virtual_clusters,
            names: &names,
            nodes,
        };
        engine.set_policy(policy::build(text, context)?)?;
        Ok(engine)
    }

    /// Changes the policy.
    pub(super) fn set_policy(
        &mut self,
        text: &PolicyText,
        virtual_clusters: &VirtualClusters,
        nodes: &NodeTable,
    ) -> Result<(), PolicyTextError> {
        self.rebuild_policy(text, &self.names.clone(), virtual_clusters, nodes)?;
        self.policy = text.clone();
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
        let context = PolicyContext {
            virtual_clusters,
            names,
            nodes,
        };
        self.engine.set_policy(policy::build(text, context)?)?;
        Ok(())
    }

    fn names_with(&self, virtual_clusters: &VirtualClusters) -> Names {
        let mut names = self.names.clone();
        for name in virtual_clusters.names() {
            names.tenant(&name);
        }
        names
    }
}
