//! Amounts as integers with a unit. A policy may compute with floating-point numbers, but returns integers.
//!
//! | quantity | unit |
//! |---|---|
//! | time | microseconds since the epoch of the run ([`Time`]) |
//! | work | microseconds of run time at full speed on the GPUs asked for ([`Work`]) |
//! | rate | work per time, in millionths ([`Rate`]) |
//! | CPU | milli-cores (`u32`) |
//! | memory | MiB (`u64`) |
//! | GPUs | whole GPUs (`u32`) |

use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// Microseconds in a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;

/// A moment since the epoch (the start of the run), or a span, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// The epoch of the run.
    pub const ZERO: Time = Time(0);
    /// Later than every other moment.
    pub const MAX: Time = Time(i64::MAX);

    /// Converts from whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * MICROS_PER_SECOND)
    }

    /// Converts from fractional seconds, rounded to the nearest microsecond; values out of range saturate.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * MICROS_PER_SECOND as f64).round() as i64)
    }

    /// Converts to seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MICROS_PER_SECOND as f64
    }

    /// Returns the span from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Time {
        Time((self.0 - earlier.0).max(0))
    }

    /// Returns the first multiple of `period` that is not before this moment.
    pub fn next_multiple_of(self, period: Time) -> Time {
        debug_assert!(period.0 > 0, "the period is positive");
        Time(
            self.0.div_euclid(period.0) * period.0
                + if self.0.rem_euclid(period.0) == 0 {
                    0
                } else {
                    period.0
                },
        )
    }

    /// Returns the sum, or [`Time::MAX`] on overflow.
    pub fn saturating_add(self, span: Time) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0 + other.0)
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time(self.0 - other.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        self.0 += other.0;
    }
}

impl SubAssign for Time {
    fn sub_assign(&mut self, other: Time) {
        self.0 -= other.0;
    }
}

/// Work of a job: its run time in microseconds at full speed on the GPUs it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Work(pub u64);

impl Work {
    /// Converts from fractional seconds at full speed, rounded up so that no work is lost; negative values give zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * MICROS_PER_SECOND as f64).ceil() as u64)
    }

    /// Converts to seconds at full speed.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MICROS_PER_SECOND as f64
    }

    /// Returns the work left after `done`; zero if there is none.
    pub fn minus(self, done: Work) -> Work {
        Work(self.0.saturating_sub(done.0))
    }
}

impl Add for Work {
    type Output = Work;
    fn add(self, other: Work) -> Work {
        Work(self.0 + other.0)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.0 += other.0;
    }
}

/// Work per time, in millionths of full speed on the GPUs asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u32);

impl Rate {
    /// Full speed.
    pub const FULL: Rate = Rate(1_000_000);
    /// No progress.
    pub const ZERO: Rate = Rate(0);

    /// Converts from a factor of full speed; the result is at least one millionth.
    pub fn from_factor(factor: f64) -> Self {
        Self((factor * 1e6).round().clamp(1.0, f64::from(u32::MAX)) as u32)
    }

    /// Converts to a factor of full speed.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// Returns the work done in a span at this rate, rounded down.
    pub fn work_in(self, span: Time) -> Work {
        if self == Self::FULL {
            return Work(span.0.max(0) as u64);
        }
        Work((span.0.max(0) as u128 * u128::from(self.0) / 1_000_000) as u64)
    }

    /// Returns the time this work takes at this rate, rounded up; [`Time::MAX`] for a rate of zero.
    pub fn time_for(self, work: Work) -> Time {
        match self {
            Self::FULL => Time(work.0.min(i64::MAX as u64) as i64),
            Self::ZERO => Time::MAX,
            Self(rate) => {
                let micros = (u128::from(work.0) * 1_000_000).div_ceil(u128::from(rate));
                Time(micros.min(i64::MAX as u128) as i64)
            }
        }
    }

    /// Returns the product of two factors.
    pub fn times(self, other: Rate) -> Rate {
        Rate((u64::from(self.0) * u64::from(other.0) / 1_000_000).clamp(1, u64::from(u32::MAX)) as u32)
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up_so_that_no_work_is_lost() {
        let rate = Rate::from_factor(0.3);
        let work = Work(1_000_001);
        assert!(rate.work_in(rate.time_for(work)) >= work);
        assert!(rate.work_in(rate.time_for(work) - Time(1)) < work);
        assert_eq!(Rate::FULL.time_for(work), Time(1_000_001));
        assert_eq!(Rate::ZERO.time_for(work), Time::MAX);
    }

    #[test]
    fn moments_are_rounded_up_to_multiples() {
        let round = Time::from_secs(300);
        assert_eq!(Time(0).next_multiple_of(round), Time(0));
        assert_eq!(Time(1).next_multiple_of(round), round);
        assert_eq!(round.next_multiple_of(round), round);
    }
}
