//! Forecasts of when queued gangs start. They are computed on a thread of their own, for the first jobs of the queue and for a
//! limited time, so that scheduling never waits for them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_cluster::{Handle, JobId};
use dovetail_forecast::{Eta, Forecaster};
use dovetail_kubeapi::seconds_time;
use dovetail_model::Time;

/// Number of jobs with a forecast, from the front of the queue.
const FIRST_JOBS: usize = 16;
/// Time after which no further job is forecast.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// A forecast is kept while it is off by less than this.
const TOLERANCE: Time = Time::from_secs(60);

/// Forecasts of when queued jobs start.
#[derive(Debug, Default)]
pub(crate) struct StartForecasts {
    forecaster: Forecaster,
    current: Mutex<BTreeMap<JobId, StartTimes>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StartTimes {
    p50: Time,
    p90: Time,
}

impl StartForecasts {
    /// Computes the forecasts again. The cluster state is locked only while it is copied.
    pub(crate) fn update(&self, handle: &Handle) {
        let copied = handle.read(|state| {
            let queue = state.queue();
            let first: Vec<JobId> = queue.iter().take(FIRST_JOBS).map(|job| job.id).collect();
            (!first.is_empty()).then(|| (self.forecaster.look(state), first))
        });
        let Some((prospect, first)) = copied else {
            return self.current().clear();
        };
        let started = Instant::now();
        let mut found = BTreeMap::new();
        for job in first {
            if started.elapsed() > TIME_LIMIT {
                break;
            }
            if let Ok(eta) = self.forecaster.eta(&prospect, job) {
                found.insert(job, eta);
            }
        }
        let mut current = self.current();
        current.retain(|job, _| found.contains_key(job));
        for (job, eta) in found {
            let before = current.get(&job).copied();
            current.insert(job, steady(before, &eta, prospect.now()));
        }
    }

    /// Returns the message for each job. It has points in time, which change less often than durations.
    pub(crate) fn messages(&self) -> BTreeMap<JobId, String> {
        let message = |times: &StartTimes| {
            format!(
                "expected to start at {}, with 90% probability before {}",
                seconds_time(times.p50.0),
                seconds_time(times.p90.0)
            )
        };
        let current = self.current();
        current
            .iter()
            .map(|(job, times)| (*job, message(times)))
            .collect()
    }

    fn current(&self) -> MutexGuard<'_, BTreeMap<JobId, StartTimes>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the previous forecast if it is close enough: each change is a request for each pod.
fn steady(before: Option<StartTimes>, eta: &Eta, now: Time) -> StartTimes {
    let whole_seconds = |time: Time| Time(time.0 - time.0.rem_euclid(1_000_000));
    let new = StartTimes {
        p50: whole_seconds(eta.p50),
        p90: whole_seconds(eta.p90),
    };
    let is_close = |old: Time, new: Time| {
        let tolerance = TOLERANCE.max(Time(old.since(now).0 / 4));
        (old.0 - new.0).abs() <= tolerance.0 && old > now
    };
    match before {
        Some(old) if is_close(old.p50, new.p50) && is_close(old.p90, new.p90) => old,
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eta(p50: i64, p90: i64) -> Eta {
        let (p50, p90) = (Time::from_secs(p50), Time::from_secs(p90));
        Eta {
            p5: p50,
            p50,
            p90,
            p95: p90,
            p5_s: 0.0,
            p50_s: 0.0,
            p90_s: 0.0,
            p95_s: 0.0,
            samples: 60,
            outcomes: 0,
            based_on: String::new(),
        }
    }

    #[test]
    fn a_forecast_stays_while_it_is_close() {
        let now = Time::from_secs(1000);
        let first = steady(None, &eta(1600, 2000), now);
        assert_eq!(first.p50, Time::from_secs(1600));
        assert_eq!(
            steady(Some(first), &eta(1700, 2100), now),
            first,
            "within a quarter of ten minutes"
        );
        assert_ne!(steady(Some(first), &eta(1800, 2100), now), first);
        let late = Time::from_secs(1601);
        assert_ne!(
            steady(Some(first), &eta(1602, 2000), late),
            first,
            "the moment has passed"
        );
    }
}
