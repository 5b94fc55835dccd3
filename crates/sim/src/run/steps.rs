//! Progress as Muri's simulator counts it: at every event each running job is credited the iterations since the event
//! before, less its start-up time, and its end is foreseen anew as if nothing would happen any more.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::stages::period_s;
use dovetail_model::{Allocation, Event, JobId, Stages, Time, Work};
use dovetail_workload::Workload;

use super::Run;
use crate::compat::{opportunistic_period_s, start_up_s};
use crate::config::MuriTime;
use crate::sharing::seat;
use crate::truth::Teller;

/// An iteration takes so much longer alone than the trace says.
const SLOWER_ALONE: f64 = 1.015;

/// The run time of a job in this simulator.
pub(crate) fn slower_alone(work: Work) -> Work {
    Work((work.0 as f64 * SLOWER_ALONE).round() as u64)
}

/// All jobs by their iterations.
#[derive(Debug)]
pub(super) struct Steps {
    time: MuriTime,
    jobs: Vec<Stepping>,
    running: BTreeSet<JobId>,
    /// The next ends, all at one moment.
    ends: Option<(Time, Vec<JobId>)>,
}

/// One job by its iterations.
#[derive(Debug, Clone)]
struct Stepping {
    /// Iterations left.
    left: f64,
    /// Seconds of an iteration alone.
    iteration_s: f64,
    /// Seconds of an iteration from now on.
    period_s: f64,
    /// What a start of this job costs.
    start_up_s: f64,
    /// What each interval costs it now.
    charge_s: f64,
    last: Time,
    stages: Option<Stages>,
    opportunistic: bool,
    place: Option<Allocation>,
}

impl Steps {
    pub(super) fn new(time: MuriTime, workload: &Workload, teller: &Teller) -> Self {
        let step = |job: &dovetail_workload::TraceJob| {
            let iterations = job.iterations.unwrap_or(1).max(1) as f64;
            let iteration_ms = job.work.0 as f64 / iterations / 1000.0;
            let iteration_s = iteration_ms * SLOWER_ALONE / 1000.0;
            let model = job.model.map(|m| workload.names.models[m].as_str());
            let start_up_s = start_up_s(model, job.gpus);
            Stepping {
                left: iterations,
                iteration_s,
                period_s: iteration_s,
                start_up_s,
                charge_s: start_up_s,
                last: Time::ZERO,
                stages: teller.stages(job),
                opportunistic: job.priority < 0,
                place: None,
            }
        };
        Self {
            time,
            jobs: workload.jobs.iter().map(step).collect(),
            running: BTreeSet::new(),
            ends: None,
        }
    }

    /// When the next job ends, if nothing happens before.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.ends.as_ref().map(|(at, _)| *at)
    }

    pub(super) fn launched(&mut self, id: JobId, place: Allocation, now: Time) {
        self.running.insert(id);
        let job = &mut self.jobs[id.0 as usize];
        (job.last, job.place) = (now, Some(place));
    }

    pub(super) fn gone(&mut self, id: JobId) {
        self.running.remove(&id);
        self.jobs[id.0 as usize].place = None;
    }

    /// How long an iteration of each running job takes where it is, and what an interval costs it.
    fn set_periods(
        &mut self,
        contention: &dovetail_model::stages::Contention,
        ordering: dovetail_model::stages::Ordering,
    ) {
        match self.time {
            MuriTime::Alone | MuriTime::Queues => {}
            MuriTime::Groups => {
                let mut groups: BTreeMap<_, Vec<JobId>> = BTreeMap::new();
                for id in &self.running {
                    if let Some(place) = &self.jobs[id.0 as usize].place {
                        groups.entry(seat(place)).or_default().push(*id);
                    }
                }
                for members in groups.into_values() {
                    let job = |id: &JobId| &self.jobs[id.0 as usize];
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
                let slowed: Vec<(JobId, f64)> = self
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

    /// The iteration time of an opportunistic job beside all those it shares GPUs with: the slowest of them counts.
    fn squeezed_s(&self, id: JobId) -> f64 {
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

impl Run<'_> {
    /// Credits everyone who runs with the iterations up to now, and tells the engine.
    pub(super) fn step_all(&mut self) {
        let Some(steps) = &mut self.steps else { return };
        let now = self.now;
        let mut told = Vec::with_capacity(steps.running.len());
        for id in &steps.running {
            let job = &mut steps.jobs[id.0 as usize];
            let ran_s = (now.since(job.last).as_secs_f64() - job.charge_s).max(0.0);
            job.left -= ran_s / job.period_s;
            job.last = now;
            let truth = &mut self.truths[id.0 as usize];
            let left_us = job.left * job.iteration_s * 1e6;
            truth.left = Work((left_us.round() as u64).max(1));
            truth.since = now;
            let done = slower_alone(self.workload.jobs[id.0 as usize].work).minus(truth.left);
            told.push(Event::Progressed {
                job: *id,
                generation: truth.generation,
                done,
                rate: truth.rate,
            });
        }
        told.into_iter().for_each(|event| self.tell(event));
    }

    /// Foresees the next end, as if nothing happened before it.
    pub(super) fn foresee(&mut self) {
        let Some(steps) = &mut self.steps else { return };
        steps.set_periods(&self.config.contention, self.config.interleaving);
        let now_s = self.now.as_secs_f64();
        let ends: Vec<(JobId, f64)> = steps
            .running
            .iter()
            .map(|id| (*id, &steps.jobs[id.0 as usize]))
            .map(|(id, job)| (id, now_s + job.left * job.period_s))
            .collect();
        let first_s = ends.iter().map(|(_, at)| *at).fold(f64::INFINITY, f64::min);
        let close = match steps.time {
            MuriTime::Queues => 0.0,
            MuriTime::Alone | MuriTime::Groups => 1e-9 * first_s,
            MuriTime::Guaranteed => (1e-9 * first_s).max(1e-4),
        };
        let ending: Vec<JobId> = ends
            .into_iter()
            .filter(|(_, at_s)| at_s - first_s <= close)
            .map(|(id, _)| id)
            .collect();
        let mut at = Time::from_secs_f64(first_s.min(1e12)).max(self.now);
        if steps.time == MuriTime::Groups {
            // An arrival that is nearly at the same time is the same event.
            let arrival = self.workload.jobs.get(self.truths.len()).map(|j| j.submit);
            let near = |t: &Time| (t.as_secs_f64() - first_s).abs() <= (1e-9 * first_s).max(1e-4);
            at = arrival.filter(near).unwrap_or(at);
        }
        steps.ends = (!ending.is_empty()).then_some((at, ending));
    }

    /// Ends the jobs whose end was foreseen for this moment.
    pub(super) fn end_foreseen(&mut self) {
        let Some(steps) = &mut self.steps else { return };
        let now = self.now;
        if let Some((_, jobs)) = steps.ends.take_if(|(at, _)| *at <= now) {
            for id in jobs {
                self.events += 1;
                let truth = &self.truths[id.0 as usize];
                self.end(id, truth.generation, truth.epoch);
            }
        }
    }
}
