//! Jobs whose parts others make: found where they run, and waiting while their parts are made anew.

use dovetail_model::{Allocation, Event, Generation, Returned};

use super::{Attempt, AttemptEnd, Book, Cause, End, Hold, JobRecord, JobState, TaskState, What};
use crate::JobNo;
use crate::fact::Fact;
use crate::request::JobRequest;

impl Book {
    pub(super) fn found(&mut self, fact: &Fact) {
        let Fact::Found {
            job: no,
            user,
            request,
            submitted,
            launch,
            since,
            allocation,
        } = fact
        else {
            return;
        };
        if *no < self.next_job() {
            return;
        }
        let ticket = self.tickets.push(*no);
        let generation = Generation(u32::try_from(*launch).unwrap_or(u32::MAX));
        let users = self.names.users.len();
        let spec = Self::spec(&mut self.names, user, request, *submitted, ticket);
        if self.names.users.len() > users {
            self.refresh_cells();
        }
        let mut record = JobRecord::new(*no, user, request, *submitted);
        record.ticket = Some(ticket);
        self.jobs.insert(*no, record);
        self.live.insert(*no);
        self.notice(Some(*no), What::Submitted);
        let past = dovetail_model::Past {
            held: self.now.since(*since),
            gpu_time: i128::from(self.now.since(*since).0) * i128::from(allocation.gpus()),
            first_start: Some(*since),
            ..Default::default()
        };
        self.tell(Event::Returned(Box::new(Returned {
            spec,
            past,
            holds: Some((generation, allocation.clone())),
        })));
        let holds = self.engine.job(ticket).and_then(|job| job.allocation.clone());
        let Some(allocation) = holds else {
            return self.set(*no, JobState::Queued);
        };
        let attempt = Attempt::new(
            *launch,
            generation,
            *since,
            vec![TaskState::Starting; allocation.shares.len()],
            allocation,
        );
        self.known(*no).attempts.push(attempt);
        self.set(*no, JobState::Starting);
    }

    /// Nothing follows from it: it only stands in the book.
    pub(super) fn past(&mut self, fact: &Fact) {
        let Fact::Past {
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
            let mut attempt = Attempt::new(0, Generation(0), *started, Vec::new(), nowhere);
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

    pub(super) fn announced(&mut self, no: JobNo, user: &str, request: &JobRequest, key: Option<&String>) {
        if self.enrol(no, user, request, key) {
            self.known(no).scattered = true;
            self.set(no, JobState::Held(Hold::Parts));
        }
    }

    pub(super) fn scattered(&mut self, no: JobNo) {
        let Some(record) = self.jobs.get_mut(&no).filter(|job| !job.state.is_over()) else {
            return;
        };
        record.scattered = true;
        match (&record.state, record.ticket) {
            (JobState::Queued, Some(ticket)) => {
                self.tell(Event::Cancelled { job: ticket });
                self.set(no, JobState::Held(Hold::Parts));
            }
            (JobState::Held(hold), _) if !matches!(hold, Hold::User(_)) => {
                self.set(no, JobState::Held(Hold::Parts));
            }
            _ => {}
        }
    }

    pub(super) fn gathered(&mut self, no: JobNo, now: Option<&JobRequest>) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        if let Some(now) = now.filter(|_| record.state == JobState::Held(Hold::Parts)) {
            let request = &mut record.request;
            (request.gpus, request.gpus_per_task) = (now.gpus, now.gpus_per_task);
            (request.min_gpus, request.max_gpus) = (now.min_gpus, now.max_gpus);
            (request.cpus_per_gpu, request.memory_mib_per_gpu) = (now.cpus_per_gpu, now.memory_mib_per_gpu);
            request.gpu_type.clone_from(&now.gpu_type);
            request.fence = now.fence;
        }
        record.scattered = false;
        if record.state == JobState::Held(Hold::Parts) {
            self.line_up(no);
        }
    }

    /// The launch is over and the job is not, but there is nothing of it that could be launched.
    pub(super) fn wait_for_parts(&mut self, no: JobNo) {
        if let Some(ticket) = self.jobs[&no].ticket {
            self.tell(Event::Cancelled { job: ticket });
        }
        self.set(no, JobState::Held(Hold::Parts));
    }
}
