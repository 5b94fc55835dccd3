//! Snapshots of the cluster state for forecasts, so that simulations do not block the driver.

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Job};
use dovetail_model::{JobKey, JobSpec, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::run_times::MAX_ARRIVALS;
use super::{Arrivals, Calibration, Eta, ForecastError, RunTimes, Sampler, first_starts, interval};
use crate::JobId;
use crate::state::{ClusterState, JobRecord, JobState};

/// Number of simulations.
const SAMPLES: u32 = 60;
/// Number of simulations that are needed for a forecast.
const MIN_SAMPLES: usize = 12;
/// Number of finished jobs that are needed for a forecast.
const MIN_FINISHED: usize = 8;

/// The state of a cluster at one time, with the run times of its finished jobs.
#[derive(Debug, Clone)]
pub struct ForecastSnapshot {
    engine: Engine,
    now: Time,
    is_paused: bool,
    run_times: RunTimes,
    arrivals: Vec<(Time, JobSpec)>,
    /// Unfinished jobs by the engine's handle.
    hints: BTreeMap<JobKey, RunTimeHint>,
    /// Handles and states of unfinished jobs.
    jobs: BTreeMap<JobId, (Option<JobKey>, JobState)>,
    /// Handle of the next job.
    next: JobKey,
}

/// What is known about the run time of a job.
#[derive(Debug, Clone)]
struct RunTimeHint {
    user: String,
    name: String,
    gpus: u32,
    /// Remaining microseconds by the job's own progress reports.
    remaining: Option<f64>,
    expected: Option<Time>,
    time_limit: Option<Time>,
}

impl RunTimeHint {
    fn new(record: &JobRecord) -> Self {
        let progress = &record.progress;
        let is_reported = progress.total > progress.step && progress.step > 0 && progress.step_time.0 > 0;
        let remaining = || (progress.total - progress.step) as f64 * progress.step_time.0 as f64;
        Self {
            user: record.user.clone(),
            name: record.request.name.clone(),
            gpus: record.request.gpus,
            remaining: is_reported.then(remaining),
            expected: record.request.expected,
            time_limit: record.request.time_limit,
        }
    }
}

impl ForecastSnapshot {
    /// Takes a snapshot of a cluster.
    pub(crate) fn new(state: &ClusterState) -> Self {
        let hint = |job: &JobRecord| Some((job.job_key?, RunTimeHint::new(job)));
        let job = |job: &JobRecord| (job.id, (job.job_key, job.state.clone()));
        Self {
            engine: state.engine().clone(),
            now: state.now(),
            is_paused: state.is_paused(),
            run_times: RunTimes::of_cluster(state),
            arrivals: recent_arrivals(state),
            hints: state.unfinished_jobs().filter_map(hint).collect(),
            jobs: state.unfinished_jobs().map(job).collect(),
            next: state.scheduler().next_key(),
        }
    }

    /// Returns when the snapshot was taken.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Forecasts the start of a queued job, without calibration.
    ///
    /// # Errors
    /// If there is no forecast.
    pub fn forecast(&self, id: JobId) -> Result<Eta, ForecastError> {
        let (job_key, state) = self.jobs.get(&id).ok_or(ForecastError::NotPending)?;
        check_queued(state)?;
        if self.is_paused {
            return Err(ForecastError::Paused);
        }
        let job_key = job_key.ok_or(ForecastError::NotQueued)?;
        if self.run_times.len() < MIN_FINISHED {
            return Err(ForecastError::TooFewJobs {
                finished: self.run_times.len(),
                needed: MIN_FINISHED,
            });
        }
        let mut sampler = SnapshotSampler {
            snapshot: self,
            arrivals: Arrivals::new(self.arrivals.clone()),
            seed: id,
            rng: ChaCha8Rng::seed_from_u64(id),
        };
        let keys = (job_key, self.next);
        let (starts, never) = first_starts(&self.engine, self.now, keys, SAMPLES, &mut sampler);
        if starts.len() + (never as usize) < MIN_SAMPLES {
            return Err(ForecastError::QueueTooLong);
        }
        if never as usize * 10 > starts.len() {
            return Err(ForecastError::BeyondHorizon);
        }
        interval(self.now, starts, self.run_times.based_on()).ok_or(ForecastError::NoResult)
    }

    /// Corrects a forecast by the start times of earlier ones.
    ///
    /// # Errors
    /// If the corrected interval is too wide.
    pub fn corrected(&self, eta: &Eta, calibration: &Calibration) -> Result<Eta, ForecastError> {
        let eta = calibration.correct(self.now, eta);
        match eta.is_useful(self.now) {
            true => Ok(eta),
            false => Err(ForecastError::TooUncertain {
                earliest: eta.p5.since(self.now),
                latest: eta.p95.since(self.now),
            }),
        }
    }
}

/// Checks that a job in this state is queued.
pub(crate) fn check_queued(state: &JobState) -> Result<(), ForecastError> {
    match state {
        JobState::Queued => Ok(()),
        JobState::Held(_) => Err(ForecastError::NotQueued),
        _ => Err(ForecastError::NotPending),
    }
}

/// Returns the latest jobs and when they were submitted, oldest first.
fn recent_arrivals(state: &ClusterState) -> Vec<(Time, JobSpec)> {
    let mut names = state.scheduler().names().clone();
    let jobs = state.jobs().rev();
    let recent = jobs.filter(|job| !matches!(job.state, JobState::Held(_)));
    let arrival = |job: &JobRecord| {
        let spec = names.spec(&job.user, &job.request, job.submitted, JobKey(0));
        (job.submitted, spec)
    };
    let mut arrivals: Vec<(Time, JobSpec)> = recent.take(MAX_ARRIVALS).map(arrival).collect();
    arrivals.reverse();
    arrivals
}

struct SnapshotSampler<'a> {
    snapshot: &'a ForecastSnapshot,
    arrivals: Arrivals,
    seed: u64,
    rng: ChaCha8Rng,
}

impl Sampler for SnapshotSampler<'_> {
    fn restart(&mut self, sample: u32) {
        self.rng = ChaCha8Rng::seed_from_u64(self.seed << 16 ^ u64::from(sample));
        self.arrivals.restart(&mut self.rng);
    }

    fn next_arrival(&mut self) -> Option<(Time, JobSpec)> {
        self.arrivals.next_arrival()
    }

    fn draw_remaining(&mut self, job: &Job, elapsed: Time) -> Time {
        let run_times = &self.snapshot.run_times;
        let Some(hint) = self.snapshot.hints.get(&job.spec.id) else {
            // A job that arrives during the simulation.
            return run_times.draw_remaining(("", "", job.spec.gpus), elapsed, &mut self.rng);
        };
        let remaining = if let Some(remaining) = hint.remaining {
            Time((remaining * self.rng.random_range(0.9..1.2)) as i64)
        } else if let Some(expected) = hint.expected.filter(|e| *e > elapsed) {
            Time((expected.0 as f64 * self.rng.random_range(0.8..1.25)) as i64 - elapsed.0)
        } else {
            let like = (hint.user.as_str(), hint.name.as_str(), hint.gpus);
            run_times.draw_remaining(like, elapsed, &mut self.rng)
        };
        match hint.time_limit {
            Some(limit) => remaining.min(Time(limit.0 - elapsed.0)),
            None => remaining,
        }
    }
}
