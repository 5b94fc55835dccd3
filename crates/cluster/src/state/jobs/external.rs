//! Jobs whose workload another controller creates: found where they run, or held until the workload exists.

use dovetail_model::{Allocation, AttemptKey, Event, JobHistory, RestoredJob};

use super::lifecycle::JobLifecycle;
use super::{Attempt, AttemptEnd, Cause, End, Hold, JobRecord, JobState};
use crate::JobId;
use crate::fact::Fact;
use crate::request::JobRequest;
use crate::state::events::EventKind;

impl JobLifecycle<'_> {
    /// Adds a job that was found running ([`Fact::Found`]). It keeps its GPUs if no other job holds them.
    pub(in crate::state) fn adopt(&mut self, fact: &Fact) {
        let Fact::Found {
            job: id,
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
        if *id < self.jobs.next_id() {
            return;
        }
        let key = AttemptKey(u32::try_from(*attempt_id).unwrap_or(u32::MAX));
        let (spec, is_new_user) = self.scheduler.register(*id, user, request, *submitted);
        if is_new_user {
            self.refresh_cells();
        }
        let job_key = spec.id;
        let mut record = JobRecord::new(*id, user, request, *submitted);
        record.job_key = Some(job_key);
        self.jobs.insert(record);
        self.log(*id, EventKind::Submitted);
        let held = self.now.since(*since);
        let history = JobHistory {
            held,
            gpu_time: i128::from(held.0) * i128::from(allocation.gpus()),
            first_start: Some(*since),
            ..Default::default()
        };
        self.notify_engine(Event::Restored(Box::new(RestoredJob {
            spec,
            history,
            holds: Some((key, allocation.clone())),
            stopping: None,
        })));
        self.scheduler.expect_adoption(job_key);
        let attempt = Attempt::new(*attempt_id, key, *since, allocation.clone());
        self.jobs.known_mut(*id).attempts.push(attempt);
        self.set_state(*id, JobState::Starting);
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
        request: &JobRequest,
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
            let request = &mut record.request;
            (request.gpus, request.gpus_per_task) = (current.gpus, current.gpus_per_task);
            (request.min_gpus, request.max_gpus) = (current.min_gpus, current.max_gpus);
            request.cpus_per_gpu = current.cpus_per_gpu;
            request.memory_mib_per_gpu = current.memory_mib_per_gpu;
            request.gpu_type.clone_from(&current.gpu_type);
            request.constraint = current.constraint;
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
