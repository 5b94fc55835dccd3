//! Launches: gangs whose tasks start together, and are over when the last of them has ended.

use dovetail_model::{Allocation, AttemptKey, Event, JobKey, NodeId, Outcome, Rate, StopReason, Work};

use super::{Attempt, AttemptEnd, Cause, ClusterState, End, EventKind, Hold, JobState, TaskState, Verdict};
use crate::actor::Actor;
use crate::fact::TaskEnd;
use crate::request::Processes;
use crate::{AttemptId, JobId};

/// Whose fault a failure is.
enum Fault {
    User,
    Platform(String),
}

impl ClusterState {
    /// The engine gave a running job other CPU and memory.
    pub(super) fn resized(&mut self, job_key: JobKey, key: AttemptKey, allocation: Allocation) {
        let no = self.job_ids[job_key];
        let attempts = &mut self.known(no).attempts;
        let Some(attempt) = attempts.last_mut().filter(|a| a.key == key) else {
            return;
        };
        attempt.allocation = allocation;
        attempt.resized = true;
        let attempt = &self.jobs[&no].attempts[self.jobs[&no].attempts.len() - 1];
        let orders: Vec<_> = (0..attempt.tasks.len())
            .filter(|place| !matches!(attempt.tasks[*place], TaskState::Ended(_)))
            .map(|place| {
                (
                    attempt.allocation.shares[place].node,
                    Self::resize_order(no, attempt, place),
                )
            })
            .collect();
        self.orders.extend(orders);
    }

    /// The engine gave a job GPUs.
    pub(super) fn launch(&mut self, job_key: JobKey, key: AttemptKey, allocation: Allocation) {
        let no = self.job_ids[job_key];
        let now = self.now;
        let record = self.known(no);
        let attempt = Attempt::new(
            record.attempts.last().map_or(0, |a| a.id) + 1,
            key,
            now,
            vec![TaskState::Starting; allocation.shares.len()],
            allocation,
        );
        record.attempts.push(attempt);
        self.set(no, JobState::Starting);
        let record = &self.jobs[&no];
        let attempt = record.attempt().expect("just made");
        let orders: Vec<_> = (0..attempt.tasks.len())
            .map(|place| {
                let node = attempt.allocation.shares[place].node;
                (node, self.start_order(record, attempt, place))
            })
            .collect();
        self.orders.extend(orders);
    }

    /// The engine wants a job to stop.
    pub(super) fn stop(&mut self, job_key: JobKey, key: AttemptKey, reason: StopReason) {
        let no = self.job_ids[job_key];
        let preemptor = self.preemptor(job_key);
        let record = &self.jobs[&no];
        let Some(attempt) = record.attempt().filter(|a| a.key == key) else {
            return;
        };
        let attempt_id = attempt.id;
        let cause = match reason {
            StopReason::Preempted => Cause::Preempted(preemptor),
            StopReason::Moved => Cause::Moved,
            StopReason::Resized => Cause::Resized,
            StopReason::NodeLost(node) => Cause::NodeLost(node),
            StopReason::Cancelled => match (&record.cancelled, &record.hold_after_stop) {
                (None, Some(by)) => Cause::Held(by.clone()),
                (Some(by), _) => Cause::Cancelled(by.clone()),
                (None, None) => Cause::Cancelled(Actor::user("")),
            },
        };
        self.stop_attempt(no, attempt_id, cause);
    }

    /// Tells all tasks of a launch to stop, if it was not told before.
    pub(super) fn stop_attempt(&mut self, no: JobId, attempt_id: AttemptId, cause: Cause) {
        let Some(attempt) = self.known(no).attempt_of(attempt_id) else {
            return;
        };
        if attempt.cause.is_some() {
            return;
        }
        attempt.cause = Some(cause.clone());
        let lives = |task: &TaskState| !matches!(task, TaskState::Ended(_));
        let nodes: Vec<NodeId> = attempt
            .tasks
            .iter()
            .zip(&attempt.allocation.shares)
            .filter(|(task, _)| lives(task))
            .map(|(_, share)| share.node)
            .collect();
        self.forget_limit(no);
        self.set(no, JobState::Stopping(cause.clone()));
        for node in nodes {
            self.order(node, Self::stop_order(no, attempt_id, cause.word(), false));
        }
    }

    /// The first job in line that is to have GPUs this one holds.
    fn preemptor(&self, victim: JobKey) -> Option<JobId> {
        let held = &self.jobs[&self.job_ids[victim]].attempt()?.allocation;
        let wants = |other: &Allocation| {
            other.shares.iter().any(|theirs| {
                held.shares.iter().any(|own| {
                    own.node == theirs.node && own.gpus.iter().any(|slot| theirs.gpus.contains(slot))
                })
            })
        };
        let mut others = self
            .engine
            .jobs()
            .filter(|job| job.spec.id != victim && !job.holds_gpus());
        let found = others.find(|job| job.allocation.as_ref().is_some_and(wants))?;
        Some(self.job_ids[found.spec.id])
    }

    pub(super) fn task_started(
        &mut self,
        no: JobId,
        attempt_id: AttemptId,
        node: NodeId,
        sharing: &str,
        remarks: &[String],
    ) {
        let now = self.now;
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        let Some(attempt) = record.attempt_of(attempt_id) else {
            return;
        };
        let Some(place) = attempt.allocation.shares.iter().position(|s| s.node == node) else {
            return;
        };
        if attempt.tasks[place] != TaskState::Starting {
            return;
        }
        attempt.tasks[place] = TaskState::Running;
        for remark in remarks {
            if !attempt.remarks.contains(remark) {
                attempt.remarks.push(remark.clone());
            }
        }
        if !sharing.is_empty() {
            attempt.sharing = sharing.to_owned();
        }
        let all_run = attempt.tasks.iter().all(|t| *t == TaskState::Running);
        if !all_run || attempt.cause.is_some() {
            return;
        }
        attempt.running_since = Some(now);
        let (key, limit) = (attempt.key, record.request.time_limit);
        let job_key = record.job_key.expect("a job that holds GPUs has a job key");
        if let Some(limit) = limit {
            let at = now + limit;
            self.limits.insert((at, no), attempt_id);
        }
        self.set(no, JobState::Running);
        self.tell(Event::Started {
            job: job_key,
            attempt: key,
            rate: Rate::FULL,
        });
    }

    pub(super) fn task_ended(&mut self, no: JobId, attempt_id: AttemptId, node: NodeId, end: &TaskEnd) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        let Some(attempt) = record.attempt_of(attempt_id) else {
            return;
        };
        let Some(place) = attempt.allocation.shares.iter().position(|s| s.node == node) else {
            return;
        };
        if matches!(attempt.tasks[place], TaskState::Ended(_)) {
            return;
        }
        attempt.tasks[place] = TaskState::Ended(Box::new(end.clone()));
        let all_over = attempt.tasks.iter().all(|t| matches!(t, TaskState::Ended(_)));
        record.progress.checkpoint = record.progress.checkpoint.max(end.checkpoint_step);
        // Of a job with roles, instances that failed were counted when they ended.
        let failed = is_bad(end) && (record.request.roles.is_empty() || end.platform_error.is_some());
        if let Some(error) = end.platform_error.as_ref().filter(|_| !end.refused) {
            self.fault_on(node, error);
        }
        if all_over {
            self.conclude(no, attempt_id);
        } else if failed && !end.was_stopped {
            // A gang without one of its members goes nowhere.
            let cause = match &end.platform_error {
                Some(error) => Cause::Platform(error.clone()),
                None => Cause::Failed,
            };
            self.stop_attempt(no, attempt_id, cause);
        } else if self.only_holds(no, attempt_id) {
            let rest: Vec<NodeId> = self.lives_on(no, attempt_id);
            for node in rest {
                self.order(node, Self::stop_order(no, attempt_id, "done", false));
            }
        }
    }

    /// Whether the process on the first node was all there was, and has ended: the other tasks only hold their nodes.
    pub(super) fn only_holds(&self, no: JobId, attempt_id: AttemptId) -> bool {
        let record = &self.jobs[&no];
        let attempt = record.attempt().filter(|a| a.id == attempt_id);
        if matches!(attempt, Some(a) if matches!(a.verdict, Some(Verdict::Succeeded(_)))) {
            return true;
        }
        let first = attempt.and_then(|a| a.tasks.first());
        record.request.processes == Processes::FirstNode && matches!(first, Some(TaskState::Ended(_)))
    }

    /// Nodes on which tasks of a launch have not ended.
    pub(super) fn lives_on(&self, no: JobId, attempt_id: AttemptId) -> Vec<NodeId> {
        let attempt = self.jobs[&no].attempt().filter(|a| a.id == attempt_id);
        let tasks = attempt
            .into_iter()
            .flat_map(|a| a.tasks.iter().zip(&a.allocation.shares));
        tasks
            .filter(|(task, _)| !matches!(task, TaskState::Ended(_)))
            .map(|(_, share)| share.node)
            .collect()
    }

    /// Tasks that were on a node when it was lost count as ended: its agent ends them by itself.
    pub(super) fn tasks_lost_with(&mut self, node: NodeId) {
        let lost: Vec<(JobId, AttemptId)> = self
            .tasks_on(node)
            .iter()
            .map(|(job, attempt, _)| (job.id, attempt.id))
            .collect();
        for (no, attempt_id) in lost {
            let end = TaskEnd {
                was_stopped: true,
                ..TaskEnd::default()
            };
            self.task_ended(no, attempt_id, node, &end);
        }
    }

    /// The last task of a launch has ended.
    fn conclude(&mut self, no: JobId, attempt_id: AttemptId) {
        let now = self.now;
        self.forget_limit(no);
        let record = self.known(no);
        let only_first = record.request.processes == Processes::FirstNode;
        let with_roles = !record.request.roles.is_empty();
        let attempt = record.attempt_of(attempt_id).expect("looked at by the caller");
        attempt.until = Some(now);
        let ends: Vec<TaskEnd> = attempt
            .tasks
            .iter()
            .map(|task| match task {
                TaskState::Ended(end) => (**end).clone(),
                TaskState::Starting | TaskState::Running => TaskEnd::default(),
            })
            .collect();
        let cause = attempt.cause.clone();
        // Where only the first node has a process, the others were told to go.
        let counted = match only_first {
            true => &ends[..1],
            false => &ends[..],
        };
        let mut completed = counted.iter().all(|end| !is_bad(end) && !end.was_stopped);
        let mut first_bad = ends.iter().find(|end| is_bad(end) && !end.was_stopped).cloned();
        if with_roles {
            (completed, first_bad) = super::instances::outcome(attempt, &ends);
        }
        match (cause, first_bad) {
            _ if completed => {
                attempt.end = Some(AttemptEnd::Completed);
                self.leave_engine(no, Outcome::Completed);
                self.end(no, End::Completed);
            }
            (Some(Cause::Failed | Cause::Platform(_)) | None, Some(bad)) => {
                self.failed(no, &bad);
            }
            (Some(cause), _) => self.stopped(no, cause),
            // Ended as if it had been told to stop, but nobody told it: the agent gave it up.
            (None, None) => self.failed(
                no,
                &TaskEnd {
                    platform_error: Some("it was stopped, but not by the scheduler".to_owned()),
                    ..TaskEnd::default()
                },
            ),
        }
    }

    /// A launch has stopped as it was told to.
    fn stopped(&mut self, no: JobId, cause: Cause) {
        let record = self.known(no);
        let attempt = record.attempts.last_mut().expect("it has just ended");
        attempt.end = Some(AttemptEnd::Stopped(cause.clone()));
        self.go_on(no, cause);
    }

    /// What becomes of a job whose launch is over and that is not done.
    fn go_on(&mut self, no: JobId, cause: Cause) {
        let record = self.known(no);
        let most = record.request.retries.node;
        // It may have been cancelled or held while it stopped for another reason.
        let cause = match (&record.cancelled, &record.hold_after_stop) {
            (Some(by), _) => Cause::Cancelled(by.clone()),
            (None, Some(by)) if cause != Cause::TimeLimit => Cause::Held(by.clone()),
            (None, _) => cause,
        };
        match cause {
            Cause::Cancelled(by) => {
                self.requeue(no);
                self.end(no, End::Cancelled(by));
            }
            Cause::Held(by) => {
                self.requeue(no);
                let still = self.known(no).hold_after_stop.take().is_some();
                if still {
                    self.set(no, JobState::Held(Hold::User(by)));
                } else {
                    self.line_up(no);
                }
            }
            Cause::TimeLimit => {
                self.leave_engine(no, Outcome::Failed);
                self.end(no, End::TimeLimit);
            }
            Cause::NodeLost(node) => {
                self.known(no).failures.node += 1;
                if self.known(no).failures.node > most {
                    let why = format!("a node was lost under it {} times", most + 1);
                    self.give_up(no, &TaskEnd::default(), &why);
                } else {
                    self.back_in_line(no, Cause::NodeLost(node));
                }
            }
            cause => self.back_in_line(no, cause),
        }
    }

    /// A launch has failed: it is tried again as often as it may be.
    fn failed(&mut self, no: JobId, end: &TaskEnd) {
        let fault = fault(end);
        let record = self.known(no);
        let retries = record.request.retries;
        let why = diagnosis(end);
        let (so_far, most) = match &fault {
            Fault::User => (&mut record.failures.user, retries.user),
            Fault::Platform(_) => (&mut record.failures.platform, retries.platform),
        };
        *so_far += 1;
        let again = *so_far <= most || record.cancelled.is_some();
        let attempt = record.attempts.last_mut().expect("it has just ended");
        attempt.end = Some(AttemptEnd::Failed(why.clone()));
        if !again {
            return self.give_up(no, end, &why);
        }
        let cause = match fault {
            Fault::User => Cause::Failed,
            Fault::Platform(error) => Cause::Platform(error),
        };
        self.go_on(no, cause);
    }

    fn give_up(&mut self, no: JobId, end: &TaskEnd, why: &str) {
        self.leave_engine(no, Outcome::Failed);
        self.end(
            no,
            End::Failed {
                exit_code: end.exit_code,
                signal: end.signal,
                reason: why.to_owned(),
            },
        );
    }

    /// The job stands in line again.
    fn back_in_line(&mut self, no: JobId, cause: Cause) {
        self.requeue(no);
        self.log_event(Some(no), EventKind::Requeued(cause));
        if self.jobs[&no].workload_missing {
            return self.wait_for_parts(no);
        }
        let now = self.now;
        let record = &self.jobs[&no];
        if record
            .job_key
            .is_some_and(|job_key| self.engine.job(job_key).is_some())
        {
            let record = self.known(no);
            (record.state, record.since) = (JobState::Queued, now);
            self.up.remove(&no);
        } else {
            // It was to wait, and has been released since: the engine has forgotten it.
            self.line_up(no);
        }
    }

    /// Tells the engine that the launch is over and the job is not.
    fn requeue(&mut self, no: JobId) {
        let record = &self.jobs[&no];
        let (job_key, attempt) = (record.job_key, record.attempt());
        let (Some(job), Some(attempt)) = (job_key, attempt) else {
            return;
        };
        let key = attempt.key;
        self.tell(Event::Stopped {
            job,
            attempt: key,
            done: Work(0),
        });
    }

    /// Tells the engine that the job is over.
    fn leave_engine(&mut self, no: JobId, outcome: Outcome) {
        let record = &self.jobs[&no];
        let (job_key, attempt) = (record.job_key, record.attempt());
        let (Some(job), Some(attempt)) = (job_key, attempt) else {
            return;
        };
        let key = attempt.key;
        self.tell(Event::Exited {
            job,
            attempt: key,
            outcome,
        });
    }

    pub(super) fn time_is_up(&mut self, no: JobId, attempt_id: AttemptId) {
        self.limits
            .retain(|(_, job), known| (*job, *known) != (no, attempt_id));
        let running = |job: &super::JobRecord| job.state == JobState::Running;
        if self.jobs.get(&no).is_some_and(running) {
            self.stop_attempt(no, attempt_id, Cause::TimeLimit);
        }
    }

    fn forget_limit(&mut self, no: JobId) {
        self.limits.retain(|(_, job), _| *job != no);
    }
}

fn is_bad(end: &TaskEnd) -> bool {
    end.exit_code != 0 || end.signal != 0 || end.platform_error.is_some() || end.out_of_memory
}

/// Signals that somebody else sends: nobody's own fault as far as can be told.
const FROM_OUTSIDE: [i32; 2] = [9, 15];

fn fault(end: &TaskEnd) -> Fault {
    match &end.platform_error {
        Some(_) if end.refused => Fault::User,
        Some(error) => Fault::Platform(error.clone()),
        None if end.out_of_memory => Fault::User,
        None if FROM_OUTSIDE.contains(&end.signal) => Fault::Platform(diagnosis(end)),
        None => Fault::User,
    }
}

/// What the end of a task means, as far as can be told.
fn diagnosis(end: &TaskEnd) -> String {
    match (&end.platform_error, end.signal, end.exit_code) {
        (Some(error), _, _) => error.clone(),
        _ if end.out_of_memory => "out of memory: it used more than it was given".to_owned(),
        (None, 0, code) => format!("exit code {code}"),
        (None, 9, _) => "killed (signal 9) by someone other than the scheduler".to_owned(),
        (None, 11, _) => "segmentation fault (signal 11)".to_owned(),
        (None, 6, _) => "aborted (signal 6)".to_owned(),
        (None, signal, _) => format!("ended by signal {signal}"),
    }
}
