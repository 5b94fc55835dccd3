//! The past of a live cluster, out of its journal: what came when, and how long it held GPUs.

use std::path::Path;

use dovetail_journal::Journal;
use dovetail_model::Time;

use crate::driver::DriverError;
use crate::fact::{PolicyText, Record};
use crate::request::JobRequest;
use crate::state::{ClusterState, End, JobState};
use crate::{DriverConfig, JobId};

/// A job that ran and is over.
#[derive(Debug, Clone, PartialEq)]
pub struct PastJob {
    /// Its number.
    pub id: JobId,
    /// Who sent it.
    pub user: String,
    /// What was asked for.
    pub request: JobRequest,
    /// When it came.
    pub submitted: Time,
    /// When it was over.
    pub ended: Time,
    /// How long it held GPUs, as if it had held all it asked for; launches that were lost count too.
    pub held: Time,
    /// Steps it told of, and the time of each.
    pub steps: Option<(u64, Time)>,
}

/// All that is needed to replay it.
#[derive(Debug)]
pub struct History {
    /// Jobs that ran and are over, oldest first.
    pub jobs: Vec<PastJob>,
    /// Jobs that are not, or never ran.
    pub others: usize,
    /// The nodes at the end.
    pub nodes: Vec<crate::state::NodeRecord>,
    /// The policy at the end.
    pub policy: PolicyText,
    /// When the engine decides, at the end.
    pub clock: dovetail_engine::Clock,
}

/// Reads the journal in a folder. A copy of it is read, so whoever writes to it is not disturbed.
///
/// # Errors
/// When it cannot be read.
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
    };
    let mut state = crate::driver::restore(&config, &recovered)?;
    for (seq, bytes) in &recovered.records {
        let record: Record = crate::driver::record(*seq, bytes)?;
        state.apply(record.at, &record.fact);
        // What agents would be told is nobody's business here.
        state.take_commands();
    }
    Ok(of(&state))
}

fn of(state: &ClusterState) -> History {
    let past = |job: &crate::state::JobRecord| {
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
    History {
        others: state.jobs().count() - jobs.len(),
        jobs,
        nodes: state.nodes().map(|(_, n)| n.clone()).collect(),
        policy: state.policy().clone(),
        clock: state.engine().clock(),
    }
}
