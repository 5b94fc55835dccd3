//! Models that share GPUs: how they interleave their stages.

use dovetail_model::layout::{Layout, layout};
use dovetail_model::stages::{Contention, Ordering, Stages, efficiency, shared_period_us};

use crate::StageProfile;

/// Models that share GPUs, with the period in which each completes an iteration.
#[derive(Debug, Clone)]
pub struct StageGroup {
    /// The models.
    pub members: Vec<StageProfile>,
    /// Which order of their phases is chosen.
    pub ordering: Ordering,
    /// Two periods without contention.
    pub drawn: Layout,
    /// The period with contention, in microseconds.
    pub period_us: f64,
    /// The same in the best order.
    pub best_us: f64,
    /// The same in the worst order.
    pub worst_us: f64,
    /// The factor of contention.
    pub contention: f64,
    /// Mean busy share of storage, CPU, GPU and network.
    pub efficiency: f64,
    /// Sum of the members' iterations, each alone.
    pub in_turn_us: f64,
}

impl StageGroup {
    /// Returns the group of these models, of which there must be one at least.
    pub fn new(members: Vec<StageProfile>, ordering: Ordering) -> Self {
        let contention = Contention::default();
        let stages: Vec<Stages> = members.iter().map(|m| m.stages).collect();
        let shared = |ordering| shared_period_us(&stages, ordering, &contention);
        Self {
            drawn: layout(&stages, ordering),
            period_us: shared(ordering),
            best_us: shared(Ordering::Best),
            worst_us: shared(Ordering::Worst),
            contention: contention.factors[stages.len() - 1],
            efficiency: efficiency(&stages, ordering, &contention),
            in_turn_us: stages.iter().map(|s| f64::from(s.iteration_us)).sum(),
            members,
            ordering,
        }
    }

    /// Returns whether Muri's autopack keeps the group; it splits groups whose members would be faster one after the other.
    pub fn kept(&self) -> bool {
        self.members.len() == 1 || self.period_us <= self.in_turn_us
    }

    /// Returns by which factor an iteration of a member takes longer than alone.
    pub fn slowdown(&self, member: usize) -> f64 {
        self.period_us / f64::from(self.members[member].stages.iteration_us)
    }

    /// Returns whether the drawn period is longer than the model's.
    pub fn unsettled(&self) -> bool {
        (self.drawn.steady_us - self.drawn.period_us).abs() > 2e-3 * self.drawn.period_us
    }
}
