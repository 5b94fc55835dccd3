//! Calibration: shifts and widens an interval so that it would have contained the start times of earlier forecasts.

use std::collections::VecDeque;

use dovetail_model::Time;

use super::Eta;

/// Errors of earlier forecasts, each as the logarithm of a ratio.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    errors: VecDeque<ForecastDeviation>,
}

#[derive(Debug, Clone, Copy)]
struct ForecastDeviation {
    /// How much earlier than the early end the job started.
    early: f64,
    /// How much later than the median the job started.
    middle: f64,
    /// How much later than the late end the job started.
    late: f64,
}

/// Number of latest forecasts that count.
const MAX_ERRORS: usize = 80;
/// Number of errors below which the interval is only widened by a factor of two on both sides.
const MIN_ERRORS: usize = 20;
/// Seconds that are added to all waits, so that ratios of short ones do not matter.
const OFFSET_S: f64 = 60.0;

fn log(now: Time, at: Time) -> f64 {
    (at.since(now).as_secs_f64().max(0.0) + OFFSET_S).ln()
}

fn unlog(now: Time, log: f64) -> Time {
    now + Time::from_secs_f64((log.exp() - OFFSET_S).clamp(0.0, 1e9))
}

/// Returns the value below which this share of the values is, rounded to the safe side.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (share * (values.len() as f64 + 1.0)).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1]
}

impl Calibration {
    /// Adds the start time of a job for which there was a forecast, before its correction.
    pub fn learn(&mut self, forecast_at: Time, forecast: &Eta, started: Time) {
        let actual = log(forecast_at, started);
        self.errors.push_back(ForecastDeviation {
            early: log(forecast_at, forecast.p5) - actual,
            middle: actual - log(forecast_at, forecast.p50),
            late: actual - log(forecast_at, forecast.p95),
        });
        if self.errors.len() > MAX_ERRORS {
            self.errors.pop_front();
        }
    }

    /// Returns the corrected forecast.
    pub fn correct(&self, now: Time, forecast: &Eta) -> Eta {
        let all = |part: fn(&ForecastDeviation) -> f64| self.errors.iter().map(part).collect::<Vec<f64>>();
        let (early, middle, late) = match self.errors.len() < MIN_ERRORS {
            true => (2f64.ln(), 0.0, 2f64.ln()),
            false => (
                quantile(all(|e| e.early), 0.95),
                quantile(all(|e| e.middle), 0.5),
                quantile(all(|e| e.late), 0.95),
            ),
        };
        let low = log(now, forecast.p5) - early;
        let high = (log(now, forecast.p95) + late).max(low);
        let middle = (log(now, forecast.p50) + middle).clamp(low, high);
        // The 90th percentile is interpolated between the median and the late end.
        let p90 = middle + (high - middle) * 0.78;
        let (p50, p90) = (unlog(now, middle), unlog(now, p90));
        Eta {
            p5: unlog(now, low),
            p50,
            p90,
            p95: unlog(now, high),
            p50_s: p50.since(now).as_secs_f64(),
            p90_s: p90.since(now).as_secs_f64(),
            ..forecast.clone()
        }
    }
}
