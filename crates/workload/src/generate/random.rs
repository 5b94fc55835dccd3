//! Random numbers that are the same on every machine: one seed, one stream for each aspect of a workload.
//!
//! Separate streams keep the other aspects constant: with another arrival rate, the jobs stay the same.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The aspect that a stream is for. The numbers determine the output and must never change.
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

    /// Draws a uniform number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws a uniform number from `low` to `high`.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws an exponential number with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// Draws a standard normal number (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Draws an index below `count`, all equally likely.
    pub(super) fn index(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }
}

/// Draws positions in proportion to weights.
#[derive(Debug, Clone)]
pub(super) struct Weights {
    sums: Vec<f64>,
}

impl Weights {
    /// Takes weights, at least one of which is above zero.
    pub(super) fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let sums = weights.into_iter().map(|w| {
            sum += w;
            sum
        });
        Self { sums: sums.collect() }
    }

    /// Returns `count` weights that decrease with their rank to the power of `skew`; a skew of 0 makes them equal.
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
