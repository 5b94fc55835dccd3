//! Transitions of jobs outside attempts: submit, queue, hold, release, cancel, end.

use std::sync::Arc;

use dovetail_model::{Event, JobKey, RestoredJob, Time, Work};

use super::{End, Hold, JobRecord, JobState, JobTable};
use crate::JobId;
use crate::actor::{Actor, SystemRule};
use crate::request::{AfterWhen, ArrayPart, JobRequest};
use crate::state::attempts::completion;
use crate::state::events::{EventKind, EventLog};
use crate::state::learning::{LearnedTraits, Learning};
use crate::state::nodes::NodeTable;
use crate::state::scheduler::Scheduler;
use crate::virtual_clusters::VirtualClusters;

/// Changes the states of jobs: in the job table, the engine and the event log together.
#[derive(Debug)]
pub(in crate::state) struct JobLifecycle<'a> {
    pub(in crate::state) jobs: &'a mut JobTable,
    pub(in crate::state) scheduler: &'a mut Scheduler,
    pub(in crate::state) learning: &'a mut Learning,
    pub(in crate::state) nodes: &'a NodeTable,
    pub(in crate::state) virtual_clusters: &'a VirtualClusters,
    pub(in crate::state) events: &'a mut EventLog,
    pub(in crate::state) now: Time,
}

/// Returns the GPUs of other jobs of the same user in the same virtual cluster that hold GPUs or are queued.
pub(in crate::state) fn gpus_in_use_beside(jobs: &JobTable, job: &JobRecord) -> u64 {
    let is_same_user = |other: &&JobRecord| {
        other.id != job.id
            && other.state.is_in_engine()
            && other.user == job.user
            && other.request.tenant == job.request.tenant
    };
    jobs.unfinished()
        .filter(is_same_user)
        .map(|other| u64::from(other.request.gpus))
        .sum()
}

impl JobLifecycle<'_> {
    /// Passes an event to the engine.
    pub(in crate::state) fn notify_engine(&mut self, event: Event) {
        if let Event::Cancelled { job } = &event {
            // It may return, with another handle.
            let (id, alive) = (self.scheduler.job_id(*job), self.scheduler.alive(*job));
            if let Some(record) = self.jobs.get_mut(id) {
                record.alive = alive;
            }
        }
        self.scheduler.handle(self.now, event);
    }

    /// Adds an entry about a job to the event log.
    pub(in crate::state) fn log(&mut self, id: JobId, kind: EventKind) {
        self.events.log(self.now, Some(id), kind);
    }

    /// Adds a new job and queues it, unless its user wants it held.
    pub(in crate::state) fn submit(
        &mut self,
        id: JobId,
        user: &str,
        request: &Arc<JobRequest>,
        key: Option<&String>,
    ) {
        if !self.add(id, user, request, key) {
            return;
        }
        if request.hold {
            self.set_state(id, JobState::Held(Hold::User(Actor::user(user))));
        } else {
            self.enqueue(id);
        }
    }

    /// Adds a new job. Returns false for a number that was used before.
    pub(super) fn add(
        &mut self,
        id: JobId,
        user: &str,
        request: &Arc<JobRequest>,
        key: Option<&String>,
    ) -> bool {
        if id < self.jobs.next_id() {
            return false;
        }
        let mut record = JobRecord::new(id, user, request, self.now);
        record.key = key.cloned();
        self.jobs.insert(record);
        self.log(id, EventKind::Submitted);
        true
    }

    /// Queues a job, unless it has to wait for something else first.
    pub(in crate::state) fn enqueue(&mut self, id: JobId) {
        match self.unmet_condition(id) {
            Ok(None) => self.enter_engine(id),
            Ok(Some(hold)) => self.set_state(id, JobState::Held(hold)),
            Err(dependency) => self.end(id, End::DependencyFailed(dependency)),
        }
    }

    /// Returns what the job has to wait for before it is queued, or the dependency that can no longer be satisfied.
    fn unmet_condition(&self, id: JobId) -> Result<Option<Hold>, JobId> {
        let request = &self.jobs.known(id).request;
        let mut open = Vec::new();
        for after in &request.after {
            let state = self.jobs.get(after.job).map(|j| &j.state);
            let completed = match state {
                Some(JobState::Ended(end)) => Some(*end == End::Completed),
                Some(_) => {
                    open.push(after.job);
                    continue;
                }
                None => self.jobs.past_end(after.job),
            };
            match (completed, after.when) {
                (Some(true), AfterWhen::Ok | AfterWhen::Any) => {}
                (Some(false), AfterWhen::Any | AfterWhen::NotOk) => {}
                (Some(true), AfterWhen::NotOk) | (Some(false), AfterWhen::Ok) | (None, _) => {
                    return Err(after.job);
                }
            }
        }
        if !open.is_empty() {
            return Ok(Some(Hold::After(open)));
        }
        if self.is_array_full(id) {
            return Ok(Some(Hold::Array));
        }
        Ok(self.exceeds_user_cap(id).then_some(Hold::Cap))
    }

    fn enter_engine(&mut self, id: JobId) {
        let record = self.jobs.known(id);
        let learned = match self.scheduler.is_recomputing() {
            true => None,
            false => Some(Box::new(self.learning.about(record, self.nodes))),
        };
        let (mut spec, is_new_user) =
            self.scheduler
                .register(id, &record.user, &record.request, record.submitted);
        if let Some(learned) = &learned {
            learned.fill(&mut spec);
        }
        if is_new_user {
            self.refresh_cells();
        }
        let now = self.now;
        let record = self.jobs.known_mut(id);
        record.job_key = Some(spec.id);
        record.leaves_engine = false;
        record.learned = learned.filter(|learned| **learned != LearnedTraits::default());
        if !self.scheduler.is_recomputing() {
            // What its steps showed in earlier attempts still holds.
            spec.expected = record.estimate().map(|e| e.expected).or(spec.expected);
        }
        (record.told, record.queued_priority) = (spec.expected, Some(spec.priority));
        let mut history = record.history(now);
        let queued_since = record.queued_since.take();
        if let Some(history) = history.as_mut().filter(|_| self.scheduler.is_recomputing()) {
            (history.done, history.waiting_since) = (Work(0), None);
        }
        self.set_state(id, JobState::Queued);
        if let Some(since) = queued_since {
            self.jobs.known_mut(id).since = since;
        }
        match history {
            None => self.notify_engine(Event::Submitted(spec)),
            Some(history) => self.notify_engine(Event::Restored(Box::new(RestoredJob {
                spec,
                history,
                holds: None,
                stopping: None,
            }))),
        }
    }

    /// Makes new nodes and users known to the cells.
    pub(super) fn refresh_cells(&mut self) {
        self.scheduler
            .refresh_cells(self.now, self.virtual_clusters, self.nodes);
    }

    /// Cancels a job in any state.
    pub(in crate::state) fn cancel(&mut self, id: JobId, by: &Actor) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        match (&record.state, record.job_key) {
            (JobState::Ended(_), _) => {}
            (JobState::Held(_), _) | (JobState::Queued, None) => self.end(id, End::Cancelled(by.clone())),
            (JobState::Queued, Some(job_key)) => {
                self.notify_engine(Event::Cancelled { job: job_key });
                self.end(id, End::Cancelled(by.clone()));
            }
            (JobState::Starting | JobState::Running | JobState::Stopping(_), job_key) => {
                record.cancelled.get_or_insert_with(|| by.clone());
                record.leaves_engine = true;
                self.cancel_in_engine(job_key);
            }
        }
    }

    /// Holds a job; one that holds GPUs is stopped first.
    pub(in crate::state) fn hold(&mut self, id: JobId, by: &Actor) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        let held = JobState::Held(Hold::User(by.clone()));
        match (&record.state, record.job_key) {
            (JobState::Ended(_) | JobState::Held(Hold::User(_)), _) => {}
            (JobState::Held(_), _) => self.set_state(id, held),
            (JobState::Queued, job_key) => {
                self.cancel_in_engine(job_key);
                self.set_state(id, held);
            }
            (JobState::Starting | JobState::Running | JobState::Stopping(_), job_key) => {
                record.hold_after_stop.get_or_insert_with(|| by.clone());
                record.leaves_engine = true;
                self.cancel_in_engine(job_key);
            }
        }
    }

    fn cancel_in_engine(&mut self, job_key: Option<JobKey>) {
        let job = job_key.expect("a job that is queued or holds GPUs has a job key");
        self.notify_engine(Event::Cancelled { job });
    }

    /// Releases a job that a user held.
    pub(in crate::state) fn release(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        record.hold_after_stop = None;
        match (&record.state, record.workload_missing) {
            (JobState::Held(Hold::User(_)), true) => self.set_state(id, JobState::Held(Hold::Workload)),
            (JobState::Held(Hold::User(_)), false) => self.enqueue(id),
            _ => {}
        }
    }

    /// Changes the priority of a job; one that is queued leaves the queue and enters it again.
    pub(in crate::state) fn set_priority(&mut self, id: JobId, priority: i32) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        Arc::make_mut(&mut record.request).priority = priority;
        match (&record.state, record.job_key) {
            (JobState::Queued, Some(job_key)) => {
                self.notify_engine(Event::Cancelled { job: job_key });
                self.enqueue(id);
            }
            (JobState::Held(Hold::Cap), _) => self.enqueue(id),
            _ => {}
        }
    }

    /// Sets or removes a label of a job.
    pub(in crate::state) fn set_label(&mut self, id: JobId, key: &str, value: Option<&str>) {
        match self.jobs.get_mut(id) {
            Some(record) => record.set_label(key, value),
            None => return self.jobs.note_label(id, key, value),
        }
        self.jobs.note_change(id);
    }

    /// Changes the state of a job and logs the change.
    pub(in crate::state) fn set_state(&mut self, id: JobId, state: JobState) {
        let kind = match &state {
            JobState::Held(hold) => EventKind::Held(hold.clone()),
            JobState::Queued => EventKind::Queued,
            JobState::Running => EventKind::Running,
            JobState::Stopping(cause) => EventKind::Stopping(cause.clone()),
            JobState::Ended(end) => EventKind::Ended(end.clone()),
            JobState::Starting => {
                let attempt = self.jobs.known(id).attempt();
                let shares = attempt.map_or(&[][..], |a| &a.allocation.shares);
                EventKind::Starting {
                    nodes: shares.iter().map(|share| share.node).collect(),
                    gpus: attempt.map_or(0, |a| a.allocation.gpus()),
                }
            }
        };
        self.jobs.set_state(id, state, self.now);
        self.log(id, kind);
    }

    /// Ends a job and queues the jobs that waited for that.
    pub(in crate::state) fn end(&mut self, id: JobId, end: End) {
        self.learning.learn_run_time(self.jobs.known(id), &end);
        self.set_state(id, JobState::Ended(end));
        for dependent in self.jobs.take_dependents(id) {
            if matches!(self.jobs.known(dependent).state, JobState::Held(Hold::After(_))) {
                self.enqueue(dependent);
            }
        }
        self.enqueue_next_of_array(id);
        if self.jobs.has_capped() {
            self.enqueue_below_caps();
        }
        self.apply_role_rules(id);
    }

    /// Returns whether the job must wait for the GPU limit of its user.
    fn exceeds_user_cap(&self, id: JobId) -> bool {
        let job = self.jobs.known(id);
        let cluster = self.virtual_clusters.get(&job.request.tenant);
        let cap = cluster.and_then(|cluster| cluster.user_cap_gpus);
        cap.is_some_and(|cap| {
            let in_use = gpus_in_use_beside(self.jobs, job);
            in_use + u64::from(job.request.gpus) > u64::from(cap)
        })
    }

    /// Queues jobs that waited only for the GPU limit of their user, oldest first.
    pub(in crate::state) fn enqueue_below_caps(&mut self) {
        for id in self.jobs.capped() {
            if self.jobs.known(id).state == JobState::Held(Hold::Cap) && !self.exceeds_user_cap(id) {
                self.enqueue(id);
            }
        }
    }

    /// Returns whether the limit of the job's array is reached.
    fn is_array_full(&self, id: JobId) -> bool {
        let part = self.jobs.known(id).request.array;
        let Some((array, limit)) = part.and_then(|p| Some((p.array, p.at_most?))) else {
            return false;
        };
        let members = self.jobs.of_array(array);
        let active = members.filter(|job| job.id != id && job.state.is_in_engine());
        active.count() >= limit as usize
    }

    /// Queues the next job of an array with a limit.
    fn enqueue_next_of_array(&mut self, id: JobId) {
        let part = self.jobs.known(id).request.array;
        let Some(part) = part.filter(|p| p.at_most.is_some()) else {
            return;
        };
        let is_waiting = |job: &&JobRecord| job.state == JobState::Held(Hold::Array);
        let next = self.jobs.of_array(part.array).find(is_waiting).map(|job| job.id);
        if let Some(next) = next {
            self.enqueue(next);
        }
    }

    /// Applies the completion rules of a role whose instances are jobs of an array: the end of this one may cancel the
    /// others.
    fn apply_role_rules(&mut self, id: JobId) {
        let request = &self.jobs.known(id).request;
        let (Some(part), false, false) = (request.array, request.gang, request.roles.is_empty()) else {
            return;
        };
        let Some((role, _)) = request.instance(part.index) else {
            return;
        };
        let role = request.roles[role].clone();
        let (mut failed, mut succeeded, mut open) = (0, 0, Vec::new());
        for job in self.jobs.of_array(part.array) {
            let is_same_role = |p: ArrayPart| {
                let instance = job.request.instance(p.index);
                instance.is_some_and(|(i, _)| job.request.roles[i].name == role.name)
            };
            match &job.state {
                JobState::Ended(end) if job.request.array.is_some_and(is_same_role) => match end {
                    End::Completed => succeeded += 1,
                    End::Failed { .. } | End::TimeLimit | End::Rejected(_) => failed += 1,
                    End::Cancelled(_) | End::DependencyFailed(_) => {}
                },
                JobState::Ended(_) => {}
                _ => open.push(job.id),
            }
        }
        let rule = match completion::decide(&role, failed, succeeded) {
            None => return,
            Some(true) => format!("{succeeded} of {} have succeeded", role.name),
            Some(false) => format!("{failed} of {} have failed", role.name),
        };
        let by = Actor::System(SystemRule::Completion(rule));
        for other in open {
            self.cancel(other, &by);
        }
    }
}
