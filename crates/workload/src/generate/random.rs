//! Random numbers that are the same on every machine: one seed, one stream for each aspect of a workload.
//!
//! Separate streams keep what is not asked to change: with another rate of arrival, the jobs stay the same.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream is for. The numbers are part of the output: never change one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Arrivals = 0,
    Gpus = 1,
    Durations = 2,
    Tenants = 3,
    Users = 4,
    Models = 5,
    Phases = 6,
}

/// A stream of random numbers.
pub(super) struct Random {
    rng: ChaCha8Rng,
}

impl Random {
    pub(super) fn new(seed: u64, stream: Stream) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64);
        Self { rng }
    }

    /// Evenly from 0 up to, not including, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Evenly from `low` to `high`.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Exponential with a mean of 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// Normal with a mean of 0 and a deviation of 1, by Box and Muller's transform.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// One of `count`, each as likely.
    pub(super) fn index(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }
}

/// Picks positions in proportion to weights.
#[derive(Debug, Clone)]
pub(super) struct Weights {
    sums: Vec<f64>,
}

impl Weights {
    /// Weights of which at least one is above zero.
    pub(super) fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let sums = weights.into_iter().map(|w| {
            sum += w;
            sum
        });
        Self { sums: sums.collect() }
    }

    /// `count` weights that fall with their rank to the power of `skew`; a skew of 0 makes them equal.
    pub(super) fn zipf(count: u32, skew: f64) -> Self {
        Self::new((1..=count).map(|rank| libm::pow(f64::from(rank), -skew)))
    }

    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let Some(total) = self.sums.last() else { return 0 };
        let mark = random.unit() * total;
        self.sums
            .partition_point(|sum| *sum <= mark)
            .min(self.sums.len() - 1)
    }
}
