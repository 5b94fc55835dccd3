//! The result of an evaluation.

use dovetail_model::Time;
use dovetail_sim::SimConfig;
use dovetail_workload::Workload;
use serde::{Deserialize, Serialize};

use crate::calibration::{Interval, RawForecast};

/// A way to forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Simulations of the present state.
    Simulation,
    /// Waits of earlier jobs with as many GPUs.
    PastWaits,
}

impl Method {
    pub(super) const ALL: [Self; 2] = [Self::Simulation, Self::PastWaits];
}

/// The intervals of one forecast, and the real start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    at: Time,
    /// When the job started.
    pub(super) start: Time,
    /// By method, before and after the correction.
    intervals: [[(Time, Time); 2]; 2],
}

impl Judged {
    pub(super) fn new(at: Time, raw: [RawForecast; 2], corrected: [Interval; 2]) -> Self {
        let pair = |i: usize| [(raw[i].low, raw[i].high), (corrected[i].low, corrected[i].high)];
        Self {
            at,
            start: at,
            intervals: [pair(0), pair(1)],
        }
    }
}

/// How good the intervals of one method are.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MethodResult {
    /// Share of starts within the interval.
    pub coverage: f64,
    /// Share of starts before the interval.
    pub early: f64,
    /// Share of starts after the interval.
    pub late: f64,
    /// Median width of the intervals, in seconds.
    pub median_width_s: f64,
}

/// How good forecasts are on one trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The trace.
    pub trace: String,
    /// The policy.
    pub policy: String,
    /// Number of GPUs of the cluster.
    pub gpus: u32,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of jobs that wait after their submission.
    pub waiting: usize,
    /// Number of forecasts that are compared with the real start.
    pub forecasts: usize,
    /// Median wait of these jobs, in seconds.
    pub median_wait_s: f64,
    /// The forecast.
    pub forecast: MethodResult,
    /// The forecast before its correction by earlier errors.
    pub uncorrected: MethodResult,
    /// Quantiles of the waits of all earlier jobs with as many GPUs.
    pub past_waits: MethodResult,
    /// The same, with the correction that the forecast has.
    pub past_waits_corrected: MethodResult,
    /// Median width of the forecast divided by that of past waits.
    pub width_ratio: f64,
    /// Median width of the forecast divided by that of corrected past waits.
    pub width_ratio_corrected: f64,
}

impl Evaluation {
    pub(super) fn new(
        workload: &Workload,
        policy: &str,
        config: &SimConfig,
        waiting: usize,
        judged: &[Judged],
    ) -> Self {
        let result = |method: Method, is_corrected: bool| {
            let interval = |j: &Judged| j.intervals[method as usize][usize::from(is_corrected)];
            rate(judged, interval)
        };
        let forecast = result(Method::Simulation, true);
        let past_waits = result(Method::PastWaits, false);
        let past_waits_corrected = result(Method::PastWaits, true);
        let ratio = |other: MethodResult| match other.median_width_s > 0.0 {
            true => forecast.median_width_s / other.median_width_s,
            false => 0.0,
        };
        Self {
            trace: workload.source.clone(),
            policy: policy.to_owned(),
            gpus: config.cluster.gpus(),
            jobs: workload.jobs.len(),
            waiting,
            forecasts: judged.len(),
            median_wait_s: median(judged.iter().map(|j| j.start.since(j.at).as_secs_f64())),
            forecast,
            uncorrected: result(Method::Simulation, false),
            past_waits,
            past_waits_corrected,
            width_ratio: ratio(past_waits),
            width_ratio_corrected: ratio(past_waits_corrected),
        }
    }
}

fn rate(judged: &[Judged], interval: impl Fn(&Judged) -> (Time, Time)) -> MethodResult {
    let share = |is_so: &dyn Fn(&Judged) -> bool| {
        let count = judged.iter().filter(|j| is_so(j)).count();
        count as f64 / judged.len().max(1) as f64
    };
    let early = share(&|j| j.start < interval(j).0);
    let late = share(&|j| j.start > interval(j).1);
    let width = |j: &Judged| {
        let (low, high) = interval(j);
        high.since(low).as_secs_f64()
    };
    MethodResult {
        coverage: 1.0 - early - late,
        early,
        late,
        median_width_s: median(judged.iter().map(width)),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
