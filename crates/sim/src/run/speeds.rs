//! GPUs in use, and the speed of the jobs on them.

use dovetail_engine::Clock;
use dovetail_model::sharing::SharingTerms;
use dovetail_model::{Allocation, JobKey, Rate, Time, Work};
use dovetail_workload::TraceJob;

use crate::config::{Compat, SimConfig};
use crate::sharing::{Guest, Rule, Sharing};
use crate::truth::Truth;

/// The GPUs that running jobs hold, exclusively or shared.
#[derive(Debug)]
pub(super) struct BusyGpus {
    /// Number of GPUs with at least one job.
    pub(super) number: u32,
    /// GPU sharing; `None` under a policy that never shares.
    sharing: Option<Sharing>,
    terms: SharingTerms,
}

impl BusyGpus {
    pub(super) fn new(shares: bool, terms: SharingTerms) -> Self {
        Self {
            number: 0,
            sharing: shares.then(|| Sharing::new(terms)),
            terms,
        }
    }

    /// Adds a job to its GPUs.
    pub(super) fn join(&mut self, id: JobKey, truth: &mut Truth, allocation: &Allocation) {
        self.number += match &mut self.sharing {
            None => truth.width,
            Some(sharing) => {
                let (slot, idle) = sharing.join(id, allocation);
                truth.slot = Some(slot);
                idle
            }
        };
    }

    /// Removes a job from its GPUs; they become idle unless other jobs share them.
    pub(super) fn leave(&mut self, id: JobKey, truth: &mut Truth) {
        self.number -= match (&mut self.sharing, truth.slot.take()) {
            (Some(sharing), Some(slot)) => sharing.leave(id, slot, truth.width),
            _ => truth.width,
        };
    }

    /// Returns the share of its exclusive speed that each job keeps on GPUs where a job started or stopped.
    pub(super) fn take_changed(
        &mut self,
        config: &SimConfig,
        guest: impl Fn(JobKey) -> Guest,
    ) -> Vec<(JobKey, Rate)> {
        let Some(sharing) = &mut self.sharing else {
            return Vec::new();
        };
        let rule = Rule {
            speeds: self.terms.speeds,
            slowdowns: &config.slowdowns,
            contention: &config.contention,
            ordering: config.interleaving,
        };
        sharing.take_touched(&rule, guest)
    }
}

/// Returns the job's speed with exclusive use of its allocation.
pub(super) fn rate_on(config: &SimConfig, job: &TraceJob, allocation: &Allocation) -> Rate {
    let checkpoint = (job.checkpoint.or(config.checkpoint), config.checkpoint_cost);
    match config.compat {
        Compat::Exact => config.speeds.rate(job, allocation, &config.cluster, checkpoint),
        Compat::Blox { speed } => speed,
        Compat::Muri(_) => Rate::FULL,
        Compat::Synergy { .. } => Rate::ZERO,
    }
}

/// Returns how long this much work takes, in whole rounds if the reference counts rounds.
pub(super) fn span_for(config: &SimConfig, left: Work, rate: Rate) -> Time {
    let exact = rate.time_for(left);
    match (config.compat, config.clock) {
        (Compat::Blox { .. }, Clock::Rounds { period, .. }) => exact.next_multiple_of(period).max(period),
        _ => exact,
    }
}
