//! Saved states: what a snapshot of the journal holds.

use std::borrow::Cow;

use dovetail_engine::{Clock, Engine, Snapshot};
use dovetail_model::ids::Id;
use dovetail_model::{IdVec, JobKey, Time};
use serde::{Deserialize, Serialize, Serializer};
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

/// Bytes that a job usually takes.
const USUAL_BYTES: usize = 1_024;

/// A cluster state as it is saved, written from where it is: a copy would take as long as the rest.
#[derive(Serialize)]
struct StateToSave<'a> {
    policy: &'a PolicyText,
    #[serde(skip_serializing_if = "<[EarlierPolicy]>::is_empty")]
    earlier_policies: &'a [EarlierPolicy],
    clock: Clock,
    paused: bool,
    virtual_clusters: &'a VirtualClusters,
    jobs: JobsToSave<'a>,
    nodes: &'a NodeTable,
    names: &'a Names,
    learned: Value,
    learning: &'a Learning,
    now: Time,
    next_event: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<SavedArchive>,
    #[serde(
        serialize_with = "save_unstored_events",
        skip_serializing_if = "EventLog::has_stored_all"
    )]
    unstored_events: &'a EventLog,
}

fn save_unstored_events<S: Serializer>(events: &EventLog, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.unstored())
}

/// The saved form of a cluster state.
#[derive(Debug, Deserialize)]
struct SavedState {
    policy: PolicyText,
    /// Policies that were in force before, oldest first.
    #[serde(default)]
    earlier_policies: Vec<EarlierPolicy>,
    /// When decisions are taken.
    #[serde(default)]
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
    #[serde(default)]
    archive: Option<SavedArchive>,
    /// Events that the history database may not have.
    #[serde(default)]
    unstored_events: Vec<ClusterEvent>,
    /// The engine, as releases saved it that did not record decisions.
    #[serde(default)]
    engine: Option<Snapshot>,
    /// Number of each job by the handle that it has in that engine.
    #[serde(default, alias = "tickets")]
    job_ids: IdVec<JobKey, JobId>,
}

/// Returns a state as bytes.
pub(super) fn save(state: &ClusterState) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(state.jobs.count() * USUAL_BYTES);
    let saved = StateToSave {
        policy: state.scheduler.policy(),
        earlier_policies: state.scheduler.earlier_policies(),
        clock: state.scheduler.engine().clock(),
        paused: state.scheduler.engine().is_paused(),
        virtual_clusters: &state.virtual_clusters,
        jobs: JobsToSave(&state.jobs),
        nodes: &state.nodes,
        names: state.scheduler.names(),
        learned: state.scheduler.learned(),
        learning: &state.learning,
        now: state.now,
        next_event: state.events.next(),
        archive: state.jobs.saved_archive(),
        unstored_events: &state.events,
    };
    serde_json::to_writer(&mut bytes, &saved)?;
    Ok(bytes)
}

/// The jobs of a state, with handles as a new engine gives them out: in the order in which jobs entered this one.
struct JobsToSave<'a>(&'a JobTable);

impl Serialize for JobsToSave<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let in_engine = self.0.unfinished().filter(|job| job.state.is_in_engine());
        let mut keys: Vec<JobKey> = in_engine.filter_map(|job| job.job_key).collect();
        keys.sort_unstable();
        let rank = |key: JobKey| keys.binary_search(&key).ok().map(JobKey::from_index);
        serializer.collect_seq(self.0.iter().map(|job| {
            let saved_key = job.job_key.and_then(rank);
            match job.job_key == saved_key {
                true => Cow::Borrowed(job),
                false => Cow::Owned(JobRecord {
                    job_key: saved_key,
                    ..job.clone()
                }),
            }
        }))
    }
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
    let in_trial = jobs
        .active()
        .filter(|job| job.attempt().is_some_and(|a| a.trial.is_some()));
    let in_trial = in_trial.map(|job| job.id).collect();
    Ok(ClusterState {
        scheduler,
        in_trial,
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
