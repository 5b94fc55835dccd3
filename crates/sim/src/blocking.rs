//! Muri's blocking index: how long waiting jobs have waited, over the run time they have left.
//!
//! At each moment it is the mean over waiting jobs of (time without GPUs so far) / (remaining run time alone), zero where
//! none waits. While a job waits its ratio grows by the same amount in each microsecond, so the sum over all of them is
//! kept as a value and a slope, and a job costs something only when it begins or ends to wait. All sums are integers:
//! what a job brings in is taken out to the last bit, however long the run.

use dovetail_model::{Time, Work};

/// One, in the unit of the sums: fine enough for jobs of years, and small enough for a million of them in an `i128`.
const ONE: u64 = 1 << 60;

/// The sums over waiting jobs, and the index integrated over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocking {
    now: Time,
    jobs: u32,
    /// The jobs' ratios together, now.
    ratios: i128,
    /// How much that grows in a microsecond.
    slope: i128,
    /// Index × microseconds so far.
    integral: f64,
}

impl Blocking {
    /// Time passes.
    pub(crate) fn advance(&mut self, now: Time) {
        let span = now.0 - self.now.0;
        self.now = now;
        if self.jobs == 0 || span == 0 {
            return;
        }
        let growth = self.slope * i128::from(span);
        let mean = (self.ratios as f64 + growth as f64 / 2.0) / (f64::from(self.jobs) * ONE as f64);
        self.integral += mean * span as f64;
        self.ratios += growth;
    }

    /// A job begins to wait that has been without GPUs for this long in all, and has this much left to do.
    pub(crate) fn enter(&mut self, waited: Time, left: Work) {
        let slope = slope(left);
        self.jobs += 1;
        self.slope += slope;
        self.ratios += slope * i128::from(waited.0);
    }

    /// It waits no more; `waited` has grown by the time in between.
    pub(crate) fn leave(&mut self, waited: Time, left: Work) {
        let slope = slope(left);
        self.jobs -= 1;
        self.slope -= slope;
        self.ratios -= slope * i128::from(waited.0);
    }

    /// Index × microseconds since the start.
    pub(crate) fn integral(&self) -> f64 {
        self.integral
    }
}

fn slope(left: Work) -> i128 {
    i128::from(ONE / left.0.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_mean_of_waits_over_what_is_left() {
        let mut blocking = Blocking::default();
        let (short, long) = (Work(10_000_000), Work(40_000_000));
        blocking.enter(Time::ZERO, short);
        blocking.advance(Time::from_secs(10));
        // From 0 to 1 in ten seconds.
        assert!((blocking.integral() / 1e6 - 5.0).abs() < 1e-9);
        blocking.enter(Time::from_secs(20), long);
        blocking.advance(Time::from_secs(20));
        // Means of 1 → 2 and 0.5 → 0.75: from 0.75 to 1.375.
        assert!((blocking.integral() / 1e6 - 5.0 - 10.625).abs() < 1e-9);
        blocking.leave(Time::from_secs(20), short);
        blocking.leave(Time::from_secs(30), long);
        blocking.advance(Time::from_secs(1000));
        assert!((blocking.integral() / 1e6 - 15.625).abs() < 1e-9);
        assert_eq!((blocking.ratios, blocking.slope), (0, 0));
    }
}
