//! Jobs whose workload another controller creates: found where they run, or held until the workload exists.

use std::sync::Arc;

use dovetail_model::{Allocation, AttemptKey, Event, RestoredJob, Time};

use super::lifecycle::JobLifecycle;
use super::{Attempt, AttemptEnd, Cause, EarlierService, End, Hold, JobRecord, JobState};
use crate::JobId;
use crate::fact::Fact;
use crate::request::{JobRequest, take_resources};
use crate::state::events::EventKind;

impl JobLifecycle<'_> {
    /// Adds a gang that was found running ([`Fact::Found`]). It keeps its GPUs if no other job holds them.
    pub(in crate::state) fn adopt(&mut self, fact: &Fact) {
        let Fact::Found {
            job: id,
            request,
            submitted,
            attempt: attempt_id,
            since,
            allocation,
            earlier,
        } = fact
        else {
            return;
        };
        let Ok(job) = request.job().map(Arc::new) else {
            return;
        };
        if *id < self.jobs.next_id() {
            return;
        }
        let (user, since) = (&request.user, (*since).min(self.now));
        let key = AttemptKey(u32::try_from(*attempt_id).unwrap_or(u32::MAX));
        let mut record = JobRecord::new(*id, user, &job, *submitted);
        (record.earlier, record.progress) = (Some(*earlier), earlier.progress);
        let attempt = Attempt::new(*attempt_id, key, since, allocation.clone());
        record.attempts.push(attempt);
        let (mut spec, is_new_user) = self.scheduler.register(*id, user, &job, *submitted);
        if is_new_user {
            self.refresh_cells();
        }
        let job_key = spec.id;
        spec.expected = record.estimate().map(|e| e.expected).or(spec.expected);
        (record.job_key, record.told) = (Some(job_key), spec.expected);
        record.queued_priority = Some(spec.priority);
        let history = record.history(self.now).unwrap_or_default();
        self.jobs.insert(record);
        self.log(*id, EventKind::Submitted);
        self.notify_engine(Event::Restored(Box::new(RestoredJob {
            spec,
            history,
            holds: Some((key, allocation.clone())),
            stopping: None,
        })));
        self.scheduler.expect_adoption(job_key);
        self.set_state(*id, JobState::Starting);
    }

    /// Lets a job whose workload is missing continue from what an earlier scheduler knew about it.
    pub(in crate::state) fn recall(
        &mut self,
        id: JobId,
        submitted: Time,
        queued: Option<Time>,
        earlier: EarlierService,
    ) {
        let record = self.jobs.get_mut(id);
        let waits = |r: &&mut JobRecord| r.state == JobState::Held(Hold::Workload) && r.attempts.is_empty();
        if let Some(record) = record.filter(waits) {
            record.submitted = submitted.min(self.now);
            record.queued_since = queued.map(|queued| queued.min(self.now));
            (record.earlier, record.progress) = (Some(earlier), earlier.progress);
        }
    }

    /// Queues a job that was found running and cannot keep its GPUs.
    pub(in crate::state) fn displace(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        record.attempts.pop();
        self.set_state(id, JobState::Queued);
    }

    /// Adds a job that was found ended ([`Fact::FoundEnded`]). Nothing follows from it but its record.
    pub(in crate::state) fn add_ended(&mut self, fact: &Fact) {
        let Fact::FoundEnded {
            job: id,
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
        if *id < self.jobs.next_id() {
            return;
        }
        let mut record = JobRecord::new(*id, user, request, *submitted);
        (record.state, record.since) = (JobState::Ended(end.clone()), *ended);
        if let Some(started) = started {
            // Where it ran is not known any more.
            let mut attempt = Attempt::new(0, AttemptKey(0), *started, Allocation::default());
            (attempt.running_since, attempt.until) = (Some(*started), Some(*ended));
            attempt.end = Some(match end {
                End::Completed => AttemptEnd::Completed,
                End::Cancelled(by) => AttemptEnd::Stopped(Cause::Cancelled(by.clone())),
                other => AttemptEnd::Failed(other.sentence()),
            });
            record.attempts.push(attempt);
        }
        self.jobs.insert(record);
    }

    /// Adds a job whose workload does not exist yet.
    pub(in crate::state) fn announce(
        &mut self,
        id: JobId,
        user: &str,
        request: &Arc<JobRequest>,
        key: Option<&String>,
    ) {
        if self.add(id, user, request, key) {
            self.jobs.known_mut(id).workload_missing = true;
            self.set_state(id, JobState::Held(Hold::Workload));
        }
    }

    /// Holds a job whose workload was deleted; one that holds GPUs is held after it has stopped.
    pub(in crate::state) fn lose_workload(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(id).filter(|job| !job.state.has_ended()) else {
            return;
        };
        record.workload_missing = true;
        match (&record.state, record.job_key) {
            (JobState::Queued, Some(_)) => self.hold_for_workload(id),
            (JobState::Held(hold), _) if !matches!(hold, Hold::User(_)) => {
                self.set_state(id, JobState::Held(Hold::Workload));
            }
            _ => {}
        }
    }

    /// Queues a job whose workload exists again, with the size the workload has now.
    pub(in crate::state) fn restore_workload(&mut self, id: JobId, current: Option<&JobRequest>) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        let is_waiting = record.state == JobState::Held(Hold::Workload);
        if let Some(current) = current.filter(|_| is_waiting) {
            take_resources(Arc::make_mut(&mut record.request), current);
        }
        record.workload_missing = false;
        if is_waiting {
            self.enqueue(id);
        }
    }

    /// Takes a job out of the engine until its workload exists.
    pub(in crate::state) fn hold_for_workload(&mut self, id: JobId) {
        if let Some(job_key) = self.jobs.known(id).job_key {
            self.notify_engine(Event::Cancelled { job: job_key });
        }
        self.set_state(id, JobState::Held(Hold::Workload));
    }
}
