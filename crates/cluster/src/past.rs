//! Ended jobs in the history database: how they are stored, and what a submission has to know of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_history::JobRow;
use serde::Serialize;

use crate::JobId;
use crate::request::JobRequest;
use crate::state::{JobRecord, JobState, PastEnd};

/// Returns a value as it is stored.
pub(crate) fn encode_record<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("records and events are plain data")
}

/// Reads a record as it was stored.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<JobRecord, serde_json::Error> {
    serde_json::from_slice(bytes)
}

/// Returns the row of an ended job.
pub(crate) fn job_row(job: &JobRecord) -> JobRow {
    let (state, reason) = match &job.state {
        JobState::Ended(end) => end.state_words(),
        _ => Default::default(),
    };
    let limited = |time: i128| i64::try_from(time).unwrap_or(i64::MAX);
    let days = job.usage_by_day(job.since).into_iter();
    let labels = job.request.labels.iter();
    JobRow {
        id: job.id,
        state: state.to_owned(),
        reason: reason.to_owned(),
        user: job.user.clone(),
        tenant: job.request.tenant.clone(),
        name: job.request.name.clone(),
        private: job.request.private,
        gpus: job.request.gpus,
        submitted: job.submitted.0,
        gpu_time: limited(job.gpu_time(job.since)),
        wait: job.wait(job.since).0,
        labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
        key: job.key().cloned(),
        usage: days.map(|(day, time)| (day, limited(time))).collect(),
        record: encode_record(job),
    }
}

/// What the history database has of jobs that a submission refers to.
#[derive(Debug, Clone, Default)]
pub struct PastJobs {
    /// How many jobs had left memory before the database was read; if more have since, it must be read again.
    pub(crate) departed: u64,
    /// Ends of jobs that it depends on.
    pub(crate) ends: BTreeMap<JobId, bool>,
    /// The job that its user submitted with the same idempotency key.
    pub(crate) of_key: Option<(JobId, Arc<JobRequest>)>,
}

impl PastJobs {
    /// Returns the ends of those of these jobs that are known.
    pub(crate) fn ends_of(&self, jobs: impl Iterator<Item = JobId>) -> Vec<PastEnd> {
        let end = |job| {
            self.ends.get(&job).map(|completed| PastEnd {
                job,
                completed: *completed,
            })
        };
        jobs.filter_map(end).collect()
    }
}

/// Reads stored records. One that cannot be read is reported and left out.
pub(crate) fn decode_all(records: &[Vec<u8>]) -> Vec<JobRecord> {
    let decode = |bytes: &Vec<u8>| match decode_record(bytes) {
        Ok(job) => Some(job),
        Err(error) => {
            tracing::error!("a record of the history cannot be read: {error}");
            None
        }
    };
    records.iter().filter_map(decode).collect()
}
