//! Snapshots of a live cluster for forecasts, so that simulations do not block the driver.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use dovetail_cluster::JobId;
use dovetail_cluster::state::{Attempt, ClusterState, End, EstimateSource, JobRecord, JobState};
use dovetail_engine::Engine;
use dovetail_model::{Event, JobKey, Time, Work};
use dovetail_sim::SimConfig;

use crate::calibration::RawForecast;
use crate::error::ForecastError;
use crate::history::{History, JobTraits, MAX_FINISHED, ObservedJob};
use crate::neighbours::{SubmittedJob, neighbours};
use crate::outlook::{Arrival, JobHint, Limits, MAX_ARRIVALS, Outlook};

/// Number of simulations that are needed for a forecast.
const MIN_SAMPLES: usize = 12;
/// Number of finished jobs that are needed for a forecast, unless the queue and all running jobs have estimates.
const MIN_FINISHED: usize = 8;
/// Number of attempts from which the duration of a restart is computed.
const MAX_RESTARTS: usize = 100;

/// The state of a cluster at one time, and what is known about its jobs.
#[derive(Debug)]
pub struct ForecastSnapshot {
    engine: Engine,
    first_new: JobKey,
    config: SimConfig,
    observed: Vec<ObservedJob>,
    submitted: Vec<SubmittedJob>,
    arrivals: Vec<Arrival>,
    hints: BTreeMap<JobKey, JobHint>,
    is_paused: bool,
    /// Handles and states of unfinished jobs.
    jobs: BTreeMap<JobId, (Option<JobKey>, JobState)>,
    outlook: OnceLock<Outlook>,
}

impl ForecastSnapshot {
    /// Copies what a forecast needs of a cluster, at a time that is not before its last fact.
    pub fn new(state: &ClusterState, now: Time) -> Self {
        let mut engine = state.engine().clone();
        engine.handle(now.max(engine.now()), Event::Wake);
        let recent: Vec<&JobRecord> = state.jobs().rev().take(MAX_FINISHED).collect();
        let hint = |job: &JobRecord| Some((job.job_key()?, hint(job)));
        let job = |job: &JobRecord| (job.id, (job.job_key(), job.state.clone()));
        Self {
            first_new: state.next_job_key(),
            config: SimConfig {
                restart_cost: restart_cost(&recent),
                saves_on_stop: false,
                ..SimConfig::of_engine(&engine)
            },
            observed: recent.iter().filter_map(|job| observed(job, now)).collect(),
            submitted: recent.iter().rev().map(|job| submitted(job)).collect(),
            arrivals: arrivals(state, &recent),
            hints: state.unfinished_jobs().filter_map(hint).collect(),
            is_paused: state.is_paused(),
            jobs: state.unfinished_jobs().map(job).collect(),
            engine,
            outlook: OnceLock::new(),
        }
    }

    /// Returns what follows from the copies. It is computed once, and not while the cluster state is locked.
    fn outlook(&self) -> &Outlook {
        self.outlook.get_or_init(|| Outlook {
            engine: self.engine.clone(),
            first_new: self.first_new,
            config: self.config.clone(),
            history: History::new(self.observed.clone()),
            arrivals: self.arrivals.clone(),
            hints: self.hints.clone(),
            neighbours: neighbours(&self.submitted),
        })
    }

    /// Returns when the snapshot was taken.
    pub fn now(&self) -> Time {
        self.engine.now()
    }

    /// Returns a description of the data that run times are drawn from.
    pub fn based_on(&self) -> String {
        match self.outlook().history.finished() {
            1 => "run times of 1 finished job".to_owned(),
            finished => format!("run times of the last {finished} finished jobs"),
        }
    }

    /// Forecasts the start of a queued job, without calibration. Returns the number of simulations, too.
    ///
    /// # Errors
    /// If there is no forecast.
    pub fn forecast(&self, id: JobId, limits: &Limits) -> Result<(RawForecast, u32), ForecastError> {
        let (job_key, state) = self.jobs.get(&id).ok_or(ForecastError::NotPending)?;
        check_state(state)?;
        if self.is_paused {
            return Err(ForecastError::Paused);
        }
        let job_key = job_key.ok_or(ForecastError::NotQueued)?;
        let history = &self.outlook().history;
        if history.finished() < MIN_FINISHED && !self.has_estimates() {
            return Err(ForecastError::TooFewJobs {
                finished: history.finished(),
                needed: MIN_FINISHED,
            });
        }
        let starts = self.outlook().starts(job_key, id, limits);
        if starts.at.len() + (starts.never as usize) < MIN_SAMPLES {
            return Err(ForecastError::QueueTooLong);
        }
        if starts.never as usize * 10 > starts.at.len() {
            return Err(match starts.is_limited {
                true => ForecastError::QueueTooLong,
                false => ForecastError::BeyondHorizon,
            });
        }
        let usual = Time(i64::try_from(history.median().0).unwrap_or(i64::MAX));
        let raw = RawForecast::new(self.now(), &starts.at, 0.9, usual).ok_or(ForecastError::NoResult)?;
        Ok((raw, starts.at.len() as u32))
    }

    /// Returns whether the run times of all unfinished jobs are stated or reported.
    fn has_estimates(&self) -> bool {
        let is_known = |hint: &JobHint| hint.expected.is_some() || hint.reported.is_some();
        self.hints.values().all(is_known)
    }
}

/// Checks that a job in this state is queued.
fn check_state(state: &JobState) -> Result<(), ForecastError> {
    match state {
        JobState::Queued => Ok(()),
        JobState::Held(_) => Err(ForecastError::NotQueued),
        _ => Err(ForecastError::NotPending),
    }
}

/// Checks whether there can be a forecast of the start of a job.
///
/// # Errors
/// If the job is not queued.
pub fn check_queued(state: &ClusterState, id: JobId) -> Result<(), ForecastError> {
    let record = state.job(id).ok_or(ForecastError::UnknownJob)?;
    check_state(&record.state)
}

fn traits(job: &JobRecord) -> JobTraits {
    JobTraits {
        user: job.user.clone(),
        name: job.request.name.clone(),
        tenant: job.request.tenant.clone(),
        gpus: job.request.gpus,
    }
}

fn stated(job: &JobRecord) -> Option<Work> {
    let expected = job.request.expected;
    expected.map(|span| Work(span.0.max(0).unsigned_abs()))
}

fn hint(job: &JobRecord) -> JobHint {
    let estimate = job.estimate();
    let steps = estimate.filter(|estimate| estimate.source == EstimateSource::Steps);
    let step_time = job.progress.step_time;
    let checkpoints = job.progress.checkpoint > 0 && step_time > Time::ZERO;
    JobHint {
        traits: traits(job),
        reported: steps.map(|estimate| estimate.expected),
        expected: stated(job),
        time_limit: job.request.time_limit,
        // A job that reports its steps and has a checkpoint writes another one when it is told to stop.
        checkpoint: checkpoints.then_some(step_time),
    }
}

/// Returns the run time of a job that has finished. Attempts before the last one count only if it resumed from a checkpoint.
fn finished_work(job: &JobRecord) -> Option<Work> {
    let JobState::Ended(End::Completed | End::Failed { .. } | End::TimeLimit) = &job.state else {
        return None;
    };
    let lost = match job.progress.checkpoint {
        0 => job.attempts.len().saturating_sub(1),
        _ => 0,
    };
    let span = |a: &Attempt| a.until.unwrap_or(job.since).since(a.since).0;
    let span: i64 = job.attempts.iter().skip(lost).map(span).sum();
    (span > 0).then_some(Work(span.unsigned_abs()))
}

/// Returns a job that has started, with its run time so far.
fn observed(job: &JobRecord, now: Time) -> Option<ObservedJob> {
    let started = job.attempts.first()?.since;
    let (work, is_finished) = match finished_work(job) {
        Some(work) => (work, true),
        None => {
            let runs = job
                .attempt()
                .filter(|a| a.until.is_none() && !job.state.has_ended())?;
            (Work(now.since(runs.since).0.max(0).unsigned_abs()), false)
        }
    };
    Some(ObservedJob {
        traits: traits(job),
        started,
        work,
        is_finished,
        expected: stated(job),
    })
}

fn submitted(job: &JobRecord) -> SubmittedJob {
    SubmittedJob {
        key: job.job_key().filter(|_| !job.state.has_ended()),
        submitted: job.submitted,
        traits: traits(job),
        work: finished_work(job),
    }
}

/// Returns the latest jobs that were queued, oldest first.
fn arrivals(state: &ClusterState, recent: &[&JobRecord]) -> Vec<Arrival> {
    let queued = recent
        .iter()
        .filter(|job| !matches!(job.state, JobState::Held(_)));
    let mut jobs: Vec<&JobRecord> = queued.copied().take(MAX_ARRIVALS).collect();
    jobs.reverse();
    let specs = state.specs(jobs.iter().copied());
    let arrival = |(job, spec): (&&JobRecord, _)| Arrival {
        spec,
        hint: JobHint {
            reported: None,
            ..hint(job)
        },
        work: finished_work(job),
    };
    jobs.iter().zip(specs).map(arrival).collect()
}

/// Returns the median time from the launch of an attempt to its progress.
fn restart_cost(recent: &[&JobRecord]) -> Time {
    let attempts = recent.iter().flat_map(|job| job.attempts.iter());
    let starting = attempts.filter_map(|attempt| Some(attempt.running_since?.since(attempt.since)));
    let mut times: Vec<Time> = starting.take(MAX_RESTARTS).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Time::ZERO)
}
