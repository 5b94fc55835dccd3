//! The history of a live cluster, read from its journal: when jobs were submitted, and how long they held GPUs.

use std::path::Path;

use dovetail_history::Readers;
use dovetail_journal::Journal;
use dovetail_model::Time;

use crate::archiver;
use crate::fact::PolicyText;
use crate::past::decode_all;
use crate::recovery::{DriverError, replay};
use crate::request::JobRequest;
use crate::state::{ClusterState, End, JobRecord, JobState, NodeRecord};
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
    /// When it was submitted.
    pub submitted: Time,
    /// When it ended.
    pub ended: Time,
    /// Time for which it held GPUs, scaled to the number it requested; lost attempts count too.
    pub held: Time,
    /// Number of steps it reported, and the duration of each.
    pub steps: Option<(u64, Time)>,
}

/// Everything that is needed to replay the jobs of a cluster.
#[derive(Debug)]
pub struct History {
    /// Jobs that ran and have ended, oldest first.
    pub jobs: Vec<PastJob>,
    /// Number of jobs that have not ended, or never ran.
    pub others: usize,
    /// Nodes at the end of the journal.
    pub nodes: Vec<NodeRecord>,
    /// Policy at the end of the journal.
    pub policy: PolicyText,
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
    Ok(History::new(&state, &past))
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
    fn new(state: &ClusterState, past: &[JobRecord]) -> Self {
        let all = || past.iter().chain(state.jobs());
        let past = |job: &JobRecord| {
            let JobState::Ended(end) = &job.state else {
                return None;
            };
            let mut held = 0.0;
            for attempt in &job.attempts {
                let span = attempt.until.unwrap_or(job.since).since(attempt.since);
                held += span.0 as f64 * f64::from(attempt.allocation.gpus()) / f64::from(job.request.gpus);
            }
            let ran = held > 0.0 && !matches!(end, End::Cancelled(_));
            ran.then(|| PastJob {
                id: job.id,
                user: job.user.clone(),
                request: (*job.request).clone(),
                submitted: job.submitted,
                ended: job.since,
                held: Time(held as i64),
                steps: (job.progress.total > 0).then_some((job.progress.total, job.progress.step_time)),
            })
        };
        let mut jobs: Vec<PastJob> = all().filter_map(past).collect();
        jobs.sort_by_key(|job| job.id);
        Self {
            others: all().count() - jobs.len(),
            jobs,
            nodes: state.nodes().map(|(_, n)| n.clone()).collect(),
            policy: state.policy().clone(),
            clock: state.engine().clock(),
        }
    }
}
