//! How fast jobs go where they share GPUs.

use std::cmp::Reverse;

use dovetail_model::sharing::Member;
use dovetail_model::{Allocation, Event, JobId, Rate};

use super::{Coming, Run};
use crate::config::Compat;
use crate::sharing::{Guest, Rule};
use crate::truth::Doing;

impl Run<'_> {
    /// The job is off its GPUs; they are idle unless others share them.
    pub(super) fn leave_gpus(&mut self, id: JobId) {
        let truth = &mut self.truths[id.0 as usize];
        self.busy_gpus -= match (&mut self.sharing, truth.seat.take()) {
            (Some(sharing), Some(seat)) => sharing.leave(id, seat, truth.width),
            _ => truth.width,
        };
    }

    /// Speeds change where someone came or went.
    pub(super) fn update_shared_speeds(&mut self) {
        let Some(sharing) = &mut self.sharing else { return };
        let rule = Rule {
            speeds: self.engine.policy().grouping.terms().speeds,
            slowdowns: &self.config.slowdowns,
            contention: &self.config.contention,
            ordering: self.config.interleaving,
        };
        let guest = |id: JobId| {
            let job = &self.workload.jobs[id.0 as usize];
            let member = Member {
                model: job.model,
                gpus: self.truths[id.0 as usize].width,
                stages: self.teller.stages(job),
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

    /// How fast the job goes with all this to itself.
    pub(super) fn rate_on(&self, id: JobId, allocation: &Allocation) -> Rate {
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

    /// The job has other CPU or memory beside its GPUs from now on.
    pub(super) fn resize(&mut self, id: JobId, allocation: Allocation) {
        let rate = self.rate_on(id, &allocation);
        if let Some(leases) = &mut self.leases {
            return leases.take(id, allocation);
        }
        let truth = &mut self.truths[id.0 as usize];
        truth.alone = rate;
        let kept = truth.kept;
        self.change_speed(id, kept);
    }

    /// The job goes on at this share of its own speed.
    pub(super) fn change_speed(&mut self, id: JobId, kept: Rate) {
        let now = self.now;
        let truth = &mut self.truths[id.0 as usize];
        truth.kept = kept;
        let rate = truth.alone.times(kept);
        if rate == truth.rate {
            return;
        }
        if truth.doing != Doing::Running {
            truth.rate = rate;
            return;
        }
        truth.left = truth.left.minus(truth.rate.work_in(now.since(truth.since)));
        (truth.rate, truth.since) = (rate, now);
        truth.epoch += 1;
        let (generation, epoch) = (truth.generation, truth.epoch);
        let done = self.workload.jobs[id.0 as usize].work.minus(truth.left);
        let span = self.config.span_for(truth.left, rate);
        self.coming.push(Reverse((
            now.saturating_add(span),
            Coming::End(id, generation, epoch),
        )));
        self.tell(Event::Progressed {
            job: id,
            generation,
            done,
            rate,
        });
    }
}
