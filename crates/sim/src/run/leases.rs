//! Progress as Synergy's simulator counts it: whole iterations for a whole round, credited when it begins.

use std::cmp::Reverse;

use dovetail_engine::Clock;
use dovetail_model::{Allocation, Event, Generation, JobId, Rate, Time, Work};

use super::{Coming, Run};
use crate::config::Compat;
use crate::truth::Doing;

/// Who has a lease for this round, and on what.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: std::collections::BTreeMap<JobId, Allocation>,
    /// The decision that leases were last credited for.
    credited: u64,
}

impl Leases {
    pub(super) fn take(&mut self, id: JobId, allocation: Allocation) {
        self.held.insert(id, allocation);
    }

    pub(super) fn gone(&mut self, id: JobId) {
        self.held.remove(&id);
    }
}

impl Run<'_> {
    /// Tells the engine how far everyone is before it decides.
    pub(super) fn report_leases(&mut self) {
        let Some(leases) = &self.leases else { return };
        let ids: Vec<JobId> = leases.held.keys().copied().collect();
        for id in ids {
            let truth = &self.truths[id.0 as usize];
            if truth.doing != Doing::Running {
                continue;
            }
            let (job, generation) = (id, truth.generation);
            let done = self.workload.jobs[id.0 as usize].work.minus(truth.left);
            self.tell(Event::Progressed {
                job,
                generation,
                done,
                rate: Rate::ZERO,
            });
        }
    }

    /// After a decision: everyone who has a lease gets the iterations of the whole round.
    pub(super) fn credit_leases(&mut self) {
        let (Compat::Synergy { fair }, Clock::Rounds { period, .. }) =
            (self.config.compat, self.config.clock)
        else {
            return;
        };
        let (decisions, now) = (self.engine.decisions(), self.now);
        let Some(leases) = &mut self.leases else { return };
        if leases.credited == decisions {
            return;
        }
        leases.credited = decisions;
        let mut ends: Vec<(JobId, Generation, u32)> = Vec::new();
        for (id, allocation) in &leases.held {
            let truth = &mut self.truths[id.0 as usize];
            let facts = &self.config.synergy[id.0 as usize];
            let has_all = allocation.shares.iter().all(|part| {
                let all = facts.wish.times(part.gpus.count());
                part.cpu_milli >= all.cpu_milli && part.memory_mib >= all.memory_mib
            });
            let speedup = if fair || !has_all { 1.0 } else { facts.speedup };
            let credited = (period.as_secs_f64() / (facts.iteration_s / speedup)).floor() as u64;
            let left = truth.left.0 / facts.iteration_us();
            truth.left = Work(left.saturating_sub(credited) * facts.iteration_us());
            if truth.left == Work(0) {
                ends.push((*id, truth.generation, truth.epoch));
            }
        }
        let end: Time = now + period;
        for (id, generation, epoch) in ends {
            self.coming
                .push(Reverse((end, Coming::End(id, generation, epoch))));
        }
    }
}
