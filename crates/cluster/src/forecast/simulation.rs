//! Simulates an engine until a job starts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dovetail_engine::{Engine, Job};
use dovetail_model::{AttemptKey, Command, Event, JobKey, JobSpec, Outcome, Rate, Time, Work};

/// Draws run times and arrivals for simulations.
pub trait Sampler {
    /// Begins a simulation; values drawn from now on are independent of those before.
    fn restart(&mut self, sample: u32);

    /// Draws the remaining run time of a job.
    fn draw_remaining(&mut self, job: &Job, elapsed: Time) -> Time;

    /// Draws the next job and the time since the one before; `None` if arrivals are unknown.
    fn next_arrival(&mut self) -> Option<(Time, JobSpec)>;
}

/// Longest simulated time.
const HORIZON: Time = Time::from_secs(31 * 86_400);
/// Number of events of all simulations after which no other one begins; long queues are simulated fewer times.
const MAX_EVENTS: u32 = 60_000;

/// Returns when the job gets GPUs in each simulation, and in how many it never does. Jobs that arrive later get handles from
/// `next` on.
pub fn first_starts(
    engine: &Engine,
    now: Time,
    (job, next): (JobKey, JobKey),
    samples: u32,
    sampler: &mut impl Sampler,
) -> (Vec<Time>, u32) {
    let mut starts = Vec::new();
    let mut never = 0;
    let mut events = 0;
    for sample in 0..samples {
        if events > MAX_EVENTS {
            break;
        }
        sampler.restart(sample);
        let mut simulation = Simulation::new(engine.clone(), now, next);
        match simulation.run_until(job, sampler) {
            Some(at) => starts.push(at),
            None => never += 1,
        }
        events += simulation.events;
    }
    (starts, never)
}

/// An attempt that runs, with its start and the run time that remained then.
#[derive(Debug, Clone, Copy)]
struct Run {
    attempt: AttemptKey,
    since: Time,
    remaining: Time,
}

struct Simulation {
    engine: Engine,
    now: Time,
    events: u32,
    next: JobKey,
    /// Next job that arrives.
    arrival: Option<(Time, JobSpec)>,
    /// Future ends of attempts.
    ends: BinaryHeap<Reverse<(Time, JobKey, AttemptKey)>>,
    runs: BTreeMap<JobKey, Run>,
    /// Run time that remained of jobs when they were stopped.
    remaining: BTreeMap<JobKey, Time>,
}

impl Simulation {
    fn new(engine: Engine, now: Time, next: JobKey) -> Self {
        Self {
            engine,
            now,
            events: 0,
            next,
            arrival: None,
            ends: BinaryHeap::new(),
            runs: BTreeMap::new(),
            remaining: BTreeMap::new(),
        }
    }

    /// Returns when the job gets GPUs.
    fn run_until(&mut self, target: JobKey, sampler: &mut impl Sampler) -> Option<Time> {
        let running: Vec<(JobKey, AttemptKey, Time)> = self
            .engine
            .jobs()
            .filter(|job| job.current_allocation().is_some())
            .map(|job| (job.spec.id, job.attempt, job.attained(self.now)))
            .collect();
        for (id, attempt, elapsed) in running {
            let job = self.engine.job(id)?;
            let remaining = sampler.draw_remaining(job, elapsed);
            self.start(id, attempt, remaining);
        }
        let horizon = self.now + HORIZON;
        self.arrival = sampler.next_arrival().map(|(gap, spec)| (self.now + gap, spec));
        while self.events < MAX_EVENTS {
            self.events += 1;
            if self.execute_commands(target, sampler) {
                return Some(self.now);
            }
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let wake = self.engine.wake_at();
            let arrival = self.arrival.as_ref().map(|(at, _)| *at);
            let at = end.into_iter().chain(wake).chain(arrival).min()?;
            if at > horizon {
                return None;
            }
            self.now = self.now.max(at);
            if end.is_some_and(|end| end <= self.now) {
                self.end_attempt();
            } else if arrival.is_some_and(|arrival| arrival <= self.now) {
                self.submit_next(sampler);
            } else {
                self.engine.handle(self.now, Event::Wake);
            }
        }
        None
    }

    fn start(&mut self, id: JobKey, attempt: AttemptKey, remaining: Time) {
        let remaining = remaining.max(Time(1));
        let since = self.now;
        let run = Run {
            attempt,
            since,
            remaining,
        };
        self.runs.insert(id, run);
        self.ends.push(Reverse((self.now + remaining, id, attempt)));
    }

    fn submit_next(&mut self, sampler: &mut impl Sampler) {
        let Some((_, spec)) = self.arrival.take() else {
            return;
        };
        let (id, submit) = (self.next, self.now);
        self.next = JobKey(id.0 + 1);
        self.engine
            .handle(self.now, Event::Submitted(JobSpec { id, submit, ..spec }));
        self.arrival = sampler.next_arrival().map(|(gap, spec)| (self.now + gap, spec));
    }

    fn end_attempt(&mut self) {
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

    /// Executes the commands of the engine. Returns whether the target job gets GPUs.
    fn execute_commands(&mut self, target: JobKey, sampler: &mut impl Sampler) -> bool {
        while let Some(command) = self.engine.poll() {
            match command {
                Command::Launch { job, .. } if job == target => return true,
                Command::Launch { job, attempt, .. } => {
                    let rate = Rate::FULL;
                    self.engine
                        .handle(self.now, Event::Started { job, attempt, rate });
                    let stopped = self.remaining.remove(&job);
                    let remaining = match (stopped, self.engine.job(job)) {
                        (Some(remaining), _) => remaining,
                        (None, Some(known)) => sampler.draw_remaining(known, known.attained(self.now)),
                        (None, None) => continue,
                    };
                    self.start(job, attempt, remaining);
                }
                Command::Stop { job, attempt, .. } => {
                    if let Some(run) = self.runs.remove(&job) {
                        let elapsed = self.now.since(run.since);
                        let remaining = Time((run.remaining.0 - elapsed.0).max(1));
                        self.remaining.insert(job, remaining);
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
