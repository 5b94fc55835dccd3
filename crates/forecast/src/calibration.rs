//! Calibration: shifts and widens an interval so that it would have contained the start times of earlier forecasts.

use std::collections::VecDeque;

use dovetail_model::Time;

use crate::eta::percentile;

/// A forecast as the simulations give it, before its correction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawForecast {
    /// When it was made.
    pub at: Time,
    /// The early end of the interval.
    pub low: Time,
    /// The median.
    pub middle: Time,
    /// The late end of the interval.
    pub high: Time,
    /// Where the 90th percentile is between the median and the late end, as a share.
    pub p90_share: f64,
    /// A time that does not matter on this cluster: a small part of a usual run time.
    pub unit: Time,
}

/// An interval of start times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The early end.
    pub low: Time,
    /// The median.
    pub middle: Time,
    /// The 90th percentile, or the late end if that is earlier.
    pub p90: Time,
    /// The late end.
    pub high: Time,
}

/// Part of a usual run time that does not matter.
const UNIT_SHARE: f64 = 0.05;

impl RawForecast {
    /// Summarizes simulated starts, which are sorted. `coverage` is the share of starts that the interval should contain,
    /// and `usual` a usual run time. Returns `None` if there are no starts.
    pub fn new(at: Time, starts: &[Time], coverage: f64, usual: Time) -> Option<Self> {
        let tail = (1.0 - coverage) / 2.0;
        let (middle, high) = (percentile(starts, 0.5)?, percentile(starts, 1.0 - tail)?);
        let p90 = percentile(starts, 0.9)?.min(high);
        Some(Self {
            at,
            low: percentile(starts, tail)?,
            middle,
            high,
            p90_share: match high.since(middle).0 {
                0 => 1.0,
                spread => p90.since(middle).0 as f64 / spread as f64,
            },
            unit: Time((usual.0 as f64 * UNIT_SHARE) as i64 + 1),
        })
    }

    /// Returns a wait on the scale on which errors are compared: that of ratios, where very short waits are all alike.
    fn scaled(&self, at: Time) -> f64 {
        let wait = at.since(self.at).0.max(0) + self.unit.0;
        (wait as f64).ln()
    }

    /// Returns the early end on that scale.
    fn scaled_low(&self) -> f64 {
        let middle = self.scaled(self.middle);
        middle - KEPT_SPREAD * (middle - self.scaled(self.low))
    }

    /// Returns the late end on that scale.
    fn scaled_high(&self) -> f64 {
        let middle = self.scaled(self.middle);
        middle + KEPT_SPREAD * (self.scaled(self.high) - middle)
    }

    fn unscaled(&self, scaled: f64) -> Time {
        let wait = scaled.min(MAX_SCALED).exp() as i64 - self.unit.0;
        self.at + Time(wait.max(0))
    }
}

/// The largest scaled wait: 30 years.
const MAX_SCALED: f64 = 34.5;
/// Number of latest outcomes that count.
const MAX_OUTCOMES: usize = 300;
/// Number of outcomes below which the interval is only widened by a factor of two on both sides.
const MIN_OUTCOMES: usize = 15;
/// Number of later outcomes after which one counts about a third.
const MEMORY: f64 = 100.0;
/// Part of the simulated spread that is kept before errors are added: the rest of it is noise.
const KEPT_SPREAD: f64 = 0.7;
/// Misses at the early end, in half of the allowed ones. Both together exceed two, because a quantile of few outcomes is
/// rounded to the safe side.
const EARLY_MISSES: f64 = 0.8;
/// Misses at the late end, in half of the allowed ones. Waits are skewed: a miss costs more width at this end.
const LATE_MISSES: f64 = 1.6;

/// What became of an earlier forecast.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Its median, scaled.
    horizon: f64,
    /// How much earlier than the early end the job started.
    early: f64,
    /// How much later than the median the job started.
    middle: f64,
    /// How much later than the late end the job started.
    late: f64,
}

/// Errors of earlier forecasts.
#[derive(Debug, Clone)]
pub struct Calibration {
    outcomes: VecDeque<Outcome>,
    /// Share of starts that an interval should contain.
    coverage: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self::new(0.9)
    }
}

impl Calibration {
    /// Returns a calibration without outcomes, for intervals that should contain this share of starts.
    pub fn new(coverage: f64) -> Self {
        Self {
            outcomes: VecDeque::new(),
            coverage,
        }
    }

    /// Returns the number of outcomes that count.
    pub fn outcomes(&self) -> usize {
        self.outcomes.len()
    }

    /// Adds the start time of a job for which there was a forecast.
    pub fn learn(&mut self, forecast: &RawForecast, started: Time) {
        let actual = forecast.scaled(started);
        self.outcomes.push_back(Outcome {
            horizon: forecast.scaled(forecast.middle),
            early: forecast.scaled_low() - actual,
            middle: actual - forecast.scaled(forecast.middle),
            late: actual - forecast.scaled_high(),
        });
        if self.outcomes.len() > MAX_OUTCOMES {
            self.outcomes.pop_front();
        }
    }

    /// Returns the corrected interval. `open` are the forecasts of jobs that have not started yet: where one is overdue,
    /// the error is known to be at least that large.
    pub fn correct<'a>(
        &self,
        forecast: &RawForecast,
        open: impl IntoIterator<Item = &'a RawForecast>,
    ) -> Interval {
        let tail = (1.0 - self.coverage) / 2.0;
        let (early_share, late_share) = (1.0 - EARLY_MISSES * tail, 1.0 - LATE_MISSES * tail);
        let (early, middle, late) = match self.outcomes.len() < MIN_OUTCOMES {
            true => (2f64.ln(), 0.0, 2f64.ln()),
            false => {
                let horizon = forecast.scaled(forecast.middle);
                let mut late = self.weighted(horizon, |outcome| outcome.late);
                let so_far = quantile(&mut late, late_share);
                let overdue = open.into_iter().map(|open| {
                    let error = open.scaled(forecast.at) - open.scaled_high();
                    (error, proximity(open.scaled(open.middle), horizon))
                });
                late.extend(overdue.filter(|(error, _)| *error > so_far));
                (
                    quantile(&mut self.weighted(horizon, |outcome| outcome.early), early_share),
                    quantile(&mut self.weighted(horizon, |outcome| outcome.middle), 0.5),
                    quantile(&mut late, late_share),
                )
            }
        };
        let low = forecast.scaled_low() - early;
        let high = (forecast.scaled_high() + late).max(low);
        let middle = (forecast.scaled(forecast.middle) + middle).clamp(low, high);
        Interval {
            low: forecast.unscaled(low),
            middle: forecast.unscaled(middle),
            p90: forecast.unscaled(middle + (high - middle) * forecast.p90_share),
            high: forecast.unscaled(high),
        }
    }

    /// Returns an error of each outcome with its weight: recent ones count more, and those of similar waits.
    fn weighted(&self, horizon: f64, error: fn(&Outcome) -> f64) -> Vec<(f64, f64)> {
        let ages = (0..self.outcomes.len()).rev();
        let weighted = self.outcomes.iter().zip(ages).map(|(outcome, age)| {
            let recency = (-(age as f64) / MEMORY).exp();
            (error(outcome), recency * proximity(outcome.horizon, horizon))
        });
        weighted.collect()
    }
}

/// Returns the weight of an outcome by how similar the waits are.
fn proximity(a: f64, b: f64) -> f64 {
    (-(a - b).abs()).exp()
}

/// Returns the value below which this share of the weights is, rounded to the safe side.
fn quantile(values: &mut [(f64, f64)], share: f64) -> f64 {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let squares: f64 = values.iter().map(|(_, weight)| weight * weight).sum();
    // With few values, or few that weigh, the largest one is not rare enough.
    let effective = total * total / squares.max(f64::MIN_POSITIVE);
    let target = (share * (1.0 + 1.0 / effective)).min(1.0) * total;
    let mut sum = 0.0;
    for (value, weight) in values.iter() {
        sum += weight;
        if sum >= target * (1.0 - 1e-12) {
            return *value;
        }
    }
    values.last().map_or(0.0, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forecast of a wait of 5 to 20 times `unit_s`, 10 times as the median.
    fn forecast(at_s: i64, unit_s: i64) -> RawForecast {
        let at = Time::from_secs(at_s);
        let starts: Vec<Time> = (5..=20).map(|n| at + Time::from_secs(n * unit_s)).collect();
        let usual = Time::from_secs(unit_s);
        RawForecast {
            middle: at + Time::from_secs(10 * unit_s),
            ..RawForecast::new(at, &starts, 0.9, usual).unwrap()
        }
    }

    fn wait_s(at: Time, forecast: &RawForecast) -> f64 {
        at.since(forecast.at).as_secs_f64()
    }

    #[test]
    fn intervals_widen_until_they_contain_what_happens() {
        let mut calibration = Calibration::default();
        for i in 0..100 {
            // Every fifth job starts three times as late as the end of its interval.
            let wait = if i % 5 == 0 { 60 } else { 10 };
            let forecast = forecast(i * 100, 1);
            calibration.learn(&forecast, forecast.at + Time::from_secs(wait));
        }
        let next = forecast(10_000, 1);
        let interval = calibration.correct(&next, []);
        assert!(wait_s(interval.high, &next) >= 60.0, "{interval:?}");
        assert!(wait_s(interval.low, &next) > 4.0, "{interval:?}");
        assert!(interval.low <= interval.middle && interval.p90 <= interval.high);
    }

    #[test]
    fn intervals_narrow_where_forecasts_are_exact() {
        let mut calibration = Calibration::default();
        for i in 0..100 {
            let forecast = forecast(i * 100, 1);
            calibration.learn(&forecast, forecast.middle);
        }
        let next = forecast(10_000, 1);
        let interval = calibration.correct(&next, []);
        let width = interval.high.since(interval.low).as_secs_f64();
        assert!(width < 0.1, "{interval:?}");
    }

    #[test]
    fn errors_of_hours_do_not_widen_intervals_of_seconds() {
        let mut calibration = Calibration::default();
        for i in 0..200 {
            let (unit_s, late) = if i % 2 == 0 { (1, 1) } else { (3_600, 5) };
            let forecast = forecast(i * 100_000, unit_s);
            let wait = Time::from_secs(10 * unit_s * late);
            calibration.learn(&forecast, forecast.at + wait);
        }
        let next = forecast(100_000_000, 1);
        let interval = calibration.correct(&next, []);
        assert!(wait_s(interval.high, &next) < 12.0, "{interval:?}");
    }

    #[test]
    fn a_job_that_is_overdue_counts_before_it_starts() {
        let mut calibration = Calibration::default();
        for i in 0..30 {
            let forecast = forecast(i * 100, 1);
            calibration.learn(&forecast, forecast.middle);
        }
        let next = forecast(10_000, 1);
        let calm = calibration.correct(&next, []);
        let overdue: Vec<RawForecast> = (0..10).map(|i| forecast(9_000 + i, 1)).collect();
        let alarmed = calibration.correct(&next, &overdue);
        assert!(alarmed.high.since(next.at).0 > 10 * calm.high.since(next.at).0);
        assert_eq!(alarmed.low, calm.low);
    }

    #[test]
    fn without_outcomes_an_interval_is_twice_as_wide_on_both_sides() {
        let next = forecast(0, 100);
        let interval = Calibration::default().correct(&next, []);
        assert!(interval.low < next.low && interval.high > next.high);
        assert!(wait_s(interval.high, &next) < 4_000.0, "{interval:?}");
    }
}
