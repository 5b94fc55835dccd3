//! Speed of a job as a function of CPU and memory per GPU (Synergy, OSDI'22).
//!
//! A [`Sensitivity`] is a grid of measured points. Speed is interpolated between them, decreases to zero below them and is
//! constant above them. More CPU or memory never makes a job slower, so every speed has a least share.

use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::units::Rate;

/// An amount of CPU and memory, usually per GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Share {
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

impl Share {
    /// Returns this much CPU and memory.
    pub const fn new(cpu_milli: u32, memory_mib: u64) -> Self {
        Self {
            cpu_milli,
            memory_mib,
        }
    }

    /// Whether it is at least as much as `other` of both.
    pub fn covers(self, other: Share) -> bool {
        self.cpu_milli >= other.cpu_milli && self.memory_mib >= other.memory_mib
    }

    /// Returns the sum.
    pub fn plus(self, other: Share) -> Share {
        Share::new(
            self.cpu_milli.saturating_add(other.cpu_milli),
            self.memory_mib.saturating_add(other.memory_mib),
        )
    }

    /// Returns the difference; zero where it would be negative.
    pub fn minus(self, other: Share) -> Share {
        Share::new(
            self.cpu_milli.saturating_sub(other.cpu_milli),
            self.memory_mib.saturating_sub(other.memory_mib),
        )
    }

    /// Returns the product with a count.
    pub fn times(self, count: u32) -> Share {
        Share::new(
            self.cpu_milli.saturating_mul(count),
            self.memory_mib.saturating_mul(u64::from(count)),
        )
    }

    /// Returns the quotient by a count, rounded down.
    pub fn over(self, count: u32) -> Share {
        let count = count.max(1);
        Share::new(self.cpu_milli / count, self.memory_mib / u64::from(count))
    }

    /// Returns the larger amount of each.
    pub fn at_least(self, other: Share) -> Share {
        Share::new(
            self.cpu_milli.max(other.cpu_milli),
            self.memory_mib.max(other.memory_mib),
        )
    }

    /// Returns the smaller amount of each.
    pub fn at_most(self, other: Share) -> Share {
        Share::new(
            self.cpu_milli.min(other.cpu_milli),
            self.memory_mib.min(other.memory_mib),
        )
    }
}

/// Speed as a function of CPU and memory per GPU. [`Rate::FULL`], to which the job's work refers, is the speed with the
/// proportional share of the machine on which it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Points", into = "Points")]
pub struct Sensitivity {
    points: Points,
    ideal: Share,
    top: Rate,
    steps: Vec<(Share, Rate)>,
    fingerprint: u64,
}

/// The measured points, as stored in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Points {
    /// Amounts of CPU per GPU, in milli-cores, ascending.
    pub cpu_milli: Vec<u32>,
    /// Amounts of memory per GPU, in MiB, ascending.
    pub memory_mib: Vec<u64>,
    /// For each amount of CPU, the speeds with each amount of memory.
    pub rates: Vec<Rate>,
}

/// The most memory per GPU, in MiB; with it no product in this module overflows.
const MAX_MEMORY_MIB: u64 = 1 << 31;

/// Points that do not form a valid grid of speeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SensitivityError {
    /// There are no points.
    #[error("no points: expected at least one amount of CPU and one of memory")]
    Empty,
    /// Amounts are not positive and ascending.
    #[error("amounts of {0} must be above zero and ascending")]
    Order(&'static str),
    /// An amount of memory is too large.
    #[error("memory per GPU exceeds {MAX_MEMORY_MIB} MiB")]
    TooMuch,
    /// The number of speeds does not match the amounts.
    #[error("expected {expected} speeds, one for each pair of CPU and memory amounts; found {found}")]
    Count {
        /// Number of speeds.
        found: usize,
        /// Expected number of speeds.
        expected: usize,
    },
    /// A larger amount has a lower speed.
    #[error("speed must not decrease with more {resource}, at {cpu_milli} milli-cores and {memory_mib} MiB")]
    Decreases {
        /// CPU or memory.
        resource: &'static str,
        /// CPU of the point, in milli-cores.
        cpu_milli: u32,
        /// Memory of the point, in MiB.
        memory_mib: u64,
    },
}

impl TryFrom<Points> for Sensitivity {
    type Error = SensitivityError;

    fn try_from(points: Points) -> Result<Self, SensitivityError> {
        let (rows, columns) = (points.cpu_milli.len(), points.memory_mib.len());
        if rows == 0 || columns == 0 {
            return Err(SensitivityError::Empty);
        }
        if points.cpu_milli[0] == 0 || !points.cpu_milli.is_sorted_by(|a, b| a < b) {
            return Err(SensitivityError::Order("CPU"));
        }
        if points.memory_mib[columns - 1] > MAX_MEMORY_MIB {
            return Err(SensitivityError::TooMuch);
        }
        if points.memory_mib[0] == 0 || !points.memory_mib.is_sorted_by(|a, b| a < b) {
            return Err(SensitivityError::Order("memory"));
        }
        if points.rates.len() != rows * columns {
            return Err(SensitivityError::Count {
                found: points.rates.len(),
                expected: rows * columns,
            });
        }
        for row in 0..rows {
            for column in 0..columns {
                let here = points.at(row, column);
                let decreases = |resource| SensitivityError::Decreases {
                    resource,
                    cpu_milli: points.cpu_milli[row],
                    memory_mib: points.memory_mib[column],
                };
                if row > 0 && points.at(row - 1, column) > here {
                    return Err(decreases("CPU"));
                }
                if column > 0 && points.at(row, column - 1) > here {
                    return Err(decreases("memory"));
                }
            }
        }
        let top = points.at(rows - 1, columns - 1);
        let mut sensitivity = Self {
            ideal: Share::new(points.cpu_milli[rows - 1], points.memory_mib[columns - 1]),
            steps: points.frontier(),
            fingerprint: points.fingerprint(),
            points,
            top,
        };
        sensitivity.ideal = sensitivity.least_for(top, sensitivity.ideal);
        Ok(sensitivity)
    }
}

impl From<Sensitivity> for Points {
    fn from(sensitivity: Sensitivity) -> Self {
        sensitivity.points
    }
}

impl Points {
    /// Returns a hash of the points (FNV-1a).
    fn fingerprint(&self) -> u64 {
        let cpus = self.cpu_milli.iter().map(|c| u64::from(*c));
        let rates = self.rates.iter().map(|r| u64::from(r.0));
        let all = cpus.chain(self.memory_mib.iter().copied()).chain(rates);
        all.fold(0xcbf2_9ce4_8422_2325, |hash, number| {
            (hash ^ number).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Returns the Pareto-optimal points: no other point is as fast with no more CPU and memory.
    fn frontier(&self) -> Vec<(Share, Rate)> {
        let all = |row: usize| {
            let cpu = self.cpu_milli[row];
            self.memory_mib
                .iter()
                .enumerate()
                .map(move |(column, memory)| (Share::new(cpu, *memory), self.at(row, column)))
        };
        let points: Vec<(Share, Rate)> = (0..self.cpu_milli.len()).flat_map(all).collect();
        let beaten = |(share, rate): &(Share, Rate)| {
            points
                .iter()
                .any(|(other, faster)| other != share && share.covers(*other) && faster >= rate)
        };
        points.iter().copied().filter(|p| !beaten(p)).collect()
    }

    fn at(&self, row: usize, column: usize) -> Rate {
        self.rates[row * self.memory_mib.len() + column]
    }
}

/// The position of an amount on an axis: the point below (none for the origin), the point above, and the fraction between
/// them.
struct AxisPosition {
    below: Option<usize>,
    above: usize,
    part: u64,
    whole: u64,
}

impl AxisPosition {
    /// Interpolates between two values at this position, rounded down.
    fn mix(&self, low: u64, high: u64) -> u64 {
        if self.part == self.whole {
            return high;
        }
        (low * (self.whole - self.part) + high * self.part) / self.whole
    }
}

fn position<T: Copy + Into<u64>>(axis: &[T], amount: T) -> AxisPosition {
    let amount = amount.into();
    let above = axis.partition_point(|a| (*a).into() < amount).min(axis.len() - 1);
    let below = above.checked_sub(1);
    let (low, high) = (below.map_or(0, |i| axis[i].into()), axis[above].into());
    AxisPosition {
        below,
        above,
        part: amount.min(high) - low,
        whole: high - low,
    }
}

impl Sensitivity {
    /// Returns the speed with this share per GPU. It never decreases with more CPU or memory.
    pub fn rate(&self, share: Share) -> Rate {
        let cpu = position(&self.points.cpu_milli, share.cpu_milli);
        let memory = position(&self.points.memory_mib, share.memory_mib);
        let at = |row: Option<usize>, column: Option<usize>| match (row, column) {
            (Some(row), Some(column)) => u64::from(self.points.at(row, column).0),
            _ => 0,
        };
        let along = |row: Option<usize>| memory.mix(at(row, memory.below), at(row, Some(memory.above)));
        Rate(cpu.mix(along(cpu.below), along(Some(cpu.above))) as u32)
    }

    /// Returns the speed of a job on this allocation, which is that on its slowest node. Where a node does not limit CPU or
    /// memory (zero), the share returned by `unlimited` counts.
    pub fn rate_on(
        &self,
        allocation: &Allocation,
        mut unlimited: impl FnMut(crate::NodeId) -> Share,
    ) -> Rate {
        let rate = |part: &crate::NodeShare| {
            let gpus = part.gpus.count().max(1);
            let mut share = Share::new(part.cpu_milli / gpus, part.memory_mib / u64::from(gpus));
            if share.cpu_milli == 0 || share.memory_mib == 0 {
                let fair = unlimited(part.node);
                if part.cpu_milli == 0 {
                    share.cpu_milli = fair.cpu_milli;
                }
                if part.memory_mib == 0 {
                    share.memory_mib = fair.memory_mib;
                }
            }
            self.rate(share)
        };
        allocation.shares.iter().map(rate).min().unwrap_or(Rate::ZERO)
    }

    /// Returns the least share with top speed.
    pub fn ideal(&self) -> Share {
        self.ideal
    }

    /// Returns the top speed.
    pub fn top(&self) -> Rate {
        self.top
    }

    /// Returns a hash that distinguishes curves.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the Pareto-optimal measured points.
    pub fn steps(&self) -> &[(Share, Rate)] {
        &self.steps
    }

    /// Returns the measured points.
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// Returns the least share within `most` with the same speed as `most`.
    pub fn trimmed(&self, most: Share) -> Share {
        if most.covers(self.ideal) {
            return self.ideal;
        }
        self.least_for(self.rate(most), most)
    }

    /// Returns the least share within `most` that reaches a speed which `most` reaches: first the least memory, then the
    /// least CPU with it.
    pub fn least_for(&self, rate: Rate, most: Share) -> Share {
        let memory_mib = least(&self.points.memory_mib, most.memory_mib, rate, |memory_mib| {
            self.rate(Share { memory_mib, ..most })
        });
        let cpu_milli = least(&self.points.cpu_milli, u64::from(most.cpu_milli), rate, |cpu| {
            self.rate(Share::new(cpu as u32, memory_mib))
        });
        Share::new(cpu_milli as u32, memory_mib)
    }
}

/// Returns the least amount up to `most` with a speed of at least `rate`, which `most` reaches. The speed is monotone and
/// piecewise linear between the points of the axis.
fn least<T: Copy + Into<u64>>(axis: &[T], most: u64, rate: Rate, at: impl Fn(u64) -> Rate) -> u64 {
    let inside = axis.partition_point(|p| (*p).into() < most);
    let slower = axis[..inside].partition_point(|p| at((*p).into()) < rate);
    let (mut low, slow) = match slower.checked_sub(1).map(|i| axis[i].into()) {
        Some(point) => (point + 1, at(point)),
        None => (0, Rate::ZERO),
    };
    let mut high = axis[..inside].get(slower).map_or(most, |p| (*p).into());
    // Speed is nearly linear between two points, so linear interpolation gives a good first guess.
    let span = u64::from(at(high).0.saturating_sub(slow.0)).max(1);
    let mut guess = low + (high - low) * u64::from(rate.0.saturating_sub(slow.0)) / span;
    while low < high {
        guess = guess.clamp(low, high - 1);
        if at(guess) < rate {
            low = guess + 1;
            if at(low) >= rate {
                return low;
            }
        } else if guess > low && at(guess - 1) >= rate {
            high = guess - 1;
        } else {
            return guess;
        }
        guess = low + (high - low) / 2;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Sensitivity {
        Sensitivity::try_from(Points {
            cpu_milli: vec![1000, 3000, 12_000, 24_000],
            memory_mib: vec![20_000, 60_000],
            rates: [0.1, 0.3, 0.1, 1.0, 0.1, 2.5, 0.1, 2.5]
                .map(Rate::from_factor)
                .to_vec(),
        })
        .unwrap()
    }

    #[test]
    fn speed_is_interpolated_between_points_and_constant_beyond_them() {
        let s = example();
        assert_eq!(s.rate(Share::new(3000, 60_000)), Rate::FULL);
        assert_eq!(s.rate(Share::new(2000, 60_000)), Rate(650_000));
        assert_eq!(s.rate(Share::new(500, 60_000)), Rate(150_000));
        assert_eq!(s.rate(Share::new(3000, 40_000)), Rate(550_000));
        assert_eq!(s.rate(Share::new(64_000, 600_000)), Rate(2_500_000));
        assert_eq!(s.rate(Share::new(0, 60_000)), Rate::ZERO);
    }

    #[test]
    fn the_ideal_is_the_least_share_with_top_speed() {
        let s = example();
        assert_eq!(
            (s.ideal(), s.top()),
            (Share::new(12_000, 60_000), Rate(2_500_000))
        );
        let fair = Share::new(3000, 90_000);
        assert_eq!(s.trimmed(fair), Share::new(3000, 60_000));
    }

    #[test]
    fn the_least_share_for_a_speed_matches_an_exhaustive_search() {
        let s = example();
        for (cpu, memory) in [
            (24_000, 60_000),
            (5000, 60_000),
            (12_000, 41_111),
            (700, 9000),
            (3000, 20_000),
        ] {
            let most = Share::new(cpu, memory);
            for percent in [100, 99, 85, 50, 1, 0] {
                let rate = Rate((u64::from(s.rate(most).0) * percent / 100) as u32);
                let least = s.least_for(rate, most);
                let memory = (0..=most.memory_mib)
                    .find(|m| s.rate(Share::new(cpu, *m)) >= rate)
                    .unwrap();
                let cpu = (0..=cpu)
                    .find(|c| s.rate(Share::new(*c, memory)) >= rate)
                    .unwrap();
                assert_eq!(least, Share::new(cpu, memory), "{rate:?} within {most:?}");
            }
        }
    }

    #[test]
    fn speed_never_decreases_with_more_cpu_or_memory() {
        let s = example();
        for cpu in (0..30_000).step_by(371) {
            for memory in (0..80_000).step_by(1777) {
                let here = s.rate(Share::new(cpu, memory));
                assert!(s.rate(Share::new(cpu + 371, memory)) >= here);
                assert!(s.rate(Share::new(cpu, memory + 1777)) >= here);
            }
        }
    }

    #[test]
    fn invalid_grids_are_rejected() {
        let points = |cpu: &[u32], rates: &[f64]| {
            Sensitivity::try_from(Points {
                cpu_milli: cpu.to_vec(),
                memory_mib: vec![1000],
                rates: rates.iter().map(|r| Rate::from_factor(*r)).collect(),
            })
        };
        assert_eq!(points(&[], &[]), Err(SensitivityError::Empty));
        assert_eq!(points(&[2, 1], &[1.0, 1.0]), Err(SensitivityError::Order("CPU")));
        let few = SensitivityError::Count {
            found: 1,
            expected: 2,
        };
        assert_eq!(points(&[1, 2], &[1.0]), Err(few));
        let error = points(&[1, 2], &[1.0, 0.9]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "speed must not decrease with more CPU, at 2 milli-cores and 1000 MiB"
        );
    }

    #[test]
    fn a_sensitivity_is_restored_from_its_points() {
        let s = example();
        assert_eq!(Sensitivity::try_from(Points::from(s.clone())), Ok(s));
    }
}
