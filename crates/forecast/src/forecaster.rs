//! Forecasts for a live cluster, with calibration: start times of earlier forecasts improve the next ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dovetail_cluster::state::ClusterState;
use dovetail_cluster::{Handle, JobId};
use dovetail_model::Time;

use crate::calibration::{Calibration, Interval, RawForecast};
use crate::error::ForecastError;
use crate::eta::Eta;
use crate::outlook::Limits;
use crate::snapshot::ForecastSnapshot;

/// Largest number of forecasts whose jobs have not started yet.
const MAX_OPEN: usize = 1_000;
/// Time between two looks at the queue for jobs without a forecast.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Time between two checks whether the forecaster was dropped.
const WATCH_STEP: Duration = Duration::from_millis(100);
/// Number of jobs that get a forecast at one look, so that there are outcomes to learn from.
const WATCH_JOBS: usize = 4;
/// The watch sleeps this many times as long as its last look took.
const WATCH_REST: u32 = 10;

#[derive(Debug, Default)]
struct Inner {
    calibration: Calibration,
    /// First forecast for each job that has not started.
    open: BTreeMap<JobId, RawForecast>,
}

/// Makes forecasts, and remembers them for calibration.
#[derive(Debug, Default)]
pub struct Forecaster {
    inner: Mutex<Inner>,
    limits: Limits,
}

/// Returns the current time.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Forecaster {
    /// Returns a forecaster that also makes forecasts for queued jobs that no client asks about, on a thread of its own, so
    /// that it has outcomes to learn from. The thread ends when the forecaster is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watching(handle: Handle) -> std::io::Result<Arc<Self>> {
        let forecaster = Arc::new(Self::default());
        let weak = Arc::downgrade(&forecaster);
        let thread = std::thread::Builder::new().name("forecast".to_owned());
        thread.spawn(move || watch(&weak, &handle))?;
        Ok(forecaster)
    }

    /// Takes a snapshot for [`Forecaster::eta`] at the current time, and learns from jobs that have started. The state is
    /// not needed afterwards.
    pub fn look(&self, state: &ClusterState) -> ForecastSnapshot {
        self.inner().learn(state);
        ForecastSnapshot::new(state, now())
    }

    /// Returns when a job starts.
    ///
    /// # Errors
    /// If there is no forecast.
    pub fn eta(&self, snapshot: &ForecastSnapshot, id: JobId) -> Result<Eta, ForecastError> {
        let (raw, samples) = snapshot.forecast(id, &self.limits)?;
        let mut inner = self.inner();
        if inner.open.len() < MAX_OPEN {
            inner.open.entry(id).or_insert(raw);
        }
        let others = inner.open.iter().filter(|(other, _)| **other != id);
        let interval = inner.calibration.correct(&raw, others.map(|(_, open)| open));
        check_useful(&raw, &interval)?;
        let outcomes = inner.calibration.outcomes() as u32;
        Ok(eta(snapshot, &interval, samples, outcomes))
    }

    /// Makes forecasts for queued jobs that have none.
    fn forecast_queued(&self, handle: &Handle) {
        let copied = handle.read(|state| {
            let mut inner = self.inner();
            inner.learn(state);
            let queue = state.queue().into_iter();
            let new: Vec<JobId> = queue
                .map(|job| job.id)
                .filter(|id| !inner.open.contains_key(id))
                .take(WATCH_JOBS)
                .collect();
            (!new.is_empty()).then(|| (ForecastSnapshot::new(state, now()), new))
        });
        let Some((snapshot, new)) = copied else { return };
        for id in new {
            // A job without a forecast is asked about again at the next look.
            drop(self.eta(&snapshot, id));
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watch(weak: &Weak<Forecaster>, handle: &Handle) {
    while let Some(forecaster) = weak.upgrade() {
        let begun = Instant::now();
        forecaster.forecast_queued(handle);
        drop(forecaster);
        let rest = WATCH_EVERY.max(begun.elapsed() * WATCH_REST);
        let begun = Instant::now();
        // In short steps, so that the thread ends soon after the forecaster.
        while begun.elapsed() < rest && weak.strong_count() > 0 {
            std::thread::sleep(WATCH_STEP);
        }
    }
}

fn eta(snapshot: &ForecastSnapshot, interval: &Interval, samples: u32, outcomes: u32) -> Eta {
    let seconds = |at: Time| at.since(snapshot.now()).as_secs_f64();
    Eta {
        p5: interval.low,
        p50: interval.middle,
        p90: interval.p90,
        p95: interval.high,
        p5_s: seconds(interval.low),
        p50_s: seconds(interval.middle),
        p90_s: seconds(interval.p90),
        p95_s: seconds(interval.high),
        samples,
        outcomes,
        based_on: snapshot.based_on(),
    }
}

/// Checks that the interval is narrow enough to be useful: one from minutes to days is not.
fn check_useful(raw: &RawForecast, interval: &Interval) -> Result<(), ForecastError> {
    let (earliest, latest) = (interval.low.since(raw.at), interval.high.since(raw.at));
    let (early_s, late_s) = (earliest.as_secs_f64(), latest.as_secs_f64());
    match late_s - early_s < 3_600.0 || late_s < 30.0 * early_s.max(60.0) {
        true => Ok(()),
        false => Err(ForecastError::TooUncertain { earliest, latest }),
    }
}

impl Inner {
    /// Learns from jobs that have started since their forecast, in the order in which they did.
    fn learn(&mut self, state: &ClusterState) {
        let mut outcomes = Vec::new();
        self.open.retain(|id, forecast| {
            let Some(job) = state.job(*id) else {
                return false;
            };
            let started = job.attempts.iter().map(|a| a.since);
            let started = started.into_iter().find(|since| *since >= forecast.at);
            outcomes.extend(started.map(|started| (started, *forecast)));
            started.is_none() && !job.state.has_ended()
        });
        outcomes.sort_by_key(|(started, _)| *started);
        for (started, forecast) in &outcomes {
            self.calibration.learn(forecast, *started);
        }
    }
}
