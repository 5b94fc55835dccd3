//! The terms on which jobs share GPUs, and what sharing costs them.
//!
//! How much slower a job gets beside another is measured where a table says so, else it follows from the stages of
//! both, else two jobs take turns. A policy that weighs a pair and the simulator that runs it ask the same function.

use serde::{Deserialize, Serialize};

use crate::ids::ModelId;
use crate::stages::{Contention, Ordering, Stages, shared_period_us};

/// The slowdown of two jobs of which nothing is known: they take turns.
pub const TURNS: f64 = 2.0;

/// The share of its speed that a job without a guarantee keeps at least beside one that has it.
pub const LEAST_LEFT: f64 = 0.05;

/// How fast jobs go that are on the same GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speeds {
    /// All of them by the period of their interleaved stages.
    Interleaved,
    /// Two at most, each by its own slowdown beside the other.
    Paired {
        /// With NVIDIA's MPS, which lets kernels of both run at once.
        mps: bool,
    },
    /// Two at most. Jobs of priority zero and above keep their full speed; the others get what is left.
    Guaranteed {
        /// With NVIDIA's MPS, which lets kernels of both run at once.
        mps: bool,
    },
}

/// The terms on which a grouping lets jobs share GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Jobs on one GPU at most.
    pub most: u32,
    /// Whether jobs may share some of their GPUs and not the others. If not, who shares shares all of them.
    pub overlap: bool,
    /// How fast they go.
    pub speeds: Speeds,
}

impl Terms {
    /// Nobody shares.
    pub const ALONE: Self = Self {
        most: 1,
        overlap: false,
        speeds: Speeds::Interleaved,
    };

    /// Groups of up to four on the very same GPUs.
    pub const GROUPS: Self = Self {
        most: 4,
        overlap: false,
        speeds: Speeds::Interleaved,
    };
}

/// What decides how a job bears company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its model, where that is known.
    pub model: Option<ModelId>,
    /// How many GPUs it is on.
    pub gpus: u32,
    /// The stages of its iterations, where they were measured.
    pub stages: Option<Stages>,
}

/// One measurement: how many times longer an iteration of one model takes beside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Measured {
    /// The model that gets slower.
    pub of: ModelId,
    /// The model it shares with.
    pub beside: ModelId,
    /// GPUs it was measured on.
    pub gpus: u32,
    /// The factor, in millionths; a million is no slowdown.
    pub plain_ppm: u32,
    /// The factor with MPS, in millionths.
    pub mps_ppm: u32,
}

/// All measurements, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdowns {
    measured: Vec<Measured>,
}

impl FromIterator<Measured> for Slowdowns {
    fn from_iter<I: IntoIterator<Item = Measured>>(all: I) -> Self {
        let mut measured: Vec<Measured> = all.into_iter().collect();
        measured.sort_unstable();
        Self { measured }
    }
}

impl Slowdowns {
    /// How many times longer an iteration of each of two jobs takes beside the other; never less than one.
    pub fn of_pair(&self, a: &Member, b: &Member, mps: bool, contention: &Contention) -> [f64; 2] {
        let measured = [self.find(a, b, mps), self.find(b, a, mps)];
        let modelled = match (measured, a.stages, b.stages) {
            ([Some(_), Some(_)], ..) => [TURNS; 2],
            (_, Some(x), Some(y)) => {
                // With MPS both run at once, as far as resources go.
                let contention = if mps { &Contention::NONE } else { contention };
                let period = shared_period_us(&[x, y], Ordering::Best, contention);
                [x, y].map(|own| period / f64::from(own.iteration_us.max(1)))
            }
            _ => [TURNS; 2],
        };
        let pick = |i: usize| measured[i].unwrap_or(modelled[i]).max(1.0);
        [pick(0), pick(1)]
    }

    /// The share of its speed that is left to `other` beside a job that keeps all of its own: what was measured, else
    /// as many of its iterations as each resource has time for while the guaranteed job does one, else half.
    pub fn left_beside(&self, guaranteed: &Member, other: &Member, mps: bool) -> f64 {
        let modelled = || match (guaranteed.stages, other.stages) {
            (Some(first), Some(second)) => left_over(&first, &second),
            _ => 1.0 / TURNS,
        };
        let share = self
            .find(other, guaranteed, mps)
            .map_or_else(modelled, |slowdown| 1.0 / slowdown);
        share.clamp(LEAST_LEFT, 1.0)
    }

    /// What was measured on as many GPUs, else on the next fewer, else on the next more.
    fn find(&self, of: &Member, beside: &Member, mps: bool) -> Option<f64> {
        let (model, other) = (of.model?, beside.model?);
        let key = |m: &Measured| (m.of, m.beside);
        let from = self.measured.partition_point(|m| key(m) < (model, other));
        let here = &self.measured[from..];
        let here = &here[..here.partition_point(|m| key(m) == (model, other))];
        let after = here.partition_point(|m| m.gpus <= of.gpus);
        let found = here.get(after.saturating_sub(1))?;
        Some(f64::from(if mps { found.mps_ppm } else { found.plain_ppm }) / 1e6)
    }
}

/// The share of full speed at which a job fits into what an iteration of another leaves of each resource.
fn left_over(first: &Stages, second: &Stages) -> f64 {
    let span = f64::from(first.iteration_us).max(1.0);
    let mut iterations = span / f64::from(second.iteration_us.max(1));
    for (taken, wanted) in first.times_us.into_iter().zip(second.times_us) {
        if wanted > 0 {
            let left = (span - f64::from(taken)).max(0.0);
            iterations = iterations.min(left / f64::from(wanted));
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
    fn measured_goes_before_modelled_and_that_before_turns() {
        let row = |of, beside, gpus, plain_ppm, mps_ppm| Measured {
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
    fn who_has_no_guarantee_gets_what_is_left() {
        let table = Slowdowns::default();
        let busy = Stages::three(0, 100_000, 0, 100_000);
        let half = Stages::three(50_000, 50_000, 0, 100_000);
        let left = |a, b| table.left_beside(&member(0, 1, Some(a)), &member(1, 1, Some(b)), false);
        assert_eq!(left(busy, half), LEAST_LEFT);
        assert_eq!(left(half, half), 1.0);
        assert_eq!(left(half, busy), 0.5);
        assert_eq!(
            table.left_beside(&member(0, 1, None), &member(1, 1, None), false),
            0.5
        );
    }
}
