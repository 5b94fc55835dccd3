//! Simulations of what follows from the present state of a cluster, on the simulator's own loop.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use dovetail_engine::{Engine, Job};
use dovetail_model::{Command, Event, JobKey, JobSpec, Time, Work};
use dovetail_sim::{Future, FutureJob, Observer, SimConfig, TrueJob, resume};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::history::{History, JobTraits};
use crate::neighbours::Neighbour;

/// Limits of the work for one forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of simulations.
    pub samples: u32,
    /// Number of simulated events of all simulations together.
    pub events: u64,
    /// Longest simulated time.
    pub horizon: Time,
    /// Time after which no other simulation begins, and the current one ends.
    pub wall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            samples: 60,
            events: 200_000,
            horizon: Time::from_secs(31 * 86_400),
            wall: Duration::from_secs(2),
        }
    }
}

/// What is known about a job of the engine.
#[derive(Debug, Clone, Default)]
pub struct JobHint {
    /// What it has in common with others.
    pub traits: JobTraits,
    /// Its whole work by its own progress reports.
    pub reported: Option<Work>,
    /// Work that its user expected.
    pub expected: Option<Work>,
    /// Longest time it may hold GPUs in one attempt.
    pub time_limit: Option<Time>,
    /// Interval between its checkpoints, if it writes any.
    pub checkpoint: Option<Time>,
}

/// A job that was submitted recently, and stands for one that will be.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// What was submitted, and when.
    pub spec: JobSpec,
    /// What is known about it.
    pub hint: JobHint,
    /// Its work, if it has finished.
    pub work: Option<Work>,
}

/// Number of latest arrivals that count.
pub(crate) const MAX_ARRIVALS: usize = 2_000;
/// Number of arrivals below which no further ones are expected.
const MIN_ARRIVALS: usize = 8;

/// The present state of a cluster, and what is known about its jobs.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The engine, of which copies are simulated.
    pub engine: Engine,
    /// Key of the next job.
    pub first_new: JobKey,
    /// How jobs behave on the cluster.
    pub config: SimConfig,
    /// Run times of finished jobs.
    pub history: History,
    /// The latest jobs that were submitted, oldest first.
    pub arrivals: Vec<Arrival>,
    /// What is known about the jobs of the engine.
    pub hints: BTreeMap<JobKey, JobHint>,
    /// Jobs of the engine that may take as long as others.
    pub neighbours: BTreeMap<JobKey, Neighbour>,
}

/// Simulated starts of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Starts {
    /// When the job gets GPUs in each simulation, sorted.
    pub at: Vec<Time>,
    /// Number of simulations that ended before it did.
    pub never: u32,
    /// Whether a limit of events or wall time ended them early.
    pub is_limited: bool,
}

impl Outlook {
    /// Simulates until the job gets GPUs, many times.
    pub fn starts(&self, job: JobKey, seed: u64, limits: &Limits) -> Starts {
        let begun = Instant::now();
        let mut starts = Starts::default();
        let mut events_left = limits.events;
        for sample in 0..limits.samples {
            if events_left == 0 || begun.elapsed() >= limits.wall {
                starts.is_limited = true;
                break;
            }
            let mut future = SampledFuture::new(self, seed, sample);
            let mut watch = StartWatch {
                job,
                start: None,
                events_left,
                until: self.engine.now() + limits.horizon,
                deadline: (begun, limits.wall),
            };
            let run = resume(
                self.engine.clone(),
                self.first_new,
                &self.config,
                &mut future,
                &mut watch,
            );
            events_left = watch.events_left;
            match (run, watch.start) {
                (Ok(()), Some(at)) => starts.at.push(at),
                _ => starts.never += 1,
            }
        }
        starts.at.sort_unstable();
        starts
    }
}

/// Ends a run as soon as a job gets GPUs, or a limit is reached.
struct StartWatch {
    job: JobKey,
    start: Option<Time>,
    events_left: u64,
    until: Time,
    deadline: (Instant, Duration),
}

impl Observer for StartWatch {
    fn event(&mut self, _: Time, _: &Event, _: &Engine) {
        self.events_left = self.events_left.saturating_sub(1);
    }

    fn command(&mut self, now: Time, command: &Command) {
        if let Command::Launch { job, .. } = command
            && *job == self.job
        {
            self.start.get_or_insert(now);
        }
    }

    fn moment(&mut self, now: Time, _: &Engine) -> ControlFlow<()> {
        // The clock of the machine is read once in a while.
        let is_late = self.events_left.is_multiple_of(64) && self.deadline.0.elapsed() >= self.deadline.1;
        match self.start.is_some() || self.events_left == 0 || now > self.until || is_late {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// One way in which the future may turn out: run times and arrivals are drawn from what was observed.
struct SampledFuture<'a> {
    outlook: &'a Outlook,
    rng: ChaCha8Rng,
    /// The stretch of the history from which run times are drawn.
    stretch: usize,
    /// Position of the next arrival among the recent ones.
    position: usize,
    /// When the last job was submitted.
    last: Time,
    /// Work of the jobs of the engine, as far as it was drawn.
    drawn: BTreeMap<JobKey, Work>,
}

impl<'a> SampledFuture<'a> {
    fn new(outlook: &'a Outlook, seed: u64, sample: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(sample));
        let count = outlook.arrivals.len();
        let position = if count > 0 { rng.random_range(0..count) } else { 0 };
        Self {
            outlook,
            stretch: outlook.history.draw_stretch(&mut rng),
            rng,
            position,
            last: outlook.engine.now(),
            drawn: BTreeMap::new(),
        }
    }

    /// Draws whether a job takes as long as its neighbour, and how long that is.
    fn draw_like_neighbour(&mut self, hint: &JobHint, job: JobKey, done: Work) -> Option<Work> {
        if hint.reported.is_some() || hint.expected.is_some() {
            return None;
        }
        let neighbour = self.outlook.neighbours.get(&job)?;
        let work = match neighbour.work {
            Ok(work) => work,
            Err(key) => *self.drawn.get(&key)?,
        };
        let work = Work((work.0 as f64 * self.rng.random_range(0.97..1.03)) as u64);
        if work <= done {
            return None;
        }
        // The longer it has run, the less likely are the other run times.
        let others = (1.0 - neighbour.share) * self.outlook.history.share_beyond(&hint.traits, done);
        let share = neighbour.share / (neighbour.share + others).max(1e-9);
        (self.rng.random_range(0.0..1.0) < share).then_some(work)
    }

    fn draw(&mut self, hint: &JobHint, done: Work) -> Work {
        let history = &self.outlook.history;
        let rng = &mut self.rng;
        let work = if let Some(reported) = hint.reported.filter(|work| *work > done) {
            let left = reported.minus(done).0 as f64 * rng.random_range(0.95..1.1);
            done + Work(left as u64 + 1)
        } else if let Some(expected) = hint.expected {
            history.draw_estimated(&hint.traits.user, expected, done, rng)
        } else {
            history.draw(&hint.traits, done, self.stretch, rng)
        };
        match hint.time_limit {
            Some(limit) => work.min(Work(limit.0.max(1).unsigned_abs())),
            None => work,
        }
    }
}

impl Future for SampledFuture<'_> {
    fn truth(&mut self, job: &Job) -> TrueJob {
        let outlook = self.outlook;
        let unknown = JobHint::default();
        let hint = outlook.hints.get(&job.spec.id).unwrap_or(&unknown);
        let done = job.done(outlook.engine.now());
        let work = match self.draw_like_neighbour(hint, job.spec.id, done) {
            Some(work) => work,
            None => self.draw(hint, done),
        };
        self.drawn.insert(job.spec.id, work);
        TrueJob {
            work,
            checkpoint: hint.checkpoint,
        }
    }

    fn next_job(&mut self) -> Option<FutureJob> {
        let outlook = self.outlook;
        let recent = &outlook.arrivals;
        if recent.len() < MIN_ARRIVALS {
            return None;
        }
        let before = recent[self.position].spec.submit;
        self.position = (self.position + 1) % recent.len();
        let arrival = &recent[self.position];
        let gap = match self.position {
            // Behind the last one follows the first one again, after a usual time.
            0 => Time(
                recent[recent.len() - 1]
                    .spec
                    .submit
                    .since(recent[0].spec.submit)
                    .0
                    / recent.len() as i64,
            ),
            _ => arrival.spec.submit.since(before),
        };
        self.last += gap;
        let work = match arrival.work {
            Some(work) => work,
            None => self.draw(&arrival.hint, Work(0)),
        };
        let later = self.last.since(arrival.spec.submit);
        Some(FutureJob {
            spec: JobSpec {
                submit: self.last,
                place: u32::MAX,
                deadline: arrival.spec.deadline.map(|deadline| deadline + later),
                ..arrival.spec.clone()
            },
            truth: TrueJob {
                work,
                checkpoint: arrival.hint.checkpoint,
            },
        })
    }
}
