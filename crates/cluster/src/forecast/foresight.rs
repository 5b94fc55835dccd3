//! What was said of starts, and how they came: so that what is said next is nearer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dovetail_model::Time;

use super::{Calibration, Eta, ForecastSnapshot};
use crate::JobId;
use crate::state::ClusterState;

/// Jobs of which something was said and that have not started yet, at most.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
struct Inner {
    calibration: Calibration,
    /// What was said first of each job, and when.
    said: BTreeMap<JobId, (Time, Eta)>,
}

/// The record of what was said.
#[derive(Debug, Default)]
pub struct Forecaster {
    inner: Mutex<Inner>,
}

impl Forecaster {
    /// The present state, after a look at how things came that were foretold before. The book is needed no longer than this.
    pub fn look(&self, state: &ClusterState) -> ForecastSnapshot {
        self.inner().look_back(state);
        state.forecast_snapshot()
    }

    /// When the job starts, or why nothing is said.
    ///
    /// # Errors
    /// Says why nothing is said.
    pub fn eta(&self, prospect: &ForecastSnapshot, no: JobId) -> Result<Eta, String> {
        let raw = prospect.forecast(no)?;
        let mut inner = self.inner();
        if inner.said.len() < MOST {
            inner
                .said
                .entry(no)
                .or_insert_with(|| (prospect.now(), raw.clone()));
        }
        prospect.corrected(&raw, &inner.calibration)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Learns from jobs that have started since.
    fn look_back(&mut self, state: &ClusterState) {
        let Self { calibration, said } = self;
        said.retain(|no, (at, eta)| {
            let Some(job) = state.job(*no) else {
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
