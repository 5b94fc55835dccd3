//! The terms on which jobs share GPUs, and how much sharing slows them down.
//!
//! The slowdown of a job beside another is taken from measurements where there are any, else derived from the stages of
//! both, else both take turns. A policy that weighs a pair and the simulator that runs it use the same function.

use serde::{Deserialize, Serialize};

use crate::ids::ModelId;
use crate::stages::{Contention, Ordering, Stages, shared_period_us};

/// Slowdown of two jobs about which nothing is known: they take turns.
pub const TURNS: f64 = 2.0;

/// The least part of its speed that a job without a guarantee keeps beside a guaranteed one.
pub const MIN_REMAINING_SPEED: f64 = 0.05;

/// How fast jobs on the same GPU run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speeds {
    /// All of them by the period of their interleaved stages.
    Interleaved,
    /// At most two, each by its own slowdown beside the other.
    Paired {
        /// Whether NVIDIA's MPS lets kernels of both run at once.
        mps: bool,
    },
    /// At most two. Jobs of priority zero and above keep their full speed; the others get what is left.
    Guaranteed {
        /// Whether NVIDIA's MPS lets kernels of both run at once.
        mps: bool,
    },
}

/// The terms on which a grouping lets jobs share GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingTerms {
    /// The most jobs on one GPU.
    pub max_jobs: u32,
    /// Whether jobs may share only some of their GPUs. If not, jobs that share have the same GPUs.
    pub overlap: bool,
    /// How fast they run.
    pub speeds: Speeds,
}

impl SharingTerms {
    /// No job shares its GPUs.
    pub const EXCLUSIVE: Self = Self {
        max_jobs: 1,
        overlap: false,
        speeds: Speeds::Interleaved,
    };

    /// Groups of up to four jobs on the same GPUs.
    pub const GROUPS: Self = Self {
        max_jobs: 4,
        overlap: false,
        speeds: Speeds::Interleaved,
    };
}

/// The properties of a job that determine how fast it runs beside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its model, if known.
    pub model: Option<ModelId>,
    /// Number of GPUs it is on.
    pub gpus: u32,
    /// The stages of its iterations, if they were measured.
    pub stages: Option<Stages>,
}

/// One measurement: how many times longer an iteration of one model takes beside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeasuredSlowdown {
    /// The model that is slowed down.
    pub of: ModelId,
    /// The model it shares with.
    pub beside: ModelId,
    /// GPUs on which it was measured.
    pub gpus: u32,
    /// The factor, in millionths; 1,000,000 is no slowdown.
    pub plain_ppm: u32,
    /// The factor with MPS, in millionths.
    pub mps_ppm: u32,
}

/// All measurements, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdowns {
    measured: Vec<MeasuredSlowdown>,
}

impl FromIterator<MeasuredSlowdown> for Slowdowns {
    fn from_iter<I: IntoIterator<Item = MeasuredSlowdown>>(all: I) -> Self {
        let mut measured: Vec<MeasuredSlowdown> = all.into_iter().collect();
        measured.sort_unstable();
        Self { measured }
    }
}

impl Slowdowns {
    /// Returns how many times longer an iteration of each of two jobs takes beside the other; at least one.
    pub fn of_pair(&self, a: &Member, b: &Member, mps: bool, contention: &Contention) -> [f64; 2] {
        let measured = [self.find(a, b, mps), self.find(b, a, mps)];
        let modelled = match (measured, a.stages, b.stages) {
            ([Some(_), Some(_)], ..) => [TURNS; 2],
            (_, Some(x), Some(y)) => {
                // With MPS both run at once, as far as the resources suffice.
                let contention = if mps { &Contention::NONE } else { contention };
                let period = shared_period_us(&[x, y], Ordering::Best, contention);
                [x, y].map(|own| period / f64::from(own.iteration_us.max(1)))
            }
            _ => [TURNS; 2],
        };
        let pick = |i: usize| measured[i].unwrap_or(modelled[i]).max(1.0);
        [pick(0), pick(1)]
    }

    /// Returns the part of its speed that `other` keeps beside a job that keeps all of its own: as measured, else as many
    /// of its iterations as each resource has time for during one iteration of the guaranteed job, else half.
    pub fn remaining_beside(&self, guaranteed: &Member, other: &Member, mps: bool) -> f64 {
        let modelled = || match (guaranteed.stages, other.stages) {
            (Some(first), Some(second)) => remaining_by_stages(&first, &second),
            _ => 1.0 / TURNS,
        };
        let share = self
            .find(other, guaranteed, mps)
            .map_or_else(modelled, |slowdown| 1.0 / slowdown);
        share.clamp(MIN_REMAINING_SPEED, 1.0)
    }

    /// Replaces everything that was measured of a model. Returns whether that changed anything.
    pub fn replace(&mut self, of: ModelId, mut rows: Vec<MeasuredSlowdown>) -> bool {
        rows.retain(|row| row.of == of);
        rows.sort_unstable();
        let from = self.measured.partition_point(|m| m.of < of);
        let to = self.measured.partition_point(|m| m.of <= of);
        let is_changed = self.measured[from..to] != rows;
        if is_changed {
            self.measured.splice(from..to, rows);
        }
        is_changed
    }

    /// Whether anything was measured of a model.
    pub fn has(&self, model: ModelId) -> bool {
        let from = self.measured.partition_point(|m| m.of < model);
        self.measured.get(from).is_some_and(|m| m.of == model)
    }

    /// Returns what was measured on as many GPUs, else on the next smaller number, else on the next larger one.
    fn find(&self, of: &Member, beside: &Member, mps: bool) -> Option<f64> {
        let (model, other) = (of.model?, beside.model?);
        let key = |m: &MeasuredSlowdown| (m.of, m.beside);
        let from = self.measured.partition_point(|m| key(m) < (model, other));
        let rows = &self.measured[from..];
        let rows = &rows[..rows.partition_point(|m| key(m) == (model, other))];
        let after = rows.partition_point(|m| m.gpus <= of.gpus);
        let found = rows.get(after.saturating_sub(1))?;
        Some(f64::from(if mps { found.mps_ppm } else { found.plain_ppm }) / 1e6)
    }
}

/// Returns the part of full speed at which a job fits into what an iteration of another leaves of each resource.
fn remaining_by_stages(first: &Stages, second: &Stages) -> f64 {
    let span = f64::from(first.iteration_us).max(1.0);
    let mut iterations = span / f64::from(second.iteration_us.max(1));
    for (taken, needed) in first.times_us.into_iter().zip(second.times_us) {
        if needed > 0 {
            let left = (span - f64::from(taken)).max(0.0);
            iterations = iterations.min(left / f64::from(needed));
        }
    }
    iterations * f64::from(second.iteration_us) / span
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(model: u32, gpus: u32, stages: Option<Stages>) -> Member {
        Member {
            model: Some(ModelId(model)),
            gpus,
            stages,
        }
    }

    #[test]
    fn measurements_take_precedence_over_the_model_and_the_model_over_turns() {
        let row = |of, beside, gpus, plain_ppm, mps_ppm| MeasuredSlowdown {
            of: ModelId(of),
            beside: ModelId(beside),
            gpus,
            plain_ppm,
            mps_ppm,
        };
        let table: Slowdowns = [
            row(0, 1, 4, 1_700_000, 1_200_000),
            row(0, 1, 1, 1_500_000, 1_100_000),
        ]
        .into_iter()
        .collect();
        let contention = Contention::default();
        let pair = |gpus, mps| table.of_pair(&member(0, gpus, None), &member(1, 1, None), mps, &contention);
        assert_eq!(pair(1, false), [1.5, 2.0]);
        assert_eq!(pair(2, false), [1.5, 2.0]);
        assert_eq!(pair(8, true), [1.2, 2.0]);
        let loads = Stages::three(90_000, 10_000, 0, 100_000);
        let computes = Stages::three(10_000, 90_000, 0, 100_000);
        let [a, b] = (Slowdowns::default()).of_pair(
            &member(0, 1, Some(loads)),
            &member(1, 1, Some(computes)),
            true,
            &contention,
        );
        assert_eq!((a, b), (1.0, 1.0));
    }

    #[test]
    fn a_job_without_a_guarantee_gets_what_is_left() {
        let table = Slowdowns::default();
        let busy = Stages::three(0, 100_000, 0, 100_000);
        let half = Stages::three(50_000, 50_000, 0, 100_000);
        let left = |a, b| table.remaining_beside(&member(0, 1, Some(a)), &member(1, 1, Some(b)), false);
        assert_eq!(left(busy, half), MIN_REMAINING_SPEED);
        assert_eq!(left(half, half), 1.0);
        assert_eq!(left(half, busy), 0.5);
        assert_eq!(
            table.remaining_beside(&member(0, 1, None), &member(1, 1, None), false),
            0.5
        );
    }
}
