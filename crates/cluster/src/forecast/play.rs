//! Plays an engine forward until a job starts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dovetail_engine::{Engine, Job};
use dovetail_model::{AttemptKey, Command, Event, JobKey, JobSpec, Outcome, Rate, Time, Work};

/// Draws how long jobs run.
pub trait Draw {
    /// A new round of the game: all lengths are drawn anew.
    fn anew(&mut self, sample: u32);

    /// How long the job runs on, after it has run for so long.
    fn left(&mut self, job: &Job, ran: Time) -> Time;

    /// Who comes next, and how long after the one before; nobody where nothing is known of that.
    fn arrival(&mut self) -> Option<(Time, JobSpec)>;
}

/// Nobody looks further ahead.
const HORIZON: Time = Time::from_secs(31 * 86_400);
/// Events of all games together, after which no other is begun; a long line is played fewer times.
const MOST_EVENTS: u32 = 60_000;

/// When the job first gets GPUs in each of so many games, and in how many it never does. Jobs that come later are numbered
/// from `next` on.
pub fn first_starts(
    engine: &Engine,
    now: Time,
    (job, next): (JobKey, JobKey),
    samples: u32,
    draw: &mut impl Draw,
) -> (Vec<Time>, u32) {
    let mut starts = Vec::new();
    let mut never = 0;
    let mut events = 0;
    for sample in 0..samples {
        if events > MOST_EVENTS {
            break;
        }
        draw.anew(sample);
        let mut game = Game::new(engine.clone(), now, next);
        match game.play_until(job, draw) {
            Some(at) => starts.push(at),
            None => never += 1,
        }
        events += game.events;
    }
    (starts, never)
}

/// A launch that runs: since when, and how much was left then.
#[derive(Debug, Clone, Copy)]
struct Run {
    attempt: AttemptKey,
    since: Time,
    left: Time,
}

struct Game {
    engine: Engine,
    now: Time,
    events: u32,
    next: JobKey,
    /// Who comes next.
    coming: Option<(Time, JobSpec)>,
    /// Ends to come.
    ends: BinaryHeap<Reverse<(Time, JobKey, AttemptKey)>>,
    runs: BTreeMap<JobKey, Run>,
    /// What was left of jobs when they were stopped.
    left: BTreeMap<JobKey, Time>,
}

impl Game {
    fn new(engine: Engine, now: Time, next: JobKey) -> Self {
        Self {
            engine,
            now,
            events: 0,
            next,
            coming: None,
            ends: BinaryHeap::new(),
            runs: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    fn play_until(&mut self, wanted: JobKey, draw: &mut impl Draw) -> Option<Time> {
        let up: Vec<(JobKey, AttemptKey, Time)> = self
            .engine
            .jobs()
            .filter(|job| job.current_allocation().is_some())
            .map(|job| (job.spec.id, job.attempt, job.attained(self.now)))
            .collect();
        for (id, attempt, ran) in up {
            let job = self.engine.job(id)?;
            let left = draw.left(job, ran);
            self.runs_on(id, attempt, left);
        }
        let horizon = self.now + HORIZON;
        self.coming = draw.arrival().map(|(gap, spec)| (self.now + gap, spec));
        while self.events < MOST_EVENTS {
            self.events += 1;
            if self.obey(wanted, draw) {
                return Some(self.now);
            }
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let wake = self.engine.wake_at();
            let comes = self.coming.as_ref().map(|(at, _)| *at);
            let at = end.into_iter().chain(wake).chain(comes).min()?;
            if at > horizon {
                return None;
            }
            self.now = self.now.max(at);
            if end.is_some_and(|end| end <= self.now) {
                self.end_one();
            } else if comes.is_some_and(|comes| comes <= self.now) {
                self.one_comes(draw);
            } else {
                self.engine.handle(self.now, Event::Wake);
            }
        }
        None
    }

    fn runs_on(&mut self, id: JobKey, attempt: AttemptKey, left: Time) {
        let left = left.max(Time(1));
        let since = self.now;
        self.runs.insert(id, Run { attempt, since, left });
        self.ends.push(Reverse((self.now + left, id, attempt)));
    }

    fn one_comes(&mut self, draw: &mut impl Draw) {
        let Some((_, spec)) = self.coming.take() else {
            return;
        };
        let (id, submit) = (self.next, self.now);
        self.next = JobKey(id.0 + 1);
        self.engine
            .handle(self.now, Event::Submitted(JobSpec { id, submit, ..spec }));
        self.coming = draw.arrival().map(|(gap, spec)| (self.now + gap, spec));
    }

    fn end_one(&mut self) {
        let Some(Reverse((_, job, attempt))) = self.ends.pop() else {
            return;
        };
        if self.runs.get(&job).is_some_and(|run| run.attempt == attempt) {
            self.runs.remove(&job);
            let outcome = Outcome::Completed;
            self.engine.handle(
                self.now,
                Event::Exited {
                    job,
                    attempt,
                    outcome,
                },
            );
        }
    }

    /// Does what the engine wants; whether the wanted job has its GPUs.
    fn obey(&mut self, wanted: JobKey, draw: &mut impl Draw) -> bool {
        while let Some(command) = self.engine.poll() {
            match command {
                Command::Launch { job, .. } if job == wanted => return true,
                Command::Launch { job, attempt, .. } => {
                    let rate = Rate::FULL;
                    self.engine
                        .handle(self.now, Event::Started { job, attempt, rate });
                    let kept = self.left.remove(&job);
                    let left = match (kept, self.engine.job(job)) {
                        (Some(left), _) => left,
                        (None, Some(known)) => draw.left(known, known.attained(self.now)),
                        (None, None) => continue,
                    };
                    self.runs_on(job, attempt, left);
                }
                Command::Stop { job, attempt, .. } => {
                    if let Some(run) = self.runs.remove(&job) {
                        let ran = self.now.since(run.since);
                        self.left.insert(job, Time((run.left.0 - ran.0).max(1)));
                    }
                    let done = self.engine.job(job).map_or(Work(0), |j| j.done(self.now));
                    self.engine
                        .handle(self.now, Event::Stopped { job, attempt, done });
                }
                Command::Resize { .. } | Command::Reject { .. } => {}
            }
        }
        false
    }
}
