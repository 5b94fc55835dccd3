//! An unreliable network.

use dovetail_model::Time;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A network that delays, repeats and reorders messages; a dropped message is sent again until it arrives. The same seed
/// gives the same behaviour.
#[derive(Debug, Clone)]
pub struct Network {
    generator: ChaCha8Rng,
}

impl Network {
    /// Returns the network with this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            generator: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Returns the delays with which a message sent now arrives; several if it is repeated.
    pub fn arrivals(&mut self) -> Vec<Time> {
        let first = self.delay();
        let mut arrivals = vec![first];
        while self.one_in(5) {
            let again = first + self.delay();
            arrivals.push(again);
        }
        arrivals
    }

    /// Returns a delay: usually none, sometimes seconds, rarely that of a message that was dropped and sent again.
    pub fn delay(&mut self) -> Time {
        match self.below(20) {
            0..8 => Time::ZERO,
            8..14 => Time(self.below(50_000)),
            14..19 => Time(self.below(4_000_000)),
            _ => Time(10_000_000 + self.below(20_000_000)),
        }
    }

    /// Returns true with a probability of 1/n.
    pub fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == 0
    }

    fn below(&mut self, n: i64) -> i64 {
        (self.generator.next_u64() % n as u64) as i64
    }
}
