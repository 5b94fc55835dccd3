//! How much work a job is, and how much of it is done: from what its user stated, from its steps, or from other jobs.

use dovetail_model::{Event, JobKey, JobProfile, Rate, Scaling, Time, Work};
use serde::{Deserialize, Serialize};

use super::lifecycle::JobLifecycle;
use super::record::{JobRecord, Progress};
use crate::stage_report::StageReport;
use crate::state::learning;
use crate::{AttemptId, JobId};

/// Where an estimate of the run time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimateSource {
    /// The user stated it.
    User,
    /// The job reports its number of steps, and how long one takes.
    Steps,
    /// It states its number of steps, and other jobs of its model show how long one takes.
    Profile,
    /// Similar jobs ran for that long.
    Prediction,
}

/// An estimate of the run time of a job, alone on the GPUs it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Run time at full speed.
    pub expected: Work,
    /// Where it comes from.
    pub source: EstimateSource,
}

/// Change of an estimate, in per cent of it, up to which the engine is not told.
const TOLERANCE_PERCENT: u64 = 2;

/// Translates steps of a job to work.
#[derive(Debug, Clone, Copy)]
pub(in crate::state) struct StepScale {
    total: u64,
    /// Duration of one step at full speed; zero if unknown.
    step_time: Time,
    stated: Option<Work>,
    /// From other jobs.
    learned: Option<Estimate>,
}

impl StepScale {
    /// Returns the scale of a job whose last attempt has this speed, in the sense of its scaling.
    fn new(record: &JobRecord, rate: Rate) -> Self {
        let Progress { total, step_time, .. } = record.progress;
        Self {
            total: match total {
                0 => record.request.total_steps.unwrap_or(0),
                total => total,
            },
            step_time: Time(i64::try_from(rate.work_in(step_time).0).unwrap_or(i64::MAX)),
            stated: record
                .request
                .expected
                .map(|span| Work(span.0.max(0).unsigned_abs())),
            learned: record.learned.as_ref().and_then(|learned| learned.estimate),
        }
    }

    /// Returns the best estimate of the whole run time.
    pub(in crate::state) fn estimate(self) -> Option<Estimate> {
        if let Some(expected) = self.stated {
            let source = EstimateSource::User;
            return Some(Estimate { expected, source });
        }
        let own = (self.total > 0 && self.step_time > Time::ZERO).then(|| Estimate {
            expected: Work(self.step_time.0.unsigned_abs().saturating_mul(self.total)),
            source: EstimateSource::Steps,
        });
        own.or(self.learned)
    }

    /// Returns the work of this many steps.
    pub(in crate::state) fn work_at(self, step: u64) -> Work {
        match self.estimate() {
            Some(Estimate { expected, .. }) if self.total > 0 => {
                let share =
                    u128::from(expected.0) * u128::from(step.min(self.total)) / u128::from(self.total);
                Work(u64::try_from(share).unwrap_or(u64::MAX))
            }
            _ => Work(self.step_time.0.max(0).unsigned_abs().saturating_mul(step)),
        }
    }
}

impl JobRecord {
    /// Returns the work it has done by now in its running attempt, and its speed.
    pub(in crate::state) fn work_now(&self, now: Time) -> (Work, Rate) {
        let since = self.attempt().and_then(|a| a.running_since).unwrap_or(now);
        let report = self.progress_samples.last().filter(|sample| sample.at >= since);
        let (done, rate, at) = match report {
            Some(sample) => {
                let (done, rate) = self.reported_work();
                (done, rate, sample.at)
            }
            None => (self.saved_work(), self.rate_of_width(), since),
        };
        (done + rate.work_in(now.since(at)), rate)
    }

    /// Returns how many GPUs the last attempt has.
    fn width(&self) -> u32 {
        self.attempt().map_or(self.request.gpus, |a| a.allocation.gpus())
    }

    /// Returns the speed on the GPUs of the last attempt, relative to that on the GPUs asked for.
    pub(in crate::state) fn rate_of_width(&self) -> Rate {
        self.scaling().rate(self.width(), self.request.gpus)
    }

    /// Returns its speed by number of GPUs: as its user states, else as it was measured.
    pub(crate) fn scaling(&self) -> Scaling {
        let stated = self.request.scaling.scaling();
        let speeds = self.learned.as_ref().and_then(|learned| learned.speeds.clone());
        match (stated, speeds) {
            (Scaling::Linear, Some(speeds)) => Scaling::Measured(speeds.into()),
            (stated, _) => stated,
        }
    }

    /// Returns the work of all its steps, as they were measured; none if it reports none.
    pub(crate) fn work_of_steps(&self) -> Option<Work> {
        let StepScale { total, step_time, .. } = self.step_scale();
        (total > 0 && step_time > Time::ZERO).then(|| Work(step_time.0.unsigned_abs().saturating_mul(total)))
    }

    fn step_scale(&self) -> StepScale {
        StepScale::new(self, self.rate_of_width())
    }

    /// Returns the best estimate of its run time.
    pub fn estimate(&self) -> Option<Estimate> {
        self.step_scale().estimate()
    }

    /// Returns whether an estimate differs from what the engine was told by more than a little.
    fn is_news(&self, expected: Work) -> bool {
        self.told.is_none_or(|told| {
            let difference = told.0.abs_diff(expected.0);
            difference.saturating_mul(100) > told.0.saturating_mul(TOLERANCE_PERCENT)
        })
    }

    /// Returns the work from which it resumes after a stop: that of its last checkpoint.
    pub(in crate::state) fn saved_work(&self) -> Work {
        self.step_scale().work_at(self.progress.checkpoint)
    }

    /// Returns the work it has done, and its speed as its steps show it.
    pub(in crate::state) fn reported_work(&self) -> (Work, Rate) {
        let scale = self.step_scale();
        let done = scale.work_at(self.progress.step);
        let measured = self.progress.step_time.0;
        let rate = match (scale.stated, scale.total) {
            (Some(expected), total) if total > 0 && measured > 0 => {
                Rate::from_factor(expected.0 as f64 / total as f64 / measured as f64)
            }
            _ => self.rate_of_width(),
        };
        (done, rate)
    }
}

/// Records a progress report of an attempt, and tells the engine how far the job is now.
pub(in crate::state) fn record_progress(
    jobs: &mut JobLifecycle<'_>,
    (id, attempt_id): (JobId, AttemptId),
    made: Time,
    (reported, stages): (Progress, Option<&StageReport>),
) {
    let now = jobs.now;
    let Some(record) = jobs.jobs.get_mut(id) else {
        return;
    };
    let Some(attempt) = record.open_attempt(attempt_id) else {
        return;
    };
    attempt.stages = stages.cloned().map(Box::new);
    let made = made.clamp(attempt.since.min(now), now);
    let restart_cost = attempt
        .restart
        .and_then(|restart| restart.cost(attempt, made, reported));
    if restart_cost.is_some() {
        attempt.restart = None;
    }
    let attempt = attempt.key;
    record.record_progress(made, reported);
    if let Some(cost) = restart_cost {
        jobs.learning.learn_restart(now, jobs.jobs.known(id), cost);
    }
    learn_steps(jobs, id);
    learn_period(jobs, id);
    let record = jobs.jobs.known_mut(id);
    let Some(job) = record.job_key.filter(|_| !jobs.scheduler.is_recomputing()) else {
        return;
    };
    let estimate = record.estimate();
    let (done, rate) = record.reported_work();
    if let Some(estimate) = estimate.filter(|estimate| record.is_news(estimate.expected)) {
        record.told = Some(estimate.expected);
        respecify(jobs, id, job);
    }
    jobs.notify_engine(Event::Progressed {
        job,
        attempt,
        done: done + rate.work_in(now.since(made)),
        rate,
    });
}

/// Lets the profile of its model learn from the steps that a job has reported last.
fn learn_steps(jobs: &mut JobLifecycle<'_>, id: JobId) {
    let record = jobs.jobs.known(id);
    let beside = match jobs.scheduler.shares_gpus() {
        true => jobs.jobs.beside(record).map(learning::key_of),
        false => None,
    };
    let is_shared = beside.is_some();
    let knows_of_changes = jobs.scheduler.runtime().cpu_trials.is_available();
    let is_measured = jobs
        .learning
        .learn_steps(record, jobs.nodes, beside, (jobs.now, knows_of_changes));
    let record = jobs.jobs.known_mut(id);
    let trial = record
        .attempts
        .last_mut()
        .and_then(|attempt| attempt.trial.as_mut());
    if let Some(trial) = trial.filter(|_| is_measured) {
        trial.samples += 1;
    }
    if let Some(key) = jobs.learning.take_changed(jobs.now) {
        tell_jobs(jobs, &key);
    }
    let record = jobs.jobs.known(id);
    if is_shared {
        let key = learning::key_of(record);
        let profile = jobs.learning.profiles().get(&key);
        jobs.scheduler.set_slowdowns(&key, profile);
    }
}

/// Tells the engine what the profile of a model says now about its unfinished jobs.
fn tell_jobs(jobs: &mut JobLifecycle<'_>, key: &str) {
    let unfinished = jobs.jobs.unfinished();
    let same: Vec<JobId> = unfinished
        .filter(|job| learning::has_key(job, key))
        .map(|job| job.id)
        .collect();
    for id in same {
        let record = jobs.jobs.known(id);
        let mut traits = record.learned.clone().unwrap_or_default();
        if !jobs.learning.renew(record, jobs.nodes, &mut traits) {
            continue;
        }
        let record = jobs.jobs.known_mut(id);
        record.learned = Some(traits);
        let Some(job) = record.job_key.filter(|_| record.state.is_in_engine()) else {
            continue;
        };
        if !jobs.scheduler.is_recomputing() {
            respecify(jobs, id, job);
        }
    }
}

/// Lets a group of models learn how long a step of all of them takes behind stage gates. The first job of a group reports
/// for all.
fn learn_period(jobs: &mut JobLifecycle<'_>, id: JobId) {
    let record = jobs.jobs.known(id);
    let Some(gates) = record.attempt().and_then(|attempt| attempt.gates()) else {
        return;
    };
    if gates.measured_period <= Time::ZERO || gates.partners().iter().any(|partner| *partner <= id) {
        return;
    }
    let partners = gates.partners().iter().map(|partner| jobs.jobs.get(*partner));
    let members: Option<Vec<&JobRecord>> = std::iter::once(Some(record)).chain(partners).collect();
    if let Some(members) = members
        && let Some(models) = jobs
            .learning
            .learn_period(jobs.now, &members, gates.measured_period)
    {
        let factor = jobs.learning.groups().factor_ppm(&models);
        jobs.scheduler.set_group_factor(&models, factor);
    }
}

/// Records when the processes of a running attempt began to run, and tells the engine how far the job is by now.
pub(in crate::state) fn set_running_since(
    jobs: &mut JobLifecycle<'_>,
    id: JobId,
    attempt_id: AttemptId,
    since: Time,
) {
    let now = jobs.now;
    let Some(record) = jobs.jobs.get_mut(id) else {
        return;
    };
    let open = record
        .open_attempt(attempt_id)
        .filter(|a| a.running_since.is_some());
    let Some(open) = open else {
        return;
    };
    open.running_since = Some(since.clamp(open.since.min(now), now));
    let attempt = open.key;
    let (done, rate) = record.work_now(now);
    if let Some(job) = record.job_key {
        jobs.notify_engine(Event::Progressed {
            job,
            attempt,
            done,
            rate,
        });
    }
}

/// Tells the engine what is known now about how a job behaves.
fn respecify(jobs: &mut JobLifecycle<'_>, id: JobId, job: JobKey) {
    let record = jobs.jobs.known(id);
    let told = record.told;
    let mut spec = jobs
        .scheduler
        .preview_spec(&record.user, &record.request, record.submitted);
    if let Some(learned) = &record.learned {
        learned.fill(&mut spec);
    }
    let profile = Box::new(JobProfile {
        expected: told.or(spec.expected),
        ..spec.profile()
    });
    jobs.notify_engine(Event::Respecified { job, profile });
}
