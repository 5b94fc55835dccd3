//! Speed of jobs that share GPUs.

use std::cmp::Reverse;

use dovetail_model::sharing::Member;
use dovetail_model::{Allocation, Event, JobKey, Rate};

use super::{Run, ScheduledEvent};
use crate::config::Compat;
use crate::sharing::{Guest, Rule};
use crate::truth::Phase;

impl Run<'_> {
    /// Removes the job from its GPUs; they become idle unless other jobs share them.
    pub(super) fn leave_gpus(&mut self, id: JobKey) {
        let truth = &mut self.truths[id.0 as usize];
        self.busy_gpus -= match (&mut self.sharing, truth.slot.take()) {
            (Some(sharing), Some(slot)) => sharing.leave(id, slot, truth.width),
            _ => truth.width,
        };
    }

    /// Updates the speeds on GPUs where a job started or stopped.
    pub(super) fn update_shared_speeds(&mut self) {
        let Some(sharing) = &mut self.sharing else { return };
        let rule = Rule {
            speeds: self.engine.policy().grouping.terms().speeds,
            slowdowns: &self.config.slowdowns,
            contention: &self.config.contention,
            ordering: self.config.interleaving,
        };
        let guest = |id: JobKey| {
            let job = &self.workload.jobs[id.0 as usize];
            let member = Member {
                model: job.model,
                gpus: self.truths[id.0 as usize].width,
                stages: self.knowledge_filter.stages(job),
            };
            Guest {
                member,
                guaranteed: job.priority >= 0,
            }
        };
        for (id, kept) in sharing.take_touched(&rule, guest) {
            self.change_speed(id, kept);
        }
    }

    /// Returns the job's speed with exclusive use of its allocation.
    pub(super) fn rate_on(&self, id: JobKey, allocation: &Allocation) -> Rate {
        let job = &self.workload.jobs[id.0 as usize];
        let checkpoint = (
            job.checkpoint.or(self.config.checkpoint),
            self.config.checkpoint_cost,
        );
        match self.config.compat {
            Compat::Exact => self
                .config
                .speeds
                .rate(job, allocation, &self.config.cluster, checkpoint),
            Compat::Blox { speed } => speed,
            Compat::Muri(_) => Rate::FULL,
            Compat::Synergy { .. } => Rate::ZERO,
        }
    }

    /// Changes the CPU or memory of a running job.
    pub(super) fn resize(&mut self, id: JobKey, allocation: Allocation) {
        let rate = self.rate_on(id, &allocation);
        if let Some(leases) = &mut self.leases {
            return leases.take(id, allocation);
        }
        let truth = &mut self.truths[id.0 as usize];
        truth.alone = rate;
        let kept = truth.kept;
        self.change_speed(id, kept);
    }

    /// Sets the share of its exclusive speed at which the job continues.
    pub(super) fn change_speed(&mut self, id: JobKey, kept: Rate) {
        let now = self.now;
        let truth = &mut self.truths[id.0 as usize];
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
        let done = self.workload.jobs[id.0 as usize].work.minus(truth.left);
        let span = self.config.span_for(truth.left, rate);
        self.scheduled.push(Reverse((
            now.saturating_add(span),
            ScheduledEvent::End(id, attempt, epoch),
        )));
        self.report(Event::Progressed {
            job: id,
            attempt,
            done,
            rate,
        });
    }
}
