//! Attempts: gangs whose tasks start together, from launch to the end of the last task.

pub(super) mod completion;
mod failure;
pub(super) mod instances;

use dovetail_model::{Allocation, AttemptKey, Event, JobKey, NodeId, Outcome, Rate, StopReason, Work};

use super::commands::{self, RuntimeCommand};
use super::events::EventKind;
use super::jobs::{Attempt, AttemptEnd, Cause, End, Hold, JobLifecycle, JobState, TaskState, Verdict};
use super::trials::CpuTrial;
use crate::actor::Actor;
use crate::fact::{InstanceEnd, TaskEnd};
use crate::request::Processes;
use crate::{AttemptId, JobId};
use failure::FailureCause;

/// Reason given to tasks that are stopped because the rest of their attempt has succeeded.
pub(super) const DONE: &str = "done";

/// Changes the attempts of jobs, and collects the commands for agents that follow.
#[derive(Debug)]
pub(super) struct AttemptLifecycle<'a> {
    pub(super) jobs: JobLifecycle<'a>,
    pub(super) commands: &'a mut Vec<(NodeId, RuntimeCommand)>,
}

impl AttemptLifecycle<'_> {
    /// Starts an attempt on the GPUs the engine allocated.
    pub(super) fn launch(&mut self, id: JobId, attempt: Attempt) {
        self.jobs.jobs.known_mut(id).attempts.push(attempt);
        self.jobs.set_state(id, JobState::Starting);
        let record = self.jobs.jobs.known(id);
        let attempt = &record.attempts[record.attempts.len() - 1];
        let is_shared = self.jobs.scheduler.shares_gpus();
        for (place, share) in attempt.allocation.shares.iter().enumerate() {
            let command = commands::start(self.jobs.nodes, is_shared, record, attempt, place);
            self.commands.push((share.node, command));
        }
    }

    /// Changes the CPU and memory of a running attempt.
    pub(super) fn resize(&mut self, id: JobId, attempt_id: AttemptId, allocation: &Allocation) {
        let attempts = &mut self.jobs.jobs.known_mut(id).attempts;
        let Some(attempt) = attempts.last_mut().filter(|a| a.id == attempt_id) else {
            return;
        };
        attempt.allocation = allocation.clone();
        attempt.trial = None;
        self.send_limits(id);
    }

    /// Begins a trial of a running attempt with other CPU, or ends it.
    pub(super) fn try_cpu(&mut self, id: JobId, attempt_id: AttemptId, cpu_milli_per_gpu: Option<u32>) {
        let now = self.jobs.now;
        let Some(attempt) = self.jobs.jobs.known_mut(id).open_attempt(attempt_id) else {
            return;
        };
        attempt.tried.extend(cpu_milli_per_gpu);
        attempt.trial = cpu_milli_per_gpu.map(|cpu_milli_per_gpu| CpuTrial {
            cpu_milli_per_gpu,
            since: now,
            samples: 0,
        });
        self.send_limits(id);
    }

    /// Tells the agents of the last attempt of a job its CPU and memory.
    fn send_limits(&mut self, id: JobId) {
        let now = self.jobs.now;
        let record = self.jobs.jobs.known_mut(id);
        let step = record.progress.step;
        let Some(attempt) = record.attempts.last_mut() else {
            return;
        };
        (attempt.resized, attempt.limits_changed) = (true, Some((now, step)));
        for (place, share) in attempt.allocation.shares.iter().enumerate() {
            if !attempt.tasks[place].has_ended() {
                let command = commands::resize(id, attempt, place);
                self.commands.push((share.node, command));
            }
        }
    }

    /// Returns why a job stops that the engine wants to stop.
    pub(super) fn stop_cause(&self, job_key: JobKey, reason: StopReason) -> Cause {
        let record = self.jobs.jobs.known(self.jobs.scheduler.job_id(job_key));
        match reason {
            StopReason::Preempted => Cause::Preempted(self.preemptor(job_key)),
            StopReason::Moved => Cause::Moved,
            StopReason::Resized => Cause::Resized,
            StopReason::NodeLost(node) => Cause::NodeLost(node),
            StopReason::Cancelled => match (&record.cancelled, &record.hold_after_stop) {
                (None, Some(by)) => Cause::Held(by.clone()),
                (Some(by), _) => Cause::Cancelled(by.clone()),
                (None, None) => Cause::Cancelled(Actor::user("")),
            },
        }
    }

    /// Tells all tasks of an attempt to stop, unless they were told before.
    pub(super) fn stop_attempt(&mut self, id: JobId, attempt_id: AttemptId, cause: Cause) {
        let now = self.jobs.now;
        let Some(attempt) = self.jobs.jobs.known_mut(id).open_attempt(attempt_id) else {
            return;
        };
        if attempt.cause.is_some() {
            return;
        }
        (attempt.cause, attempt.told_to_stop) = (Some(cause.clone()), Some(now));
        let nodes = attempt.live_nodes();
        self.jobs.jobs.clear_time_limit(id);
        let reason = cause.word();
        self.jobs.set_state(id, JobState::Stopping(cause));
        self.stop_tasks(nodes, id, attempt_id, reason);
    }

    fn stop_tasks(&mut self, nodes: Vec<NodeId>, id: JobId, attempt_id: AttemptId, reason: &str) {
        let stop = |node| (node, commands::stop(id, attempt_id, reason));
        self.commands.extend(nodes.into_iter().map(stop));
    }

    /// Returns the first queued job that is to get GPUs of this one.
    fn preemptor(&self, victim: JobKey) -> Option<JobId> {
        let scheduler = &self.jobs.scheduler;
        let held = &self
            .jobs
            .jobs
            .known(scheduler.job_id(victim))
            .attempt()?
            .allocation;
        let overlaps = |other: &Allocation| {
            other.shares.iter().any(|theirs| {
                held.shares.iter().any(|own| {
                    own.node == theirs.node && own.gpus.iter().any(|slot| theirs.gpus.contains(slot))
                })
            })
        };
        let jobs = scheduler.engine().jobs();
        let mut others = jobs.filter(|job| job.spec.id != victim && !job.holds_gpus());
        let preemptor = others.find(|job| job.allocation.as_ref().is_some_and(overlaps))?;
        Some(scheduler.job_id(preemptor.spec.id))
    }

    /// Records that the processes of a task run. When all tasks run, the job is running.
    pub(super) fn start_task(
        &mut self,
        id: JobId,
        attempt_id: AttemptId,
        node: NodeId,
        sharing: &str,
        remarks: &[String],
    ) {
        let now = self.jobs.now;
        let Some(record) = self.jobs.jobs.get_mut(id) else {
            return;
        };
        let Some(attempt) = record.open_attempt(attempt_id) else {
            return;
        };
        if !attempt.start_task(node, sharing, remarks) {
            return;
        }
        let all_run = attempt.tasks.iter().all(|t| *t == TaskState::Running);
        if !all_run || attempt.cause.is_some() {
            return;
        }
        attempt.running_since = Some(now);
        let key = attempt.key;
        let job_key = record.job_key.expect("a job that holds GPUs has a job key");
        let rate = match self.jobs.scheduler.is_recomputing() {
            true => Rate::FULL,
            false => record.rate_of_width(),
        };
        if let Some(limit) = record.request.time_limit {
            self.jobs.jobs.set_time_limit(now + limit, id, attempt_id);
        }
        self.jobs.set_state(id, JobState::Running);
        self.jobs.notify_engine(Event::Started {
            job: job_key,
            attempt: key,
            rate,
        });
    }

    /// Records that the processes of a task have ended. Returns false if that is known already, or the attempt has ended.
    pub(super) fn record_task_end(
        &mut self,
        id: JobId,
        attempt_id: AttemptId,
        node: NodeId,
        end: &TaskEnd,
    ) -> bool {
        let Some(record) = self.jobs.jobs.get_mut(id) else {
            return false;
        };
        let attempt = record.open_attempt(attempt_id);
        if !attempt.is_some_and(|attempt| attempt.end_task(node, end)) {
            return false;
        }
        record.progress.checkpoint = record.progress.checkpoint.max(end.checkpoint_step);
        true
    }

    /// Continues an attempt after one of its tasks has ended: ends it, stops the remaining tasks, or lets them run.
    pub(super) fn continue_after_task_end(&mut self, id: JobId, attempt_id: AttemptId, end: &TaskEnd) {
        let record = self.jobs.jobs.known_mut(id);
        // Failed instances of roles were counted when they ended.
        let counts = record.request.roles.is_empty() || end.platform_error.is_some();
        let has_failed = failure::has_failed(end) && counts;
        let only_holds_nodes = record.only_holds_nodes(attempt_id);
        let Some(attempt) = record.open_attempt(attempt_id) else {
            return;
        };
        if attempt.all_tasks_ended() {
            self.conclude(id, attempt_id);
        } else if has_failed && !end.was_stopped {
            // A gang cannot continue without one of its members.
            let cause = match &end.platform_error {
                Some(error) => Cause::Platform(error.clone()),
                None => Cause::Failed,
            };
            self.stop_attempt(id, attempt_id, cause);
        } else if only_holds_nodes {
            let nodes = attempt.live_nodes();
            self.stop_tasks(nodes, id, attempt_id, DONE);
        }
    }

    /// Records that an instance of a role has ended, and applies the completion rules.
    pub(super) fn end_instance(&mut self, id: JobId, attempt_id: AttemptId, end: &InstanceEnd) {
        let Some(record) = self.jobs.jobs.get_mut(id) else {
            return;
        };
        let Some(role) = record.request.roles.iter().find(|r| r.name == end.role).cloned() else {
            return;
        };
        let is_gang = record.request.gang;
        let Some(attempt) = record.open_attempt(attempt_id) else {
            return;
        };
        let is_same = |known: &InstanceEnd| (&known.role, known.index) == (&end.role, end.index);
        if attempt.ends.iter().any(is_same) {
            return;
        }
        attempt.ends.push(end.clone());
        // Instances that end after the attempt was told to stop decide nothing.
        if attempt.cause.is_some() || attempt.verdict.is_some() {
            return;
        }
        let of_role: Vec<&InstanceEnd> = attempt.ends.iter().filter(|e| e.role == role.name).collect();
        let is_success = |e: &&&InstanceEnd| e.exit_code == 0 && e.signal == 0;
        let succeeded = of_role.iter().filter(is_success).count() as u32;
        let failed = of_role.len() as u32 - succeeded;
        // An instance that is a job of its own is the whole attempt.
        let verdict = match is_gang {
            true => completion::decide(&role, failed, succeeded),
            false => Some(failed == 0),
        };
        match verdict {
            None => {}
            Some(true) => {
                attempt.verdict = Some(Verdict::Succeeded(role.name));
                let nodes = attempt.live_nodes();
                self.stop_tasks(nodes, id, attempt_id, DONE);
            }
            Some(false) => {
                attempt.verdict = Some(Verdict::Failed(role.name, end.clone()));
                self.stop_attempt(id, attempt_id, Cause::Failed);
            }
        }
    }

    /// Ends an attempt whose last task has ended.
    fn conclude(&mut self, id: JobId, attempt_id: AttemptId) {
        let now = self.jobs.now;
        self.jobs.jobs.clear_time_limit(id);
        let record = self.jobs.jobs.known_mut(id);
        let only_first_node = record.request.processes == Processes::FirstNode;
        let has_roles = !record.request.roles.is_empty();
        let attempt = record.open_attempt(attempt_id).expect("checked by the caller");
        attempt.until = Some(now);
        let ends = attempt.task_ends();
        let cause = attempt.cause.clone();
        let (completed, failed) = if has_roles {
            completion::outcome(attempt, &ends)
        } else {
            // Where only the first node has a process, the tasks on other nodes were stopped.
            let counted = if only_first_node { &ends[..1] } else { &ends[..] };
            let is_success = |end: &TaskEnd| !failure::has_failed(end) && !end.was_stopped;
            let failed = ends
                .iter()
                .find(|end| failure::has_failed(end) && !end.was_stopped);
            (counted.iter().all(is_success), failed.cloned())
        };
        match (cause, failed) {
            _ if completed => {
                attempt.end = Some(AttemptEnd::Completed);
                self.exit(id, Outcome::Completed);
                self.jobs.end(id, End::Completed);
            }
            (Some(Cause::Failed | Cause::Platform(_)) | None, Some(failed)) => self.fail(id, &failed),
            (Some(cause), _) => {
                record.end_attempt(AttemptEnd::Stopped(cause.clone()));
                self.resume(id, cause);
            }
            // Its agent stopped it without a command.
            (None, None) => self.fail(
                id,
                &TaskEnd {
                    platform_error: Some("stopped, but not by the scheduler".to_owned()),
                    ..TaskEnd::default()
                },
            ),
        }
    }

    /// Decides what becomes of a job whose attempt has ended and that is not complete.
    fn resume(&mut self, id: JobId, cause: Cause) {
        let record = self.jobs.jobs.known_mut(id);
        let max_losses = record.request.retries.node;
        // It may have been cancelled or held while it stopped for another reason.
        let cause = match (&record.cancelled, &record.hold_after_stop) {
            (Some(by), _) => Cause::Cancelled(by.clone()),
            (None, Some(by)) if cause != Cause::TimeLimit => Cause::Held(by.clone()),
            (None, _) => cause,
        };
        match cause {
            Cause::Cancelled(by) => {
                self.return_gpus(id);
                self.jobs.end(id, End::Cancelled(by));
            }
            Cause::Held(by) => {
                self.return_gpus(id);
                let is_held = self.jobs.jobs.known_mut(id).hold_after_stop.take().is_some();
                if is_held {
                    self.jobs.set_state(id, JobState::Held(Hold::User(by)));
                } else {
                    self.jobs.enqueue(id);
                }
            }
            Cause::TimeLimit => {
                self.exit(id, Outcome::Failed);
                self.jobs.end(id, End::TimeLimit);
            }
            Cause::NodeLost(node) => {
                record.failures.node += 1;
                if record.failures.node > max_losses {
                    let reason = format!("lost its node {} times", max_losses + 1);
                    self.give_up(id, &TaskEnd::default(), reason);
                } else {
                    self.requeue(id, Cause::NodeLost(node));
                }
            }
            cause => self.requeue(id, cause),
        }
    }

    /// Ends a failed attempt, and retries the job within its limits.
    fn fail(&mut self, id: JobId, end: &TaskEnd) {
        let cause = failure::cause(end);
        let record = self.jobs.jobs.known_mut(id);
        let retries = record.request.retries;
        let reason = failure::describe(end);
        let (failures, limit) = match &cause {
            FailureCause::User => (&mut record.failures.user, retries.user),
            FailureCause::Platform(_) => (&mut record.failures.platform, retries.platform),
        };
        *failures += 1;
        let is_retried = *failures <= limit || record.cancelled.is_some();
        record.end_attempt(AttemptEnd::Failed(reason.clone()));
        if !is_retried {
            return self.give_up(id, end, reason);
        }
        let cause = match cause {
            FailureCause::User => Cause::Failed,
            FailureCause::Platform(error) => Cause::Platform(error),
        };
        self.resume(id, cause);
    }

    fn give_up(&mut self, id: JobId, end: &TaskEnd, reason: String) {
        self.exit(id, Outcome::Failed);
        self.jobs.end(
            id,
            End::Failed {
                exit_code: end.exit_code,
                signal: end.signal,
                reason,
            },
        );
    }

    /// Queues a job again after its attempt has stopped.
    fn requeue(&mut self, id: JobId, cause: Cause) {
        let is_missing = self.jobs.jobs.known(id).workload_missing;
        if is_missing {
            // Before its GPUs return: the engine would launch a job that it moves at once, without a workload.
            self.jobs.hold_for_workload(id);
        }
        self.return_gpus(id);
        self.jobs.log(id, EventKind::Requeued(cause));
        if is_missing {
            return;
        }
        let record = self.jobs.jobs.known(id);
        if record.leaves_engine {
            // It was held and has been released since; the engine has removed it.
            self.jobs.enqueue(id);
        } else {
            self.jobs.jobs.set_state(id, JobState::Queued, self.jobs.now);
        }
    }

    /// Tells the engine that the attempt has ended and the job has not.
    fn return_gpus(&mut self, id: JobId) {
        if let Some((job, attempt)) = self.engine_keys(id) {
            let done = match self.jobs.scheduler.is_recomputing() {
                true => Work(0),
                false => self.jobs.jobs.known(id).saved_work(),
            };
            self.jobs.notify_engine(Event::Stopped { job, attempt, done });
        }
    }

    /// Tells the engine that the job has ended.
    fn exit(&mut self, id: JobId, outcome: Outcome) {
        if let Some((job, attempt)) = self.engine_keys(id) {
            self.jobs.notify_engine(Event::Exited {
                job,
                attempt,
                outcome,
            });
        }
    }

    fn engine_keys(&self, id: JobId) -> Option<(JobKey, AttemptKey)> {
        let record = self.jobs.jobs.known(id);
        Some((record.job_key?, record.attempt()?.key))
    }

    /// Stops an attempt that the runtime cannot continue; the job is queued again afterwards.
    pub(super) fn abort(&mut self, id: JobId, attempt_id: AttemptId, reason: &str) {
        let job = self.jobs.jobs.get(id);
        if job.is_some_and(|job| job.state.holds_gpus()) {
            self.stop_attempt(id, attempt_id, Cause::Platform(reason.to_owned()));
        }
    }

    /// Stops an attempt whose time limit is reached.
    pub(super) fn expire(&mut self, id: JobId, attempt_id: AttemptId) {
        self.jobs.jobs.clear_attempt_time_limit(id, attempt_id);
        let job = self.jobs.jobs.get(id);
        if job.is_some_and(|job| job.state == JobState::Running) {
            self.stop_attempt(id, attempt_id, Cause::TimeLimit);
        }
    }
}
