//! Everything the engine knows, and the small steps that keep it consistent.

use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, JobKey, JobSpec, SharedGroupFactors, Slowdowns, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::cluster::Cluster;
use crate::demand::Demand;
use crate::job::{Job, Stage};
use crate::job_queues::{BATCH, JobQueues, Membership, Moves};
use crate::load::ClusterLoad;
use crate::node_set::NodeSet;
use crate::occupancy::Occupants;
use crate::parts::{Policy, Tenancy};
use crate::queue_key::Rank;
use crate::shape::Shape;

/// An entry of the job table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) job: Job,
    /// The queue the job is in.
    #[serde(alias = "seat")]
    pub(crate) membership: Membership,
    /// Whether its sort key has to be computed again.
    pub(crate) stale: bool,
}

/// Everything the engine knows about jobs and nodes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) now: Time,
    pub(crate) jobs: IdVec<JobKey, Option<Box<Entry>>>,
    /// The nodes.
    pub cluster: Cluster,
    pub(crate) demand: Demand,
    /// Submitted jobs that admission has not looked at.
    pub(crate) inbox: Vec<JobKey>,
    /// Jobs held by admission, in order of submission, by lane.
    pub(crate) held: BTreeMap<u64, VecDeque<JobKey>>,
    /// Jobs that are placed and start as soon as stopping jobs have vacated their GPUs.
    pub(crate) pending: BTreeSet<JobKey>,
    /// Unfinished jobs without an allocation.
    pub(crate) idle_jobs: u32,
    /// GPUs those jobs ask for.
    pub(crate) idle_gpus: u64,
    /// Jobs with an allocation.
    pub(crate) holding_jobs: u32,
    /// Integral of the number of unfinished jobs up to `job_time_at`, in job-microseconds.
    pub(crate) job_time: i128,
    pub(crate) job_time_at: Time,
    #[serde(skip)]
    pub(crate) queues: JobQueues,
    /// Jobs whose sort keys have to be computed again.
    pub(crate) stale: Vec<JobKey>,
    /// Whether holders are kept sorted.
    #[serde(skip)]
    pub(crate) keep_holders: bool,
    /// Whether CPU and memory of a job change with the jobs beside it.
    #[serde(skip)]
    pub(crate) fills: bool,
    /// Nodes whose jobs changed since their CPU and memory were last distributed.
    #[serde(default)]
    pub(crate) touched: NodeSet,
    #[serde(skip)]
    pub(crate) occupants: Occupants,
    /// Measured slowdowns of jobs that share GPUs.
    #[serde(default)]
    pub(crate) slowdowns: Slowdowns,
    /// How much longer than planned periods of groups are, if that is measured.
    #[serde(default)]
    pub(crate) group_factors: Option<SharedGroupFactors>,
}

impl State {
    /// Keeps track of exactly what this policy looks at.
    pub(crate) fn adapt_to(&mut self, policy: &mut Policy) {
        self.keep_holders = policy.discipline.needs_holders();
        self.fills = policy.sizing.filling().is_some();
        self.occupants.tracked = policy.grouping.terms().overlap || self.fills;
    }

    /// Returns the job, if it has not ended.
    pub fn find_job(&self, id: JobKey) -> Option<&Job> {
        self.jobs.get(id)?.as_ref().map(|e| &e.job)
    }

    /// Returns a job that has not ended.
    pub(crate) fn job(&self, id: JobKey) -> &Job {
        self.find_job(id).expect("the job is in the table")
    }

    pub(crate) fn entry(&mut self, id: JobKey) -> &mut Entry {
        self.jobs[id].as_mut().expect("the job is in the table")
    }

    /// Returns unfinished jobs, in order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter_map(|e| e.as_ref().map(|e| &e.job))
    }

    /// Whether the job is in the queue of jobs that wait; during a decision also if it was given GPUs in it.
    pub(crate) fn is_in_queue(&self, id: JobKey) -> bool {
        let entry = self.jobs[id].as_ref();
        entry.is_some_and(|entry| entry.membership == Membership::Queued)
    }

    /// Returns the rank of a job at this moment.
    pub(crate) fn rank(&self, id: JobKey) -> Rank {
        let key = &self.job(id).sort_key;
        key.position(id).rank(key.slope(), self.now)
    }

    /// Returns the load of the cluster.
    pub(crate) fn load(&self) -> ClusterLoad {
        ClusterLoad {
            jobs: self.idle_jobs + self.holding_jobs,
            gpus: self.cluster.nodes().map(|(_, node)| node.spec.gpus).sum(),
            job_time: self.job_time_now(),
        }
    }

    fn job_time_now(&self) -> i128 {
        let jobs = i128::from(self.idle_jobs + self.holding_jobs);
        self.job_time + jobs * i128::from(self.now.since(self.job_time_at).0)
    }

    /// Extends the integral of unfinished jobs to the present; must be called before their number changes.
    fn update_job_time(&mut self) {
        self.job_time = self.job_time_now();
        self.job_time_at = self.now;
    }

    /// Adds a submitted job to the table.
    pub(crate) fn add_job(&mut self, spec: JobSpec) {
        self.update_job_time();
        self.idle_jobs += 1;
        self.idle_gpus += u64::from(spec.gpus);
        let id = spec.id;
        let mut job = Job::new(spec, self.now);
        job.job_time_before = self.job_time;
        *self.jobs.entry(id) = Some(Box::new(Entry {
            job,
            membership: Membership::None,
            stale: false,
        }));
        self.inbox.push(id);
    }

    /// Removes a job from the table and frees what it held.
    pub(crate) fn remove_job(&mut self, id: JobKey, tenancy: &mut dyn Tenancy) -> Job {
        if self.job(id).stage != Stage::Admitted {
            self.inbox.retain(|j| *j != id);
            for lane in self.held.values_mut() {
                lane.retain(|j| *j != id);
            }
        }
        self.leave_queue(id);
        self.pending.remove(&id);
        if let Some(allocation) = self.entry(id).job.allocation.take() {
            self.release(id, &allocation, tenancy);
        }
        self.update_job_time();
        let job = self.jobs[id].take().expect("the job is in the table").job;
        self.idle_jobs -= 1;
        self.idle_gpus -= u64::from(job.spec.gpus);
        if job.stage == Stage::Admitted {
            self.demand.remove(&job.spec);
        }
        job
    }

    /// Adds placed jobs, sorted by key, to those that start as soon as their GPUs are vacated.
    pub(crate) fn add_pending(&mut self, ids: &[JobKey]) {
        match ids.len() >= BATCH.max(self.pending.len() / 8) {
            true => self.pending.append(&mut ids.iter().copied().collect()),
            false => self.pending.extend(ids),
        }
    }

    /// Notes that CPU and memory of the nodes of this allocation have to be distributed again.
    pub(crate) fn touch(&mut self, allocation: &Allocation) {
        if self.fills {
            self.touched.extend(allocation.shares.iter().map(|s| s.node));
        }
    }

    /// Gives `allocation` to a job that holds nothing; with `share`, other jobs may hold its GPUs.
    pub(crate) fn allocate(
        &mut self,
        id: JobKey,
        allocation: Allocation,
        share: bool,
        tenancy: &mut dyn Tenancy,
    ) {
        let gpu_memory_mib = self.job(id).spec.gpu_memory_mib;
        let preferred = self.job(id).spec.preferred_share();
        self.cluster
            .allocate(&allocation, share, gpu_memory_mib, preferred);
        self.occupants.add(id, &allocation);
        self.touch(&allocation);
        let entry = self.entry(id);
        tenancy.allocated(&entry.job.spec, &allocation);
        let gpus = entry.job.spec.gpus;
        debug_assert!(entry.job.allocation.is_none(), "a job holds one allocation");
        entry.job.allocation = Some(allocation);
        self.idle_jobs -= 1;
        self.idle_gpus -= u64::from(gpus);
        self.holding_jobs += 1;
    }

    /// Frees an allocation, which the caller has taken out of the job.
    pub(crate) fn release(&mut self, id: JobKey, allocation: &Allocation, tenancy: &mut dyn Tenancy) {
        let gpu_memory_mib = self.job(id).spec.gpu_memory_mib;
        let preferred = self.job(id).spec.preferred_share();
        self.cluster.release(allocation, gpu_memory_mib, preferred);
        self.occupants.remove(id, allocation);
        self.touch(allocation);
        let entry = self.entry(id);
        tenancy.released(&entry.job.spec, allocation);
        let gpus = entry.job.spec.gpus;
        self.idle_jobs += 1;
        self.idle_gpus += u64::from(gpus);
        self.holding_jobs -= 1;
    }

    /// Builds everything that is derived from jobs and nodes again, after they were read from a snapshot.
    pub(crate) fn rebuild(&mut self, tenancy: &dyn Tenancy) {
        self.cluster.rebuild_index();
        for entry in self.jobs.values_mut().flatten() {
            let job = &mut entry.job;
            if let Some(allocation) = &job.allocation {
                self.occupants.add(job.spec.id, allocation);
            }
            let membership = entry.membership;
            if membership == Membership::Queued {
                let shape = Shape::of(&job.spec, tenancy.shape_key(&job.spec));
                job.shape = self.queues.shapes.id(shape);
            }
            self.queues.enter(entry, membership, &mut Moves::default());
        }
    }
}
