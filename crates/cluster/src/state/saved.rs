//! Saved states: what a snapshot of the journal holds.

use std::collections::BTreeMap;

use dovetail_engine::{Clock, Engine, Snapshot};
use dovetail_model::ids::Id;
use dovetail_model::{IdVec, JobKey, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ClusterState;
use super::error::SnapshotError;
use super::events::{ClusterEvent, EventLog};
use super::jobs::{JobRecord, JobTable, SavedArchive};
use super::learning::Learning;
use super::names::Names;
use super::nodes::NodeTable;
use super::scheduler::{EarlierPolicy, SavedScheduler, Scheduler};
use crate::JobId;
use crate::fact::PolicyText;
use crate::virtual_clusters::VirtualClusters;

/// The saved form of a cluster state.
#[derive(Debug, Serialize, Deserialize)]
struct SavedState {
    policy: PolicyText,
    /// Policies that were in force before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier_policies: Vec<EarlierPolicy>,
    /// When decisions are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<Clock>,
    /// Whether decisions are paused.
    #[serde(default)]
    paused: bool,
    #[serde(default, alias = "clusters")]
    virtual_clusters: VirtualClusters,
    jobs: Vec<JobRecord>,
    nodes: NodeTable,
    names: Names,
    /// What the order has learned from jobs that completed.
    #[serde(default)]
    learned: Value,
    /// Run times and profiles of jobs.
    #[serde(default)]
    learning: Learning,
    now: Time,
    #[serde(alias = "next_notice")]
    next_event: u64,
    /// What a history database has of ended jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    archive: Option<SavedArchive>,
    /// Events that the history database may not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unstored_events: Vec<ClusterEvent>,
    /// The engine, as releases saved it that did not record decisions.
    #[serde(default, skip_serializing)]
    engine: Option<Snapshot>,
    /// Number of each job by the handle that it has in that engine.
    #[serde(default, skip_serializing, alias = "tickets")]
    job_ids: IdVec<JobKey, JobId>,
}

/// Returns a state as bytes.
pub(super) fn save(state: &ClusterState) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&SavedState {
        policy: state.scheduler.policy().clone(),
        earlier_policies: state.scheduler.earlier_policies().to_vec(),
        clock: Some(state.scheduler.engine().clock()),
        paused: state.scheduler.engine().is_paused(),
        virtual_clusters: state.virtual_clusters.clone(),
        jobs: saved_jobs(state),
        nodes: state.nodes.clone(),
        names: state.scheduler.names().clone(),
        learned: state.scheduler.learned(),
        learning: state.learning.clone(),
        now: state.now,
        next_event: state.events.next(),
        archive: state.jobs.saved_archive(),
        unstored_events: state.events.unstored().cloned().collect(),
        engine: None,
        job_ids: IdVec::default(),
    })
}

/// Returns all jobs, with handles as a new engine gives them out: in the order in which jobs entered this one.
fn saved_jobs(state: &ClusterState) -> Vec<JobRecord> {
    let in_engine = state.jobs.unfinished().filter(|job| job.state.is_in_engine());
    let mut keys: Vec<JobKey> = in_engine.filter_map(|job| job.job_key).collect();
    keys.sort_unstable();
    let ranks: BTreeMap<JobKey, JobKey> = keys
        .into_iter()
        .enumerate()
        .map(|(rank, key)| (key, JobKey::from_index(rank)))
        .collect();
    let saved = |job: &JobRecord| {
        let mut job = job.clone();
        job.job_key = job.job_key.and_then(|key| ranks.get(&key).copied());
        job
    };
    state.jobs.iter().map(saved).collect()
}

/// Restores a state to which the records after it are to be applied. The engine is detached, unless an older release
/// saved it: then the records have no decisions, and it takes them again.
pub(super) fn load_detached(bytes: &[u8]) -> Result<ClusterState, SnapshotError> {
    let mut saved: SavedState = serde_json::from_slice(bytes)?;
    let mut scheduler = match saved.engine {
        Some(engine) => {
            let scheduler = SavedScheduler {
                engine,
                policy: saved.policy,
                names: saved.names,
                job_ids: saved.job_ids,
            };
            let scheduler = Scheduler::restore(scheduler, &saved.virtual_clusters, &saved.nodes)?;
            note_engine_facts(&mut saved.jobs, scheduler.engine());
            scheduler
        }
        None => {
            let clock = saved.clock.unwrap_or(Clock::Events);
            let mut scheduler = Scheduler::detached(saved.policy, clock, saved.names)?;
            scheduler.set_paused(saved.paused);
            scheduler.keep_learned(saved.learned);
            scheduler.reserve_handles(&saved.jobs);
            scheduler
        }
    };
    scheduler.set_earlier_policies(saved.earlier_policies);
    let (mut jobs, mut events) = (JobTable::new(saved.jobs), EventLog::new(saved.next_event));
    if let Some(archive) = saved.archive {
        jobs.restore_archive(archive);
        events.keep_unstored(saved.unstored_events);
    }
    Ok(ClusterState {
        scheduler,
        jobs,
        nodes: saved.nodes,
        virtual_clusters: saved.virtual_clusters,
        learning: saved.learning,
        events,
        commands: Vec::new(),
        decisions: Vec::new(),
        now: saved.now,
    })
}

/// Notes what an engine of an older release knows about the jobs, and newer releases keep in their records.
fn note_engine_facts(jobs: &mut [JobRecord], engine: &Engine) {
    for job in jobs {
        if let Some(known) = job.job_key.and_then(|key| engine.job(key)) {
            (job.leaves_engine, job.told) = (known.cancelled, known.spec.expected);
            job.queued_priority = Some(known.spec.priority);
        }
    }
}
