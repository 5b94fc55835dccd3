//! The present state taken out of the book, so that it can be played forward beside it: whoever writes in the book does not
//! wait for that.

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Job};
use dovetail_model::ids::Id;
use dovetail_model::{JobKey, JobSpec, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::lengths::LATELY;
use super::{Arrivals, Calibration, Draw, Eta, Lengths, first_starts, interval, span};
use crate::JobId;
use crate::state::{ClusterState, JobRecord, JobState};

/// How often the state is played forward.
const SAMPLES: u32 = 60;
/// Fewer say nothing.
const FEWEST_GAMES: usize = 12;
/// Fewer jobs that ended say nothing.
const FEWEST: usize = 8;

/// The present state, and what is known of how long jobs run.
#[derive(Debug, Clone)]
pub struct ForecastSnapshot {
    engine: Engine,
    now: Time,
    is_paused: bool,
    lengths: Lengths,
    arrivals: Vec<(Time, JobSpec)>,
    /// Jobs that are not over, by their number in the engine.
    known: BTreeMap<JobKey, Known>,
    /// The numbers in the engine of jobs that are not over, and how they stand.
    job_ids: BTreeMap<JobId, (Option<JobKey>, JobState)>,
    /// The number in the engine of the next job.
    next: JobKey,
}

/// What is known of how long a job runs.
#[derive(Debug, Clone)]
struct Known {
    user: String,
    name: String,
    gpus: u32,
    /// Microseconds that are left by its own account, where it gives one.
    left: Option<f64>,
    expected: Option<Time>,
    time_limit: Option<Time>,
}

impl Known {
    fn of(record: &JobRecord) -> Self {
        let steps = &record.progress;
        let tells = steps.total > steps.step && steps.step > 0 && steps.step_time.0 > 0;
        Self {
            user: record.user.clone(),
            name: record.request.name.clone(),
            gpus: record.request.gpus,
            left: tells.then(|| (steps.total - steps.step) as f64 * steps.step_time.0 as f64),
            expected: record.request.expected,
            time_limit: record.request.time_limit,
        }
    }
}

impl ClusterState {
    /// The present state, to be played forward beside the book.
    pub fn forecast_snapshot(&self) -> ForecastSnapshot {
        let live = |job: &JobRecord| Some((job.job_key?, Known::of(job)));
        ForecastSnapshot {
            engine: self.engine.clone(),
            now: self.now,
            is_paused: self.is_paused(),
            lengths: Lengths::of(self),
            arrivals: self.arrivals(LATELY),
            known: self.unfinished_jobs().filter_map(live).collect(),
            job_ids: self
                .unfinished_jobs()
                .map(|job| (job.id, (job.job_key, job.state.clone())))
                .collect(),
            next: JobKey::from_index(self.job_ids.len()),
        }
    }

    /// Whether it can be asked when the job starts; why not.
    ///
    /// # Errors
    /// When it does not stand in line.
    pub fn check_queued(&self, no: JobId) -> Result<(), String> {
        let record = self.job(no).ok_or("there is no such job")?;
        in_line(&record.state)
    }

    /// Who came lately and when, as the engine is told of them.
    fn arrivals(&self, most: usize) -> Vec<(Time, JobSpec)> {
        let mut names = self.names.clone();
        let lately = self
            .jobs()
            .rev()
            .filter(|job| !matches!(job.state, JobState::Held(_)))
            .take(most);
        let told = |job: &JobRecord| {
            let spec = Self::spec(&mut names, &job.user, &job.request, job.submitted, JobKey(0));
            (job.submitted, spec)
        };
        let mut arrivals: Vec<(Time, JobSpec)> = lately.map(told).collect();
        arrivals.reverse();
        arrivals
    }
}

fn in_line(state: &JobState) -> Result<(), String> {
    match state {
        JobState::Queued => Ok(()),
        JobState::Held(_) => Err("it is not queued yet".to_owned()),
        _ => Err("it does not wait".to_owned()),
    }
}

impl ForecastSnapshot {
    /// The moment it was taken.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When a job in line will start; else why nothing can be said.
    ///
    /// # Errors
    /// Says why nothing can be said.
    pub fn forecast(&self, no: JobId) -> Result<Eta, String> {
        let (job_key, state) = self.job_ids.get(&no).ok_or("it does not wait")?;
        in_line(state)?;
        if self.is_paused {
            return Err("scheduling is paused, and nobody knows until when".to_owned());
        }
        let job_key = job_key.ok_or("it is not queued yet")?;
        if self.lengths.len() < FEWEST {
            return Err(format!(
                "too few jobs have ended here to tell how long others run: {} of {FEWEST}",
                self.lengths.len()
            ));
        }
        let mut draw = Drawn {
            of: self,
            arrivals: Arrivals::new(self.arrivals.clone()),
            seed: no,
            rng: ChaCha8Rng::seed_from_u64(no),
        };
        let (starts, never) = first_starts(&self.engine, self.now, (job_key, self.next), SAMPLES, &mut draw);
        if starts.len() + (never as usize) < FEWEST_GAMES {
            return Err("the line is too long to look that far ahead".to_owned());
        }
        if never as usize * 10 > starts.len() {
            return Err("it would not start within a month in the state things are in".to_owned());
        }
        interval(self.now, starts, self.lengths.based_on()).ok_or_else(|| "nothing was found out".to_owned())
    }

    /// What was found out, corrected by how it came before; else why it says nothing.
    ///
    /// # Errors
    /// Says why it says nothing.
    pub fn corrected(&self, eta: &Eta, calibration: &Calibration) -> Result<Eta, String> {
        let eta = calibration.correct(self.now, eta);
        match eta.says_something(self.now) {
            true => Ok(eta),
            false => Err(format!(
                "run times here differ so much that it could be {} or {}",
                span(eta.p5.since(self.now)),
                span(eta.p95.since(self.now))
            )),
        }
    }
}

struct Drawn<'a> {
    of: &'a ForecastSnapshot,
    arrivals: Arrivals,
    seed: u64,
    rng: ChaCha8Rng,
}

impl Draw for Drawn<'_> {
    fn anew(&mut self, sample: u32) {
        self.rng = ChaCha8Rng::seed_from_u64(self.seed << 16 ^ u64::from(sample));
        self.arrivals.anew(&mut self.rng);
    }

    fn arrival(&mut self) -> Option<(Time, JobSpec)> {
        self.arrivals.following()
    }

    fn left(&mut self, job: &Job, ran: Time) -> Time {
        let lengths = &self.of.lengths;
        let Some(known) = self.of.known.get(&job.spec.id) else {
            // One that is still to come.
            return lengths.left(("", "", job.spec.gpus), ran, &mut self.rng);
        };
        let left = if let Some(left) = known.left {
            // It says itself how far it is.
            Time((left * self.rng.random_range(0.9..1.2)) as i64)
        } else if let Some(expected) = known.expected.filter(|e| *e > ran) {
            Time((expected.0 as f64 * self.rng.random_range(0.8..1.25)) as i64 - ran.0)
        } else {
            let like = (known.user.as_str(), known.name.as_str(), known.gpus);
            lengths.left(like, ran, &mut self.rng)
        };
        match known.time_limit {
            Some(limit) => left.min(Time(limit.0 - ran.0)),
            None => left,
        }
    }
}
