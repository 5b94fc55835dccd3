//! Jobs whose parts others make: found where they run, and waiting while their parts are made anew.

use dovetail_model::{Allocation, AttemptKey, Event, RestoredJob};

use super::{Attempt, AttemptEnd, Cause, ClusterState, End, EventKind, Hold, JobRecord, JobState, TaskState};
use crate::fact::Fact;
use crate::request::JobRequest;
use crate::{AttemptId, JobId};

impl ClusterState {
    pub(super) fn found(&mut self, fact: &Fact) {
        let Fact::Found {
            job: no,
            user,
            request,
            submitted,
            attempt: attempt_id,
            since,
            allocation,
        } = fact
        else {
            return;
        };
        if *no < self.next_job() {
            return;
        }
        let job_key = self.job_ids.push(*no);
        let key = AttemptKey(u32::try_from(*attempt_id).unwrap_or(u32::MAX));
        let users = self.names.users.len();
        let spec = Self::spec(&mut self.names, user, request, *submitted, job_key);
        if self.names.users.len() > users {
            self.refresh_cells();
        }
        let mut record = JobRecord::new(*no, user, request, *submitted);
        record.job_key = Some(job_key);
        self.jobs.insert(*no, record);
        self.live.insert(*no);
        self.log_event(Some(*no), EventKind::Submitted);
        let history = dovetail_model::JobHistory {
            held: self.now.since(*since),
            gpu_time: i128::from(self.now.since(*since).0) * i128::from(allocation.gpus()),
            first_start: Some(*since),
            ..Default::default()
        };
        self.tell(Event::Restored(Box::new(RestoredJob {
            spec,
            history,
            holds: Some((key, allocation.clone())),
        })));
        let holds = self.engine.job(job_key).and_then(|job| job.allocation.clone());
        let Some(allocation) = holds else {
            return self.set(*no, JobState::Queued);
        };
        let attempt = Attempt::new(
            *attempt_id,
            key,
            *since,
            vec![TaskState::Starting; allocation.shares.len()],
            allocation,
        );
        self.known(*no).attempts.push(attempt);
        self.set(*no, JobState::Starting);
    }

    /// Nothing follows from it: it only stands in the book.
    pub(super) fn past(&mut self, fact: &Fact) {
        let Fact::FoundEnded {
            job: no,
            user,
            request,
            submitted,
            started,
            ended,
            end,
        } = fact
        else {
            return;
        };
        if *no < self.next_job() {
            return;
        }
        let mut record = JobRecord::new(*no, user, request, *submitted);
        (record.state, record.since) = (JobState::Ended(end.clone()), *ended);
        if let Some(started) = started {
            // Where it ran is not known any more.
            let nowhere = Allocation::default();
            let mut attempt = Attempt::new(0, AttemptKey(0), *started, Vec::new(), nowhere);
            (attempt.running_since, attempt.until) = (Some(*started), Some(*ended));
            attempt.end = Some(match end {
                End::Completed => AttemptEnd::Completed,
                End::Cancelled(by) => AttemptEnd::Stopped(Cause::Cancelled(by.clone())),
                other => AttemptEnd::Failed(other.sentence()),
            });
            record.attempts.push(attempt);
        }
        self.jobs.insert(*no, record);
    }

    pub(super) fn announced(&mut self, no: JobId, user: &str, request: &JobRequest, key: Option<&String>) {
        if self.enrol(no, user, request, key) {
            self.known(no).workload_missing = true;
            self.set(no, JobState::Held(Hold::Workload));
        }
    }

    pub(super) fn scattered(&mut self, no: JobId) {
        let Some(record) = self.jobs.get_mut(&no).filter(|job| !job.state.has_ended()) else {
            return;
        };
        record.workload_missing = true;
        match (&record.state, record.job_key) {
            (JobState::Queued, Some(job_key)) => {
                self.tell(Event::Cancelled { job: job_key });
                self.set(no, JobState::Held(Hold::Workload));
            }
            (JobState::Held(hold), _) if !matches!(hold, Hold::User(_)) => {
                self.set(no, JobState::Held(Hold::Workload));
            }
            _ => {}
        }
    }

    /// Stops an attempt that the runtime cannot continue; the job is queued again afterwards.
    pub(super) fn attempt_aborted(&mut self, job: JobId, attempt: AttemptId, reason: &str) {
        let is_active = |record: &super::JobRecord| record.state.holds_gpus();
        if self.jobs.get(&job).is_some_and(is_active) {
            self.stop_attempt(job, attempt, Cause::Platform(reason.to_owned()));
        }
    }

    pub(super) fn gathered(&mut self, no: JobId, now: Option<&JobRequest>) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        if let Some(now) = now.filter(|_| record.state == JobState::Held(Hold::Workload)) {
            let request = &mut record.request;
            (request.gpus, request.gpus_per_task) = (now.gpus, now.gpus_per_task);
            (request.min_gpus, request.max_gpus) = (now.min_gpus, now.max_gpus);
            (request.cpus_per_gpu, request.memory_mib_per_gpu) = (now.cpus_per_gpu, now.memory_mib_per_gpu);
            request.gpu_type.clone_from(&now.gpu_type);
            request.constraint = now.constraint;
        }
        record.workload_missing = false;
        if record.state == JobState::Held(Hold::Workload) {
            self.line_up(no);
        }
    }

    /// The launch is over and the job is not, but there is nothing of it that could be launched.
    pub(super) fn wait_for_parts(&mut self, no: JobId) {
        if let Some(job_key) = self.jobs[&no].job_key {
            self.tell(Event::Cancelled { job: job_key });
        }
        self.set(no, JobState::Held(Hold::Workload));
    }
}
