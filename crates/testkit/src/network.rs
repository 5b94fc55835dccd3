//! A network that misbehaves by seed.

use dovetail_model::Time;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Delays, repeats and reorders messages; one that is dropped is sent again until it arrives. The same seed
/// misbehaves in the same way.
#[derive(Debug, Clone)]
pub struct Network {
    generator: ChaCha8Rng,
}

impl Network {
    /// The network of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            generator: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// When a message that is sent now arrives, counted from now; more than once if it is repeated.
    pub fn arrivals(&mut self) -> Vec<Time> {
        let first = self.delay();
        let mut arrivals = vec![first];
        while self.one_in(5) {
            let again = first + self.delay();
            arrivals.push(again);
        }
        arrivals
    }

    /// Mostly at once, sometimes after seconds, now and then only after it was dropped and sent again.
    pub fn delay(&mut self) -> Time {
        match self.below(20) {
            0..8 => Time::ZERO,
            8..14 => Time(self.below(50_000)),
            14..19 => Time(self.below(4_000_000)),
            _ => Time(10_000_000 + self.below(20_000_000)),
        }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == 0
    }

    fn below(&mut self, n: i64) -> i64 {
        (self.generator.next_u64() % n as u64) as i64
    }
}
