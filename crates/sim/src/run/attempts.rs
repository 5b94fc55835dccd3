//! Attempts of jobs: launch, progress, completion and stop; and those that a live engine began.

use dovetail_engine::{Job, RunState};
use dovetail_model::sharing::Member;
use dovetail_model::{Allocation, AttemptKey, Event, JobKey, Outcome, Rate, StopReason, Time, Work};

use super::event_queue::ScheduledEvent;
use super::speeds::{rate_on, span_for};
use super::{Run, steps};
use crate::metrics;
use crate::sharing::Guest;
use crate::truth::{Phase, Truth};

impl Run<'_> {
    /// Counts a job among the queued ones.
    pub(super) fn enter_queue(&mut self, id: JobKey) {
        let (truth, job) = (&self.truths[self.jobs.position(id)], self.jobs.get(id));
        let waited = truth.waited(self.queue.now, job.submit);
        self.recorder.blocking.enter(waited, truth.left);
    }

    /// Counts a job among the queued ones no longer.
    fn leave_queue(&mut self, id: JobKey) {
        let (truth, job) = (&self.truths[self.jobs.position(id)], self.jobs.get(id));
        let waited = truth.waited(self.queue.now, job.submit);
        self.recorder.blocking.leave(waited, truth.left);
    }

    pub(super) fn reject(&mut self, id: JobKey) {
        self.leave_queue(id);
        let truth = &mut self.truths[self.jobs.position(id)];
        (truth.rejected, truth.phase) = (true, Phase::Done);
        self.remove_job(id);
    }

    pub(super) fn launch(&mut self, id: JobKey, attempt: AttemptKey, allocation: Allocation) {
        let now = self.queue.now;
        let rate = rate_on(self.config, self.jobs.get(id), &allocation);
        self.leave_queue(id);
        let again = attempt.0 > 1 && self.config.restart_cost > Time::ZERO;
        let truth = &mut self.truths[self.jobs.position(id)];
        truth.attempt = attempt;
        (truth.rate, truth.alone, truth.kept) = (rate, rate, Rate::FULL);
        truth.launched = now;
        truth.width = allocation.gpus();
        truth.first_start.get_or_insert(now);
        self.gpus.join(id, truth, &allocation);
        if let Some(steps) = &mut self.steps {
            steps.launched(id, allocation.clone());
        }
        if let Some(leases) = &mut self.leases {
            leases.take(id, allocation.clone());
        }
        if self.recorder.records_segments() {
            truth.place = Some(Box::new(allocation));
        }
        if again {
            truth.phase = Phase::Starting;
            let at = now + self.config.restart_cost;
            self.queue.schedule(at, ScheduledEvent::Started(id, attempt));
        } else {
            self.run(id, attempt);
        }
    }

    pub(super) fn started(&mut self, id: JobKey, attempt: AttemptKey) {
        let truth = &self.truths[self.jobs.position(id)];
        if truth.attempt == attempt && truth.phase == Phase::Starting {
            self.run(id, attempt);
        }
    }

    /// Lets the job make progress from now on.
    fn run(&mut self, id: JobKey, attempt: AttemptKey) {
        let truth = &mut self.truths[self.jobs.position(id)];
        truth.phase = Phase::Running;
        truth.since = self.queue.now;
        let rate = truth.rate;
        truth.epoch += 1;
        let epoch = truth.epoch;
        if self.steps.is_none() && self.leases.is_none() {
            let at = self
                .queue
                .now
                .saturating_add(span_for(self.config, truth.left, rate));
            self.queue.schedule(at, ScheduledEvent::End(id, attempt, epoch));
        }
        self.report(Event::Started {
            job: id,
            attempt,
            rate,
        });
    }

    pub(super) fn end(&mut self, id: JobKey, attempt: AttemptKey, epoch: u32) {
        let now = self.queue.now;
        let truth = &mut self.truths[self.jobs.position(id)];
        if truth.attempt != attempt || truth.phase != Phase::Running || truth.epoch != epoch {
            return;
        }
        if let Some(steps) = &mut self.steps {
            steps.remove(id);
            (truth.left, truth.since) = (Work(0), now);
        }
        if let Some(leases) = &mut self.leases {
            leases.remove(id);
        }
        truth.stop(now, None);
        debug_assert!(truth.left == Work(0), "a job finishes when its work is done");
        truth.phase = Phase::Done;
        truth.finish = Some(now);
        let submit = self.jobs.finish(id);
        truth.contention =
            (self.recorder.alive_integral - truth.contention) / now.since(submit).as_secs_f64().max(1e-9);
        self.gpus.leave(id, truth);
        self.recorder.close_segment(id, truth, now);
        self.finished += 1;
        self.remove_job(id);
        self.report(Event::Exited {
            job: id,
            attempt,
            outcome: Outcome::Completed,
        });
    }

    pub(super) fn remove_job(&mut self, id: JobKey) {
        if self.config.stop_after_tracked
            && metrics::is_tracked(self.jobs.get(id), self.jobs.position(id), self.config)
        {
            self.tracked_left -= 1;
        }
    }

    pub(super) fn stop(&mut self, id: JobKey, attempt: AttemptKey, reason: StopReason) {
        let now = self.queue.now;
        let job = self.jobs.get(id);
        let interval = job.checkpoint.or(self.config.checkpoint);
        let unsaved = (!self.config.saves_on_stop).then(|| interval.unwrap_or(Time::MAX));
        let lost = match reason {
            StopReason::NodeLost(_) => interval,
            StopReason::Preempted | StopReason::Moved | StopReason::Resized | StopReason::Cancelled => {
                unsaved
            }
        };
        if let Some(steps) = &mut self.steps {
            steps.remove(id);
        }
        if let Some(leases) = &mut self.leases {
            leases.remove(id);
        }
        let truth = &mut self.truths[self.jobs.position(id)];
        truth.stop(now, lost);
        truth.preemptions += 1;
        let work = match self.steps {
            Some(_) => steps::slower_alone(job.work),
            None => job.work,
        };
        let done = work.minus(truth.left);
        self.gpus.leave(id, truth);
        self.recorder.close_segment(id, truth, now);
        self.enter_queue(id);
        if self.config.stop_cost > Time::ZERO {
            let at = now.saturating_add(self.config.stop_cost);
            return self
                .queue
                .schedule(at, ScheduledEvent::Stopped(id, attempt, done));
        }
        self.report(Event::Stopped {
            job: id,
            attempt,
            done,
        });
    }

    /// Updates the speeds on GPUs where a job started or stopped.
    pub(super) fn update_shared_speeds(&mut self) {
        let guest = |id: JobKey| {
            let job = self.jobs.get(id);
            let member = Member {
                model: job.model,
                gpus: self.truths[self.jobs.position(id)].width,
                stages: self.jobs.stages(id),
            };
            Guest {
                member,
                guaranteed: job.priority >= 0,
            }
        };
        for (id, kept) in self.gpus.take_changed(self.config, guest) {
            self.change_speed(id, kept);
        }
    }

    /// Changes the CPU or memory of a running job.
    pub(super) fn resize(&mut self, id: JobKey, allocation: Allocation) {
        let rate = rate_on(self.config, self.jobs.get(id), &allocation);
        if let Some(leases) = &mut self.leases {
            return leases.take(id, allocation);
        }
        let truth = &mut self.truths[self.jobs.position(id)];
        truth.alone = rate;
        let kept = truth.kept;
        self.change_speed(id, kept);
    }

    /// Sets the share of its exclusive speed at which the job continues.
    fn change_speed(&mut self, id: JobKey, kept: Rate) {
        let now = self.queue.now;
        let truth = &mut self.truths[self.jobs.position(id)];
        truth.kept = kept;
        let rate = truth.alone.times(kept);
        if rate == truth.rate {
            return;
        }
        if truth.phase != Phase::Running {
            truth.rate = rate;
            return;
        }
        truth.left = truth.left.minus(truth.rate.work_in(now.since(truth.since)));
        (truth.rate, truth.since) = (rate, now);
        truth.epoch += 1;
        let (attempt, epoch) = (truth.attempt, truth.epoch);
        let done = self.jobs.get(id).work.minus(truth.left);
        let at = now.saturating_add(span_for(self.config, truth.left, rate));
        self.queue.schedule(at, ScheduledEvent::End(id, attempt, epoch));
        self.report(Event::Progressed {
            job: id,
            attempt,
            done,
            rate,
        });
    }

    /// Takes over all jobs of the engine.
    pub(super) fn take_over(&mut self) {
        let live: Vec<Job> = self.engine.engine.jobs().cloned().collect();
        for job in &live {
            let truth = self.jobs.truth(job);
            self.jobs.add_known(&job.spec, truth);
            self.truths.push(Truth {
                attempt: job.attempt,
                held: job.held_before,
                preemptions: job.preemptions,
                first_start: job.first_start,
                ..Truth::new(truth.work.minus(job.done), 0.0)
            });
            let id = job.spec.id;
            match &job.run_state {
                RunState::Idle => self.enter_queue(id),
                RunState::Starting | RunState::Running => self.take_over_attempt(job),
                RunState::Stopping(_) => {
                    self.enter_queue(id);
                    self.report(Event::Stopped {
                        job: id,
                        attempt: job.attempt,
                        done: job.done,
                    });
                }
            }
        }
    }

    /// Takes over the attempt of a job that holds GPUs.
    fn take_over_attempt(&mut self, job: &Job) {
        let id = job.spec.id;
        let Some(allocation) = job.current_allocation() else {
            return;
        };
        let now = self.queue.now;
        let alone = rate_on(self.config, self.jobs.get(id), allocation);
        let position = self.jobs.position(id);
        let truth = &mut self.truths[position];
        (truth.rate, truth.alone) = (alone, alone);
        (truth.launched, truth.width) = (job.held_since, allocation.gpus());
        self.gpus.join(id, truth, allocation);
        if job.run_state == RunState::Starting {
            truth.phase = Phase::Starting;
            let cost = match job.attempt.0 > 1 {
                true => self.config.restart_cost,
                false => Time::ZERO,
            };
            let at = now.max(job.held_since + cost);
            self.queue.schedule(at, ScheduledEvent::Started(id, job.attempt));
            return;
        }
        truth.phase = Phase::Running;
        truth.rate = if job.rate > Rate::ZERO { job.rate } else { alone };
        (truth.since, truth.epoch) = (job.done_at, 1);
        let span = span_for(self.config, truth.left, truth.rate);
        let at = now.max(job.done_at.saturating_add(span));
        self.queue.schedule(at, ScheduledEvent::End(id, job.attempt, 1));
    }
}
