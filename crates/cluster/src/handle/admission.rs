//! Checks of requests against the cluster state, before they become facts.

use std::sync::Arc;

use super::{Conflict, InvalidRequest, NotFound, Refusal};
use crate::JobId;
use crate::driver::Transaction;
use crate::fact::Fact;
use crate::past::PastJobs;
use crate::request::{ArrayPart, GangRequest, JobRequest};
use crate::state::{ClusterState, JobState};

/// Returns the job that was submitted with this idempotency key before.
pub(super) fn find_by_key(
    state: &ClusterState,
    user: &str,
    key: Option<&String>,
    request: &JobRequest,
    past: &PastJobs,
) -> Result<Option<JobId>, Refusal> {
    let refers_to_past = key.is_some() || !request.after.is_empty();
    if refers_to_past && past.departed != state.departed_count() {
        return Err(Refusal::HistoryMoved);
    }
    let known = key.and_then(|key| state.job_of_key(user, key));
    let known = known.map(|job| (job.id, &*job.request));
    let past = past.of_key.as_ref().map(|(id, request)| (*id, &**request));
    let Some((id, before)) = known.or(past) else {
        return Ok(None);
    };
    let before = JobRequest {
        array: request.array,
        priority: request.priority,
        ..before.clone()
    };
    match before == *request {
        true => Ok(Some(id)),
        false => Err(Conflict::KeyReused(id).into()),
    }
}

/// Returns the state of a job; none if it has ended and left memory.
pub(super) fn find_job(state: &ClusterState, job: JobId) -> Result<Option<&JobState>, NotFound> {
    match state.job(job) {
        Some(record) => Ok(Some(&record.state)),
        None if state.has_departed(job) => Ok(None),
        None => Err(NotFound::Job(job)),
    }
}

/// Checks that a job exists and has not ended.
pub(super) fn check_unfinished(state: &ClusterState, job: JobId) -> Result<(), Refusal> {
    match find_job(state, job)?.is_none_or(JobState::has_ended) {
        true => Err(Conflict::Ended(job).into()),
        false => Ok(()),
    }
}

/// Checks that the virtual cluster of a job exists and its limits permit the job.
pub(super) fn check_virtual_cluster(
    state: &ClusterState,
    request: &JobRequest,
) -> Result<(), InvalidRequest> {
    let virtual_cluster = request.tenant.clone();
    let Some(cluster) = state.virtual_clusters().get(&virtual_cluster) else {
        return Err(InvalidRequest::UnknownVirtualCluster {
            name: virtual_cluster,
            known: state.virtual_clusters().names(),
        });
    };
    let priority = request.priority;
    if let Some(max) = cluster.max_priority.filter(|max| priority > *max) {
        return Err(InvalidRequest::Priority {
            priority,
            virtual_cluster,
            max,
        });
    }
    let gpus = request.gpus;
    if let Some(cap) = cluster.user_cap_gpus.filter(|cap| gpus > *cap) {
        return Err(InvalidRequest::UserCap {
            gpus,
            virtual_cluster,
            cap,
        });
    }
    Ok(state.could_ever_run(request)?)
}

/// Checks whether a job can be submitted: its request is valid, and the cluster could run it if it were empty.
pub(super) fn check_request(
    state: &ClusterState,
    request: &JobRequest,
    past: &PastJobs,
) -> Result<(), InvalidRequest> {
    request.validate()?;
    check_virtual_cluster(state, request)?;
    for after in &request.after {
        let is_past = || past.ends.contains_key(&after.job) || state.past_end(after.job).is_some();
        if state.job(after.job).is_none() && !is_past() {
            return Err(InvalidRequest::UnknownDependency(after.job));
        }
    }
    Ok(state.fits_when_empty(request)?)
}

impl Transaction<'_> {
    /// Submits a job and returns its number.
    ///
    /// # Errors
    /// If the request is not valid, or the cluster could never run it.
    pub fn submit(&mut self, user: &str, request: JobRequest, key: Option<String>) -> Result<JobId, Refusal> {
        self.submit_after(user, request, key, &PastJobs::default())
    }

    /// Submits a job that may depend on jobs that have left memory.
    pub(super) fn submit_after(
        &mut self,
        user: &str,
        request: JobRequest,
        key: Option<String>,
        past: &PastJobs,
    ) -> Result<JobId, Refusal> {
        self.check_history()?;
        check_request(self.state, &request, past)?;
        self.record_past_ends(&request, past);
        let job = self.state.next_job();
        self.record(Fact::Submitted {
            job,
            user: user.to_owned(),
            request: Arc::new(request),
            key,
        });
        Ok(job)
    }

    /// Checks whether the job of a gang of pods may be submitted.
    ///
    /// # Errors
    /// If the pods do not make a job, it may not be submitted, or the cluster could never run it.
    pub fn check_gang(&self, gang: &GangRequest) -> Result<(), Refusal> {
        let request = gang.job()?;
        check_virtual_cluster(self.state, &request)?;
        let fits = self.state.fits_when_empty(&request);
        Ok(fits.map_err(InvalidRequest::from)?)
    }

    /// Records how the jobs ended on which a job depends and that have left memory.
    pub(super) fn record_past_ends(&mut self, request: &JobRequest, past: &PastJobs) {
        let jobs = past.ends_of(request.after.iter().map(|after| after.job));
        if !jobs.is_empty() {
            self.record(Fact::DependenciesEnded { jobs });
        }
    }

    /// Submits a job for each index of an array. Returns the numbers of the first and the last one. Jobs with an external
    /// workload are announced instead.
    pub(super) fn submit_array(
        &mut self,
        user: &str,
        request: &JobRequest,
        (indexes, at_most): (Vec<u32>, Option<u32>),
        mut key: Option<String>,
        has_external_workload: bool,
        past: &PastJobs,
    ) -> Result<(JobId, JobId), Refusal> {
        if let Some(first) = find_by_key(self.state, user, key.as_ref(), request, past)? {
            return Ok((first, first + indexes.len() as u64 - 1));
        }
        self.check_history()?;
        self.check_array(request, &indexes, at_most, past)?;
        self.record_past_ends(request, past);
        let array = self.state.next_job();
        for index in indexes {
            let mut request = request.clone().for_instance(index);
            request.array = Some(ArrayPart {
                array,
                index,
                at_most,
            });
            let (job, user, key) = (self.state.next_job(), user.to_owned(), key.take());
            self.record(match has_external_workload {
                true => Fact::Announced {
                    job,
                    user,
                    request: Arc::new(request.with_external_workload()),
                    key,
                },
                false => Fact::Submitted {
                    job,
                    user,
                    request: Arc::new(request),
                    key,
                },
            });
        }
        Ok((array, self.state.next_job() - 1))
    }

    fn check_array(
        &self,
        request: &JobRequest,
        indexes: &[u32],
        at_most: Option<u32>,
        past: &PastJobs,
    ) -> Result<(), InvalidRequest> {
        check_request(self.state, request, past)?;
        if indexes.is_empty() || at_most == Some(0) {
            return Err(InvalidRequest::EmptyArray);
        }
        for role in 0..request.roles.len() {
            let first = request.roles[..role].iter().map(|r| r.instances).sum();
            check_request(self.state, &request.clone().for_instance(first), past)?;
        }
        let is_unknown = |index: &&u32| !request.roles.is_empty() && request.instance(**index).is_none();
        match indexes.iter().find(is_unknown) {
            Some(index) => Err(InvalidRequest::UnknownInstance { index: *index }),
            None => Ok(()),
        }
    }
}
