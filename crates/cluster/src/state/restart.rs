//! A restart: the state is rebuilt from records, without asking the engine anything. Then a new engine gets what exists.

use dovetail_engine::Clock;
use dovetail_model::{Allocation, Event, JobKey, RestoredJob, StopReason};

use super::ClusterState;
use super::decisions;
use super::error::PolicyTextError;
use super::jobs::{Attempt, Cause, JobRecord, TaskState};
use super::names::Names;
use super::nodes::NodeState;
use super::scheduler::Scheduler;
use crate::JobId;
use crate::fact::PolicyText;

/// Returns the reason for which a job stops, as the engine names it.
fn stop_reason(record: &JobRecord, cause: &Cause) -> StopReason {
    match cause {
        _ if record.leaves_engine => StopReason::Cancelled,
        Cause::Cancelled(_) | Cause::Held(_) => StopReason::Cancelled,
        Cause::NodeLost(node) => StopReason::NodeLost(*node),
        Cause::Resized => StopReason::Resized,
        Cause::Preempted(_) => StopReason::Preempted,
        // The engine has no part in the last three, and none of them counts as a preemption.
        Cause::Moved | Cause::TimeLimit | Cause::Failed | Cause::Platform(_) => StopReason::Moved,
    }
}

/// Returns what a stopping attempt still holds: a node on which its task has ended may be lost, or used by others.
fn not_vacated(attempt: &Attempt) -> Allocation {
    let shares = attempt.allocation.shares.iter().zip(&attempt.tasks);
    Allocation {
        shares: shares
            .filter(|(_, task)| !task.has_ended())
            .map(|(share, _)| share.clone())
            .collect(),
    }
}

impl ClusterState {
    /// Creates a state without jobs and nodes, to which the records of a journal are applied. The engine is detached until
    /// [`ClusterState::attach_engine`].
    ///
    /// # Errors
    /// If the default policy cannot be built, which would be a bug.
    pub fn replaying(policy: PolicyText, clock: Clock) -> Result<Self, PolicyTextError> {
        let mut state = Self::new(PolicyText::default(), clock)?;
        state.scheduler = Scheduler::detached(policy, clock, Names::default())?;
        Ok(state)
    }

    /// Returns whether the engine decides; not while the records of a journal are applied.
    pub(crate) fn is_attached(&self) -> bool {
        self.scheduler.is_attached()
    }

    /// Begins or ends applying records of a release that did not record its decisions: the engine takes them again, as that
    /// release did.
    pub(crate) fn set_recomputing(&mut self, is_recomputing: bool) {
        self.scheduler.set_recomputing(is_recomputing);
    }

    /// Gives a new engine everything that exists: nodes, queued jobs with their history, and jobs with the GPUs they hold.
    ///
    /// # Errors
    /// If the policy cannot be built. The engine stays detached.
    pub fn attach_engine(&mut self) -> Result<(), PolicyTextError> {
        self.scheduler.attach(&self.virtual_clusters, &self.nodes)?;
        for job in self.scheduler.take_completed() {
            self.learn_from(job);
        }
        self.hand_over_nodes();
        let mut jobs: Vec<(JobKey, JobId)> = self
            .jobs
            .unfinished()
            .filter(|job| job.state.is_in_engine())
            .filter_map(|job| Some((job.job_key?, job.id)))
            .collect();
        jobs.sort_unstable();
        self.jobs.forget_handles();
        for (_, job) in jobs {
            self.hand_over_job(job);
        }
        decisions::settle_adoptions(self);
        self.commands.clear();
        Ok(())
    }

    fn hand_over_nodes(&mut self) {
        let mut events = Vec::new();
        for (node, record) in self.nodes.iter() {
            let spec = record.spec.clone();
            events.push(Event::NodeUp { node, spec });
            match record.state {
                NodeState::Up => {}
                NodeState::Draining { .. } => events.push(Event::NodeDraining { node }),
                NodeState::Lost => events.push(Event::NodeDown { node }),
            }
        }
        for event in events {
            self.scheduler.handle(self.now, event);
        }
    }

    /// Lets the order learn from a job that completed.
    fn learn_from(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(id) else {
            return;
        };
        let Some(history) = record.history(record.since) else {
            return;
        };
        let (since, spec) = (
            record.since,
            self.scheduler
                .preview_spec(&record.user, &record.request, record.submitted),
        );
        self.scheduler.learn(spec, history, since);
    }

    /// Gives the engine a job that is queued or holds GPUs.
    fn hand_over_job(&mut self, id: JobId) {
        let now = self.now;
        let record = self.jobs.known(id);
        let (mut spec, _) = self
            .scheduler
            .register(id, &record.user, &record.request, record.submitted);
        spec.expected = record.told.or(spec.expected);
        spec.priority = record.queued_priority.unwrap_or(spec.priority);
        let job = spec.id;
        let attempt = record
            .attempt()
            .filter(|a| a.end.is_none() && record.state.holds_gpus());
        let stopping = attempt.and_then(|a| Some(stop_reason(record, a.cause.as_ref()?)));
        let holds = attempt.map(|a| match stopping {
            Some(_) => (a.key, not_vacated(a)),
            None => (a.key, a.allocation.clone()),
        });
        let is_running = attempt.is_some_and(|a| a.tasks.iter().all(|t| *t == TaskState::Running));
        let (done, rate) = record.work_now(now);
        let history = record.history(now);
        let key = holds.as_ref().map(|(key, _)| *key);
        let is_stopping = stopping.is_some();
        let event = match history {
            None => Event::Submitted(spec),
            Some(history) => Event::Restored(Box::new(RestoredJob {
                spec,
                history,
                holds,
                stopping,
            })),
        };
        self.jobs.known_mut(id).job_key = Some(job);
        self.scheduler.handle(now, event);
        let Some(attempt) = key else {
            return;
        };
        if !is_stopping {
            self.scheduler.expect_adoption(job);
        }
        if is_running && !is_stopping {
            self.scheduler.handle(now, Event::Started { job, attempt, rate });
            let progressed = Event::Progressed {
                job,
                attempt,
                done,
                rate,
            };
            self.scheduler.handle(now, progressed);
        }
    }
}
