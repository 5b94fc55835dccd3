//! The history of a live cluster, read from its journal: when jobs were submitted, and how long they held GPUs.

use std::path::Path;

use dovetail_journal::Journal;
use dovetail_model::Time;

use crate::driver::{DriverError, replay};
use crate::fact::PolicyText;
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
    Ok(History::new(&replay(&config, &recovered)?.state))
}

impl History {
    fn new(state: &ClusterState) -> Self {
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
        let jobs: Vec<PastJob> = state.jobs().filter_map(past).collect();
        Self {
            others: state.jobs().count() - jobs.len(),
            jobs,
            nodes: state.nodes().map(|(_, n)| n.clone()).collect(),
            policy: state.policy().clone(),
            clock: state.engine().clock(),
        }
    }
}
