//! Requests of users about jobs.

use std::sync::Arc;

use dovetail_history::HistoryError;

use super::admission::{check_request, check_unfinished, check_virtual_cluster, find_by_key, find_job};
use super::{Conflict, DriverCall, Handle, Refusal};
use crate::JobId;
use crate::actor::Actor;
use crate::fact::Fact;
use crate::past::{PastJobs, decode_all};
use crate::request::JobRequest;
use crate::state::{End, JobRecord, JobState, SubmissionPreview};

impl Handle {
    /// Submits a job and returns its number.
    pub fn submit(&self, user: &str, request: JobRequest) -> DriverCall<'_, JobId> {
        let user = user.to_owned();
        self.call(move |transaction| transaction.submit(&user, request, None))
    }

    /// Like [`Handle::submit`], but returns the existing job if the user submitted one with this key before. `past` has what
    /// [`Handle::recall`] found for this request.
    pub fn submit_once(
        &self,
        user: &str,
        request: JobRequest,
        key: Option<String>,
        past: PastJobs,
    ) -> DriverCall<'_, JobId> {
        let user = user.to_owned();
        self.call(move |transaction| {
            if let Some(known) = find_by_key(transaction.state, &user, key.as_ref(), &request, &past)? {
                return Ok(known);
            }
            transaction.submit_after(&user, request, key, &past)
        })
    }

    /// Previews what would happen if a job were submitted now.
    ///
    /// # Errors
    /// If the job would be refused.
    pub fn preview_submission(
        &self,
        user: &str,
        request: &JobRequest,
        past: &PastJobs,
    ) -> Result<SubmissionPreview, Refusal> {
        self.read(|state| {
            check_request(state, request, past)?;
            Ok(state.preview_submission(user, request))
        })
    }

    /// Submits an array: one job for each index, with the limit of jobs that run at once. Returns the numbers of the first
    /// and the last job. `past` has what [`Handle::recall`] found for this request.
    pub fn submit_array(
        &self,
        user: &str,
        request: JobRequest,
        array: (Vec<u32>, Option<u32>),
        key: Option<String>,
        past: PastJobs,
    ) -> DriverCall<'_, (JobId, JobId)> {
        let user = user.to_owned();
        self.call(move |transaction| transaction.submit_array(&user, &request, array, key, false, &past))
    }

    /// Submits a job whose workload another controller creates, or an array of such jobs. They are held until their
    /// workloads exist. Returns the numbers of the first and the last job, and whether they are new.
    pub fn announce(
        &self,
        user: &str,
        request: JobRequest,
        array: Option<(Vec<u32>, Option<u32>)>,
        key: Option<String>,
    ) -> DriverCall<'_, (JobId, JobId, bool)> {
        let user = user.to_owned();
        self.call(move |transaction| {
            // No job leaves memory where others create the workloads.
            let past = PastJobs::default();
            let next = transaction.state.next_job();
            if let Some(array) = array {
                let (first, last) = transaction.submit_array(&user, &request, array, key, true, &past)?;
                return Ok((first, last, first >= next));
            }
            if let Some(job) = find_by_key(transaction.state, &user, key.as_ref(), &request, &past)? {
                return Ok((job, job, false));
            }
            check_request(transaction.state, &request, &past)?;
            transaction.record(Fact::Announced {
                job: next,
                user,
                request: Arc::new(request.with_external_workload()),
                key,
            });
            Ok((next, next, true))
        })
    }

    /// Cancels a job in any state.
    pub fn cancel(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            check_unfinished(transaction.state, job)?;
            transaction.record(Fact::Cancelled { job, by });
            Ok(())
        })
    }

    /// Holds a job; a running one is stopped.
    pub fn hold(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            check_unfinished(transaction.state, job)?;
            transaction.record(Fact::Held { job, by });
            Ok(())
        })
    }

    /// Releases a job that is held.
    pub fn release(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            match find_job(transaction.state, job)? {
                Some(JobState::Held(_) | JobState::Stopping(_)) => {}
                _ => return Err(Conflict::NotHeld(job).into()),
            }
            transaction.record(Fact::Released { job, by });
            Ok(())
        })
    }

    /// Changes the priority of a pending job.
    pub fn prioritize(&self, job: JobId, priority: i32, by: Actor) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            match find_job(transaction.state, job)? {
                Some(JobState::Held(_) | JobState::Queued) => {}
                _ => return Err(Conflict::NotPending(job).into()),
            }
            let request = transaction.state.job(job).map(|record| JobRequest {
                priority,
                ..(*record.request).clone()
            });
            check_virtual_cluster(transaction.state, &request.unwrap_or_default())?;
            transaction.record(Fact::Prioritized { job, priority, by });
            Ok(())
        })
    }

    /// Sets a label of a job, or removes it if there is no value.
    pub fn label(&self, job: JobId, key: &str, value: Option<String>, by: Actor) -> DriverCall<'_, ()> {
        let key = key.to_owned();
        self.call(move |transaction| {
            find_job(transaction.state, job)?;
            transaction.record(Fact::Labelled { job, key, value, by });
            Ok(())
        })
    }

    /// Returns an ended job that has left memory, and none if there is no such job. Reads the history database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn past_job(&self, id: JobId) -> Result<Option<JobRecord>, HistoryError> {
        Ok(self.past_jobs(&[id])?.into_iter().next())
    }

    /// Returns ended jobs that have left memory, in the order of their numbers. Reads the history database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn past_jobs(&self, ids: &[JobId]) -> Result<Vec<JobRecord>, HistoryError> {
        let Some(history) = self.history().filter(|_| !ids.is_empty()) else {
            return Ok(Vec::new());
        };
        let records = history.records(ids)?;
        Ok(decode_all(&records))
    }

    /// Looks up what a submission refers to and is not in memory. Reads the history database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn recall(
        &self,
        user: &str,
        request: &JobRequest,
        key: Option<&str>,
    ) -> Result<PastJobs, HistoryError> {
        let (departed, dependencies) = self.read(|state| {
            let jobs = request.after.iter().map(|after| after.job);
            let past: Vec<JobId> = jobs.filter(|job| state.has_departed(*job)).collect();
            (state.departed_count(), past)
        });
        let completed = |job: &JobRecord| matches!(job.state, JobState::Ended(End::Completed));
        let ends = self.past_jobs(&dependencies)?;
        let of_key = match (self.history(), key) {
            (Some(history), Some(key)) if departed > 0 => history.job_of_key(user, key)?,
            _ => None,
        };
        let of_key = of_key.map(|id| self.past_job(id)).transpose()?.flatten();
        Ok(PastJobs {
            departed,
            ends: ends.iter().map(|job| (job.id, completed(job))).collect(),
            of_key: of_key.map(|job| (job.id, job.request)),
        })
    }
}
