//! Attempts of jobs: launch, progress, completion and stop.

use std::cmp::Reverse;

use dovetail_engine::Clock;
use dovetail_model::run::Segment;
use dovetail_model::{Allocation, AttemptKey, Event, JobKey, Outcome, Rate, StopReason, Time, Work};

use super::{Run, ScheduledEvent, steps};
use crate::config::{Compat, SimConfig};
use crate::metrics;
use crate::truth::Phase;

impl Run<'_> {
    /// Returns the total time a queued job has been without GPUs.
    pub(super) fn waited(&self, id: JobKey) -> Time {
        let (truth, job) = (&self.truths[id.0 as usize], &self.workload.jobs[id.0 as usize]);
        self.now.since(job.submit).since(truth.held)
    }

    pub(super) fn launch(&mut self, id: JobKey, attempt: AttemptKey, allocation: Allocation) {
        let rate = self.rate_on(id, &allocation);
        self.blocking
            .leave(self.waited(id), self.truths[id.0 as usize].left);
        let again = attempt.0 > 1 && self.config.restart_cost > Time::ZERO;
        let truth = &mut self.truths[id.0 as usize];
        truth.attempt = attempt;
        (truth.rate, truth.alone, truth.kept) = (rate, rate, Rate::FULL);
        truth.launched = self.now;
        truth.width = allocation.gpus();
        truth.first_start.get_or_insert(self.now);
        self.busy_gpus += match &mut self.sharing {
            None => truth.width,
            Some(sharing) => {
                let (slot, idle) = sharing.join(id, &allocation);
                truth.slot = Some(slot);
                idle
            }
        };
        if let Some(steps) = &mut self.steps {
            steps.launched(id, allocation.clone());
        }
        if let Some(leases) = &mut self.leases {
            leases.take(id, allocation.clone());
        }
        if self.segments.len() < self.config.segments {
            truth.place = Some(Box::new(allocation));
        }
        if again {
            truth.phase = Phase::Starting;
            self.scheduled.push(Reverse((
                self.now + self.config.restart_cost,
                ScheduledEvent::Started(id, attempt),
            )));
        } else {
            self.run(id, attempt);
        }
    }

    pub(super) fn started(&mut self, id: JobKey, attempt: AttemptKey) {
        let truth = &self.truths[id.0 as usize];
        if truth.attempt == attempt && truth.phase == Phase::Starting {
            self.run(id, attempt);
        }
    }

    /// Lets the job make progress from now on.
    fn run(&mut self, id: JobKey, attempt: AttemptKey) {
        let truth = &mut self.truths[id.0 as usize];
        truth.phase = Phase::Running;
        truth.since = self.now;
        let rate = truth.rate;
        truth.epoch += 1;
        let epoch = truth.epoch;
        if self.steps.is_none() && self.leases.is_none() {
            let span = self.config.span_for(truth.left, rate);
            self.scheduled.push(Reverse((
                self.now.saturating_add(span),
                ScheduledEvent::End(id, attempt, epoch),
            )));
        }
        self.report(Event::Started {
            job: id,
            attempt,
            rate,
        });
    }

    pub(super) fn end(&mut self, id: JobKey, attempt: AttemptKey, epoch: u32) {
        let now = self.now;
        let truth = &mut self.truths[id.0 as usize];
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
        let submit = self.workload.jobs[id.0 as usize].submit;
        truth.contention =
            (self.alive_integral - truth.contention) / now.since(submit).as_secs_f64().max(1e-9);
        self.leave_gpus(id);
        self.finished += 1;
        self.remove_job(id);
        self.close_segment(id);
        self.report(Event::Exited {
            job: id,
            attempt,
            outcome: Outcome::Completed,
        });
    }

    pub(super) fn remove_job(&mut self, id: JobKey) {
        if self.config.stop_after_tracked && metrics::is_tracked(id.0 as usize, self.workload, self.config) {
            self.tracked_left -= 1;
        }
    }

    pub(super) fn stop(&mut self, id: JobKey, attempt: AttemptKey, reason: StopReason) {
        let job = &self.workload.jobs[id.0 as usize];
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
        let truth = &mut self.truths[id.0 as usize];
        truth.stop(self.now, lost);
        truth.preemptions += 1;
        let work = match self.steps {
            Some(_) => steps::slower_alone(job.work),
            None => job.work,
        };
        let done = work.minus(truth.left);
        let left = truth.left;
        self.blocking.enter(self.waited(id), left);
        self.leave_gpus(id);
        self.close_segment(id);
        self.report(Event::Stopped {
            job: id,
            attempt,
            done,
        });
    }

    fn close_segment(&mut self, id: JobKey) {
        let truth = &mut self.truths[id.0 as usize];
        let Some(place) = truth.place.take() else { return };
        let (start, end) = (truth.launched, self.now);
        if end > start {
            let segment = |share: &dovetail_model::NodeShare| Segment {
                job: id,
                node: share.node,
                slots: share.gpus.iter().collect(),
                start,
                end,
            };
            self.segments.extend(place.shares.iter().map(segment));
        }
    }
}

impl SimConfig {
    /// Returns how long this much work takes, in whole rounds if the reference counts rounds.
    pub(super) fn span_for(&self, left: Work, rate: Rate) -> Time {
        let exact = rate.time_for(left);
        match (self.compat, self.clock) {
            (Compat::Blox { .. }, Clock::Rounds { period, .. }) => exact.next_multiple_of(period).max(period),
            _ => exact,
        }
    }
}
