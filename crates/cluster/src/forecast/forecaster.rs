//! Forecasts with calibration: start times of earlier forecasts improve the next ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dovetail_model::Time;

use super::{Calibration, Eta, ForecastError, ForecastSnapshot};
use crate::JobId;
use crate::state::ClusterState;

/// Largest number of forecasts whose jobs have not started yet.
const MAX_OPEN: usize = 1_000;

#[derive(Debug, Default)]
struct Inner {
    calibration: Calibration,
    /// First forecast for each job that has not started, with its time.
    open: BTreeMap<JobId, (Time, Eta)>,
}

/// Makes forecasts, and remembers them for calibration.
#[derive(Debug, Default)]
pub struct Forecaster {
    inner: Mutex<Inner>,
}

impl Forecaster {
    /// Takes a snapshot for [`Forecaster::eta`], and learns from jobs that have started. The state is not needed
    /// afterwards.
    pub fn look(&self, state: &ClusterState) -> ForecastSnapshot {
        self.inner().learn(state);
        state.forecast_snapshot()
    }

    /// Returns when a job starts.
    ///
    /// # Errors
    /// If there is no forecast.
    pub fn eta(&self, snapshot: &ForecastSnapshot, id: JobId) -> Result<Eta, ForecastError> {
        let raw = snapshot.forecast(id)?;
        let mut inner = self.inner();
        if inner.open.len() < MAX_OPEN {
            let forecast = || (snapshot.now(), raw.clone());
            inner.open.entry(id).or_insert_with(forecast);
        }
        snapshot.corrected(&raw, &inner.calibration)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Learns from jobs that have started since their forecast.
    fn learn(&mut self, state: &ClusterState) {
        let Self { calibration, open } = self;
        open.retain(|id, (at, eta)| {
            let Some(job) = state.job(*id) else {
                return false;
            };
            let started = job.attempts.iter().map(|a| a.since).find(|since| since >= at);
            if let Some(started) = started {
                calibration.learn(*at, eta, started);
            }
            started.is_none() && !job.state.has_ended()
        });
    }
}
