//! Muri's blocking index: how long queued jobs have waited, relative to their remaining run time.
//!
//! At each moment it is the mean over queued jobs of (time without GPUs) / (remaining run time alone), zero if no job is
//! queued. While a job is queued its ratio grows linearly, so the sum over all jobs is kept as a value and a slope, and
//! there is work only when a job starts or stops waiting. All sums are integers: exactly what a job adds is subtracted
//! again, however long the run.

use dovetail_model::{Time, Work};

/// The value one in the unit of the sums: fine enough for jobs of years, small enough for a million of them in an `i128`.
const ONE: u64 = 1 << 60;

/// Sums over queued jobs, and the index integrated over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocking {
    now: Time,
    jobs: u32,
    /// Sum of the jobs' ratios now.
    ratios: i128,
    /// Growth of that sum per microsecond.
    slope: i128,
    /// Index × microseconds so far.
    integral: f64,
}

impl Blocking {
    /// Advances the time.
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

    /// Adds a queued job that has been without GPUs for `waited` in total and has `left` to do.
    pub(crate) fn enter(&mut self, waited: Time, left: Work) {
        let slope = slope(left);
        self.jobs += 1;
        self.slope += slope;
        self.ratios += slope * i128::from(waited.0);
    }

    /// Removes a job that is no longer queued; `waited` includes the time since it was added.
    pub(crate) fn leave(&mut self, waited: Time, left: Work) {
        let slope = slope(left);
        self.jobs -= 1;
        self.slope -= slope;
        self.ratios -= slope * i128::from(waited.0);
    }

    /// Returns index × microseconds since the start.
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
    fn the_index_is_the_mean_of_wait_over_remaining_time() {
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
