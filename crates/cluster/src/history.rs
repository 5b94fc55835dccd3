//! The history of a live cluster, read from its journal: when jobs were submitted, started, stopped and ended, and what the
//! policy was told about them.

use std::path::Path;

use dovetail_engine::Policy;
use dovetail_history::Readers;
use dovetail_journal::Journal;
use dovetail_model::{ClusterSpec, GpuTypeId, Scaling, Stages, TenantId, Time, UserId, Work};

use crate::archiver;
use crate::fact::PolicyText;
use crate::past::decode_all;
use crate::recovery::{DriverError, replay};
use crate::request::JobRequest;
use crate::state::{Attempt, ClusterState, End, JobRecord, JobState, Names, PolicyTextError, learning};
use crate::{DriverConfig, JobId};

/// A job that ran and has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PastJob {
    /// Number of the job.
    pub id: JobId,
    /// User who submitted it.
    pub user: String,
    /// What was requested.
    pub request: JobRequest,
    /// Key of the profile of its model.
    pub model: String,
    /// When it was submitted.
    pub submitted: Time,
    /// When it first got GPUs.
    pub started: Time,
    /// When it ended.
    pub ended: Time,
    /// How often it was stopped before its end.
    pub stops: u32,
    /// Its run time alone on the GPUs it requested, without starts and without work that was lost.
    pub work: Work,
    /// Time that each start took before the first step; none if it reports no steps.
    pub start_cost: Option<Time>,
    /// Time from each request to stop until its GPUs were vacated.
    pub stop_costs: Vec<Time>,
    /// Whether it saved its work whenever it was stopped.
    pub saves_work: bool,
    /// Run time that the policy was told.
    pub expected: Option<Work>,
    /// Stages of a step that the policy was told.
    pub stages: Option<Stages>,
    /// Speed by number of GPUs that the policy was told.
    pub scaling: Scaling,
    /// Number of steps it reported, and the duration of each.
    pub steps: Option<(u64, Time)>,
}

impl PastJob {
    /// Returns a job that ended by itself after it held GPUs.
    fn new(job: &JobRecord) -> Option<Self> {
        let JobState::Ended(end) = &job.state else {
            return None;
        };
        let started = job.attempts.first()?.since;
        if matches!(end, End::Cancelled(_)) {
            return None;
        }
        let scaling = job.scaling();
        let span = |attempt: &Attempt| {
            let rate = scaling.rate(attempt.allocation.gpus(), job.request.gpus);
            rate.work_in(attempt.service(job.since))
        };
        let held = job
            .attempts
            .iter()
            .map(span)
            .fold(Work(0), |sum, work| sum + work);
        let starts = job.attempts.len() as u64;
        let stops = starts - 1;
        let saves_work = stops == 0 || job.progress.checkpoint > 0;
        let by_steps = job.work_of_steps().filter(|_| *end == End::Completed);
        let work = match (by_steps, saves_work) {
            (Some(work), _) => work,
            (None, true) => held,
            // Everything before the last start was lost.
            (None, false) => job.attempts.last().map_or(held, span),
        };
        let start_cost = by_steps.map(|work| Time(held.minus(work).0.div_euclid(starts) as i64));
        let stages = job.request.stages.and_then(|stages| stages.stages());
        Some(Self {
            id: job.id,
            user: job.user.clone(),
            request: (*job.request).clone(),
            model: learning::key_of(job),
            submitted: job.submitted,
            started,
            ended: job.since,
            stops: u32::try_from(stops).unwrap_or(u32::MAX),
            work,
            stop_costs: job.attempts.iter().filter_map(Attempt::stop_cost).collect(),
            start_cost: start_cost.filter(|_| saves_work),
            saves_work,
            expected: job.estimate().map(|estimate| estimate.expected),
            stages: stages.or_else(|| job.learned.as_ref()?.stages),
            scaling,
            steps: (job.progress.total > 0).then_some((job.progress.total, job.progress.step_time)),
        })
    }
}

/// Everything that is needed to replay the jobs of a cluster.
#[derive(Debug)]
pub struct History {
    /// Jobs that ran and have ended, oldest first.
    pub jobs: Vec<PastJob>,
    /// Number of jobs that have not ended, or never ran.
    pub others: usize,
    /// Nodes at the end of the journal.
    pub cluster: ClusterSpec,
    /// Policy at the end of the journal.
    pub policy: PolicyText,
    /// The same policy, built for these nodes and virtual clusters.
    pub built: Policy,
    names: Names,
    /// Clock at the end of the journal.
    pub clock: dovetail_engine::Clock,
}

/// Reads the journal in a folder, which a running server may write: its files are copied to `copy` first.
///
/// # Errors
/// If the journal cannot be read.
pub fn read(dir: &Path, copy: &Path) -> Result<History, DriverError> {
    let failed = |source: std::io::Error| DriverError::Folder {
        path: dir.to_owned(),
        source,
    };
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // The history database may be large, and readers do not disturb its writer.
        if archiver::is_database_file(&entry.file_name()) {
            continue;
        }
        std::fs::copy(entry.path(), copy.join(entry.file_name())).map_err(failed)?;
    }
    let (_, recovered) = Journal::open(copy)?;
    let config = DriverConfig {
        dir: copy.to_owned(),
        policy: PolicyText::default(),
        clock: dovetail_engine::Clock::Events,
        snapshot_every: u64::MAX,
        runtime: dovetail_engine::Capabilities::ALL,
    };
    let state = replay(&config, &recovered)?.state;
    let past = read_past(dir, &state)?;
    Ok(History::new(&state, &past)?)
}

/// Number of records that are read from the history database at once.
const BATCH: usize = 10_000;

/// Returns the jobs that are only in the history database, oldest first.
fn read_past(dir: &Path, state: &ClusterState) -> Result<Vec<JobRecord>, DriverError> {
    let mut past = Vec::new();
    if state.departed_count() == 0 {
        return Ok(past);
    }
    let path = archiver::path_in(dir);
    if !path.exists() {
        let jobs = state.departed_count();
        return Err(DriverError::HistoryMissing { path, jobs });
    }
    let (history, known) = (Readers::open(&path)?, state.known_jobs());
    let mut next = 1;
    loop {
        let records = history.records_from(next, BATCH)?;
        let jobs = decode_all(&records);
        let Some(last) = jobs.last() else {
            return Ok(past);
        };
        next = last.id + 1;
        past.extend(jobs.into_iter().filter(|job| !known.has(job.id)));
    }
}

impl History {
    fn new(state: &ClusterState, past: &[JobRecord]) -> Result<Self, PolicyTextError> {
        let all = || past.iter().chain(state.jobs());
        let mut jobs: Vec<PastJob> = all().filter_map(PastJob::new).collect();
        jobs.sort_by_key(|job| job.id);
        Ok(Self {
            others: all().count() - jobs.len(),
            jobs,
            cluster: state.cluster_spec(),
            policy: state.policy().clone(),
            built: state.build_policy()?,
            names: state.names().clone(),
            clock: state.engine().clock(),
        })
    }

    /// Returns the number of a virtual cluster in the policy.
    pub fn tenant(&self, name: &str) -> Option<TenantId> {
        number(&self.names.tenants, name).map(TenantId)
    }

    /// Returns the number of a GPU type in the policy.
    pub fn gpu_type(&self, name: &str) -> Option<GpuTypeId> {
        number(&self.names.gpu_types, name).map(GpuTypeId)
    }

    /// Returns the number of a user in the policy.
    pub fn user(&self, name: &str) -> Option<UserId> {
        number(&self.names.users, name).map(UserId)
    }

    /// Returns the names of virtual clusters and users, by their numbers in the policy.
    pub fn names(&self) -> (&[String], &[String]) {
        (&self.names.tenants, &self.names.users)
    }
}

fn number(table: &[String], name: &str) -> Option<u32> {
    table.iter().position(|known| known == name)?.try_into().ok()
}
