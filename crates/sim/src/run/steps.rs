//! Progress as Muri's simulator counts it: at every event each running job is credited with the iterations since the
//! previous event, less its start-up time, and its completion is computed again as if no further event would happen.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::stages::period_s;
use dovetail_model::{Allocation, Event, JobKey, Stages, Time, Work};
use dovetail_workload::{TraceJob, Workload};

use crate::compat::{opportunistic_period_s, start_up_s};
use crate::config::{MuriTime, SimConfig};
use crate::sharing::slot;
use crate::truth::{KnowledgeFilter, Truth};

/// Factor by which an iteration takes longer alone than the trace states.
const SLOWER_ALONE: f64 = 1.015;

/// Returns the run time of a job in this simulator.
pub(crate) fn slower_alone(work: Work) -> Work {
    Work((work.0 as f64 * SLOWER_ALONE).round() as u64)
}

/// The progress of all jobs in iterations.
#[derive(Debug)]
pub(super) struct Steps {
    time: MuriTime,
    jobs: Vec<JobSteps>,
    running: BTreeSet<JobKey>,
    /// The next completions, all at one moment.
    ends: Option<Completions>,
    /// The time of the last event in seconds, which [`Time`] holds only in whole microseconds.
    now_s: f64,
}

/// Jobs that complete at one moment.
#[derive(Debug, Clone)]
struct Completions {
    at: Time,
    at_s: f64,
    jobs: Vec<JobKey>,
}

/// The progress of one job in iterations.
#[derive(Debug, Clone)]
struct JobSteps {
    /// Remaining iterations.
    left: f64,
    /// Seconds per iteration alone.
    iteration_s: f64,
    /// Seconds per iteration from now on.
    period_s: f64,
    /// Start-up cost of this job, in seconds.
    start_up_s: f64,
    /// Current cost of each interval, in seconds.
    charge_s: f64,
    last_s: f64,
    /// Total seconds it has run.
    ran_s: f64,
    gpus: u32,
    stages: Option<Stages>,
    opportunistic: bool,
    place: Option<Allocation>,
}

impl Steps {
    pub(super) fn new(time: MuriTime, workload: &Workload, knowledge_filter: &KnowledgeFilter) -> Self {
        let step = |job: &TraceJob| {
            let iterations = job.iterations.unwrap_or(1).max(1) as f64;
            let iteration_ms = job.work.0 as f64 / iterations / 1000.0;
            let iteration_s = iteration_ms * SLOWER_ALONE / 1000.0;
            let model = job.model.map(|m| workload.names.models[m].as_str());
            let start_up_s = start_up_s(model, job.gpus);
            JobSteps {
                left: iterations,
                iteration_s,
                period_s: iteration_s,
                start_up_s,
                charge_s: start_up_s,
                last_s: 0.0,
                ran_s: 0.0,
                gpus: job.gpus,
                stages: knowledge_filter.stages(job),
                opportunistic: job.priority < 0,
                place: None,
            }
        };
        Self {
            time,
            jobs: workload.jobs.iter().map(step).collect(),
            running: BTreeSet::new(),
            ends: None,
            now_s: 0.0,
        }
    }

    /// Returns when the next job completes if no other event happens before.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.ends.as_ref().map(|e| e.at)
    }

    pub(super) fn launched(&mut self, id: JobKey, place: Allocation) {
        self.running.insert(id);
        let job = &mut self.jobs[id.0 as usize];
        (job.last_s, job.place) = (self.now_s, Some(place));
    }

    pub(super) fn remove(&mut self, id: JobKey) {
        self.running.remove(&id);
        self.jobs[id.0 as usize].place = None;
    }

    /// Credits all running jobs with the iterations up to now. Returns their progress for the engine.
    pub(super) fn credit(&mut self, now: Time, truths: &mut [Truth], jobs: &[TraceJob]) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.running.len());
        for id in &self.running {
            let job = &mut self.jobs[id.0 as usize];
            let span_s = self.now_s - job.last_s;
            job.left -= (span_s - job.charge_s).max(0.0) / job.period_s;
            job.ran_s += span_s;
            job.last_s = self.now_s;
            let truth = &mut truths[id.0 as usize];
            let left_us = job.left * job.iteration_s * 1e6;
            truth.left = Work((left_us.round() as u64).max(1));
            truth.since = now;
            let done = slower_alone(jobs[id.0 as usize].work).minus(truth.left);
            events.push(Event::Progressed {
                job: *id,
                attempt: truth.attempt,
                done,
                rate: truth.rate,
            });
        }
        events
    }

    /// Computes the next completion, as if no event happened before it. `arrival` is the next submission.
    pub(super) fn schedule_next(&mut self, config: &SimConfig, now: Time, arrival: Option<Time>) {
        self.set_periods(&config.contention, config.interleaving);
        self.ends = self.next_ends(now);
        let (MuriTime::Groups { .. }, Some(ends)) = (self.time, &mut self.ends) else {
            return;
        };
        // An arrival at nearly the same time is the same event.
        let near = |t: &Time| are_close(t.as_secs_f64(), ends.at_s, 1e-4);
        if let Some(arrival) = arrival.filter(near) {
            (ends.at, ends.at_s) = (arrival, arrival.as_secs_f64());
        }
    }

    /// Advances the time, and returns the jobs that complete now.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<JobKey> {
        self.now_s = now.as_secs_f64();
        let Some(ends) = self.ends.take_if(|e| e.at <= now) else {
            return Vec::new();
        };
        self.now_s = ends.at_s;
        ends.jobs
    }

    /// Returns the next moment at which jobs complete, and which. Nearly equal completions are merged with the first one
    /// seen.
    fn next_ends(&self, now: Time) -> Option<Completions> {
        let mut order: Vec<JobKey> = self.running.iter().copied().collect();
        if let MuriTime::Groups { attained } = self.time {
            let key = |id: &JobKey| {
                let job = &self.jobs[id.0 as usize];
                let time_s = if attained {
                    job.ran_s
                } else {
                    job.left * job.iteration_s
                };
                (std::cmp::Reverse(job.gpus), time_s * f64::from(job.gpus))
            };
            order.sort_by(|a, b| {
                let (a, b) = (key(a), key(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
        }
        let close = |a: f64, b: f64| match self.time {
            MuriTime::Queues => a == b,
            MuriTime::Alone | MuriTime::Groups { .. } => are_close(a, b, 0.0),
            MuriTime::Guaranteed => are_close(a, b, 1e-4),
        };
        let mut ends: Vec<(f64, Vec<JobKey>)> = Vec::new();
        for id in order {
            let job = &self.jobs[id.0 as usize];
            let at_s = self.now_s + job.left * job.period_s;
            match ends.iter_mut().find(|(known, _)| close(*known, at_s)) {
                Some((_, jobs)) => jobs.push(id),
                None => ends.push((at_s, vec![id])),
            }
        }
        let (at_s, jobs) = ends.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let at = Time::from_secs_f64(at_s.min(1e12)).max(now);
        Some(Completions { at, at_s, jobs })
    }

    /// Computes the iteration time of each running job on its GPUs, and what an interval costs it.
    fn set_periods(
        &mut self,
        contention: &dovetail_model::stages::Contention,
        ordering: dovetail_model::stages::Ordering,
    ) {
        match self.time {
            MuriTime::Alone | MuriTime::Queues => {}
            MuriTime::Groups { .. } => {
                let mut groups: BTreeMap<_, Vec<JobKey>> = BTreeMap::new();
                for id in &self.running {
                    if let Some(place) = &self.jobs[id.0 as usize].place {
                        groups.entry(slot(place)).or_default().push(*id);
                    }
                }
                for members in groups.into_values() {
                    let job = |id: &JobKey| &self.jobs[id.0 as usize];
                    let charge_s: f64 = members.iter().map(|m| job(m).start_up_s).sum();
                    let stages: Option<Vec<Stages>> = members.iter().map(|m| job(m).stages).collect();
                    let shared = stages
                        .filter(|s| s.len() > 1)
                        .map(|s| period_s(&s, ordering) * contention.factors[s.len() - 1]);
                    for id in members {
                        let job = &mut self.jobs[id.0 as usize];
                        job.charge_s = charge_s;
                        job.period_s = shared.unwrap_or(job.iteration_s);
                    }
                }
            }
            MuriTime::Guaranteed => {
                let slowed: Vec<(JobKey, f64)> = self
                    .running
                    .iter()
                    .filter(|id| self.jobs[id.0 as usize].opportunistic)
                    .map(|id| (*id, self.squeezed_s(*id)))
                    .collect();
                for (id, period_s) in slowed {
                    self.jobs[id.0 as usize].period_s = period_s;
                }
            }
        }
    }

    /// Returns the iteration time of an opportunistic job next to all jobs it shares GPUs with: the slowest counts.
    fn squeezed_s(&self, id: JobKey) -> f64 {
        let own = &self.jobs[id.0 as usize];
        let mut period_s = own.iteration_s;
        for other in self.running.iter().filter(|o| **o != id) {
            let beside = &self.jobs[other.0 as usize];
            let (Some(a), Some(b)) = (&own.place, &beside.place) else {
                continue;
            };
            if !overlap(a, b) {
                continue;
            }
            let squeezed_s = match (own.stages, beside.stages) {
                (Some(mine), Some(theirs)) if !beside.opportunistic => {
                    opportunistic_period_s(seconds(&mine), seconds(&theirs), beside.iteration_s)
                }
                _ => own.iteration_s * 2.0,
            };
            period_s = period_s.max(squeezed_s);
        }
        period_s
    }
}

/// Returns whether two moments count as one: within a billionth, or within `seconds`.
fn are_close(a: f64, b: f64, seconds: f64) -> bool {
    (a - b).abs() <= (1e-9 * a.abs().max(b.abs())).max(seconds)
}

fn seconds(stages: &Stages) -> [f64; 3] {
    [0, 1, 2].map(|i| f64::from(stages.times_us[i]) / 1e6)
}

fn overlap(a: &Allocation, b: &Allocation) -> bool {
    let meets = |x: &dovetail_model::NodeShare| {
        b.shares
            .iter()
            .any(|y| x.node == y.node && x.gpus.intersects(&y.gpus))
    };
    a.shares.iter().any(meets)
}
