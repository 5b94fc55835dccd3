//! Progress as Synergy's simulator counts it: the whole iterations of a round, credited when it begins.

use std::collections::BTreeMap;

use dovetail_engine::Clock;
use dovetail_model::{Allocation, Event, JobKey, Rate, Work};
use dovetail_workload::TraceJob;

use super::event_queue::{EventQueue, ScheduledEvent};
use crate::config::{Compat, SimConfig};
use crate::truth::{Phase, Truth};

/// The jobs that hold a lease for this round, with their allocations.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: BTreeMap<JobKey, Allocation>,
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

    /// Returns the progress of all running jobs, which the engine needs before it decides.
    pub(super) fn progress<'a>(
        &'a self,
        truths: &'a [Truth],
        jobs: &'a [TraceJob],
    ) -> impl Iterator<Item = Event> + 'a {
        self.held.keys().filter_map(|id| {
            let truth = &truths[id.0 as usize];
            (truth.phase == Phase::Running).then(|| Event::Progressed {
                job: *id,
                attempt: truth.attempt,
                done: jobs[id.0 as usize].work.minus(truth.left),
                rate: Rate::ZERO,
            })
        })
    }

    /// After a decision, credits all jobs that hold a lease with the iterations of the whole round.
    pub(super) fn credit(
        &mut self,
        config: &SimConfig,
        decisions: u64,
        truths: &mut [Truth],
        queue: &mut EventQueue,
    ) {
        let (Compat::Synergy { fair }, Clock::Rounds { period, .. }) = (config.compat, config.clock) else {
            return;
        };
        if self.credited == decisions {
            return;
        }
        self.credited = decisions;
        let end = queue.now + period;
        for (id, allocation) in &self.held {
            let truth = &mut truths[id.0 as usize];
            let facts = &config.synergy[id.0 as usize];
            let has_all = allocation.shares.iter().all(|part| {
                let all = facts.preferred.times(part.gpus.count());
                part.cpu_milli >= all.cpu_milli && part.memory_mib >= all.memory_mib
            });
            let speedup = if fair || !has_all { 1.0 } else { facts.speedup };
            let credited = (period.as_secs_f64() / (facts.iteration_s / speedup)).floor() as u64;
            let left = truth.left.0 / facts.iteration_us();
            truth.left = Work(left.saturating_sub(credited) * facts.iteration_us());
            if truth.left == Work(0) {
                queue.schedule(end, ScheduledEvent::End(*id, truth.attempt, truth.epoch));
            }
        }
    }
}
