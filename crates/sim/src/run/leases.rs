//! Progress as Synergy's simulator counts it: the whole iterations of a round, credited when it begins.

use std::cmp::Reverse;

use dovetail_engine::Clock;
use dovetail_model::{Allocation, AttemptKey, Event, JobKey, Rate, Time, Work};

use super::{Run, ScheduledEvent};
use crate::config::Compat;
use crate::truth::Phase;

/// The jobs that hold a lease for this round, with their allocations.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: std::collections::BTreeMap<JobKey, Allocation>,
    /// The decision for which leases were last credited.
    credited: u64,
}

impl Leases {
    pub(super) fn take(&mut self, id: JobKey, allocation: Allocation) {
        self.held.insert(id, allocation);
    }

    pub(super) fn remove(&mut self, id: JobKey) {
        self.held.remove(&id);
    }
}

impl Run<'_> {
    /// Reports the progress of all jobs to the engine before it decides.
    pub(super) fn report_leases(&mut self) {
        let Some(leases) = &self.leases else { return };
        let ids: Vec<JobKey> = leases.held.keys().copied().collect();
        for id in ids {
            let truth = &self.truths[id.0 as usize];
            if truth.phase != Phase::Running {
                continue;
            }
            let (job, attempt) = (id, truth.attempt);
            let done = self.workload.jobs[id.0 as usize].work.minus(truth.left);
            self.report(Event::Progressed {
                job,
                attempt,
                done,
                rate: Rate::ZERO,
            });
        }
    }

    /// After a decision, credits all jobs that hold a lease with the iterations of the whole round.
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
        let mut ends: Vec<(JobKey, AttemptKey, u32)> = Vec::new();
        for (id, allocation) in &leases.held {
            let truth = &mut self.truths[id.0 as usize];
            let facts = &self.config.synergy[id.0 as usize];
            let has_all = allocation.shares.iter().all(|part| {
                let all = facts.preferred.times(part.gpus.count());
                part.cpu_milli >= all.cpu_milli && part.memory_mib >= all.memory_mib
            });
            let speedup = if fair || !has_all { 1.0 } else { facts.speedup };
            let credited = (period.as_secs_f64() / (facts.iteration_s / speedup)).floor() as u64;
            let left = truth.left.0 / facts.iteration_us();
            truth.left = Work(left.saturating_sub(credited) * facts.iteration_us());
            if truth.left == Work(0) {
                ends.push((*id, truth.attempt, truth.epoch));
            }
        }
        let end: Time = now + period;
        for (id, attempt, epoch) in ends {
            self.scheduled
                .push(Reverse((end, ScheduledEvent::End(id, attempt, epoch))));
        }
    }
}
