//! How good forecasts are: a trace is replayed, and a sample of the jobs that wait gets a forecast at submission, with only
//! what was known then.

mod past;
mod result;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use dovetail_engine::{Engine, Knowledge, Policy};
use dovetail_model::{Command, Event, JobKey, Time};
use dovetail_sim::{Compat, Observer, SimConfig, SimError, simulate_with};
use dovetail_workload::Workload;

use crate::calibration::{Calibration, RawForecast};
use crate::outlook::Limits;
use past::Past;
use result::{Judged, Method};

pub use result::{Evaluation, MethodResult};

/// What an evaluation asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvaluateOptions {
    /// Share of starts that an interval should contain.
    pub coverage: f64,
    /// Number of forecasts.
    pub forecasts: usize,
    /// Share of the forecasts, from the first on, that only teach the calibration.
    pub warm_up: f64,
    /// Number of simulations for each forecast.
    pub samples: u32,
    /// Seed of all draws.
    pub seed: u64,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        Self {
            coverage: 0.9,
            forecasts: 500,
            warm_up: 0.2,
            samples: 60,
            seed: 1,
        }
    }
}

/// Number of earlier waits of jobs of one size below which those of all sizes count.
const MIN_WAITS: usize = 20;

/// Replays a workload and compares forecasts with the real starts. `progress` gets the number of forecasts.
///
/// # Errors
/// If the simulation fails, or no job of the workload waits.
pub fn evaluate(
    workload: &Workload,
    policy: &Policy,
    needs: Knowledge,
    config: &SimConfig,
    options: &EvaluateOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Evaluation, SimError> {
    if config.compat != Compat::Exact {
        return Err(SimError::Unsupported(
            "forecasts cannot be evaluated with --compat: they use the simulator's own model".to_owned(),
        ));
    }
    let mut waits = WaitingJobs {
        past: Past::new(workload, config),
        waiting: Vec::new(),
    };
    simulate_with(
        workload,
        policy.clone(),
        needs,
        config,
        Some(&mut waits),
        &mut |_| {},
    )?;
    let waiting = waits.waiting;
    if waiting.is_empty() {
        let source = &workload.source;
        return Err(SimError::Empty(format!("{source}: no job waits on this cluster")));
    }
    let step = waiting.len().div_ceil(options.forecasts.max(1));
    let mut replay = Replay {
        past: Past::new(workload, config),
        chosen: waiting.iter().copied().step_by(step).collect(),
        waiting: waiting.iter().copied().collect(),
        options: *options,
        limits: Limits {
            samples: options.samples,
            wall: Duration::MAX,
            ..Limits::default()
        },
        methods: Method::ALL.map(|_| Calibration::new(options.coverage)),
        waits: BTreeMap::new(),
        open: BTreeMap::new(),
        judged: Vec::new(),
        made: 0,
        progress,
    };
    simulate_with(
        workload,
        policy.clone(),
        needs,
        config,
        Some(&mut replay),
        &mut |_| {},
    )?;
    Ok(Evaluation::new(
        workload,
        &policy.name,
        config,
        waiting.len(),
        &replay.judged,
    ))
}

/// Finds the jobs that wait.
struct WaitingJobs<'a> {
    past: Past<'a>,
    waiting: Vec<JobKey>,
}

impl Observer for WaitingJobs<'_> {
    fn event(&mut self, now: Time, event: &Event, engine: &Engine) {
        self.past.event(now, event, engine);
    }

    fn command(&mut self, now: Time, command: &Command) {
        self.past.command(now, command);
    }

    fn moment(&mut self, _: Time, engine: &Engine) -> ControlFlow<()> {
        let waiting = self.past.take_waiting(engine);
        self.waiting.extend(waiting);
        ControlFlow::Continue(())
    }
}

/// A forecast by each method for a job that has not started, before and after its correction.
#[derive(Debug, Clone, Copy)]
struct OpenForecast {
    raw: [RawForecast; 2],
    judged: Judged,
    is_counted: bool,
}

/// Makes forecasts during a replay.
struct Replay<'a> {
    past: Past<'a>,
    /// Jobs that get a forecast.
    chosen: BTreeSet<JobKey>,
    /// All jobs that wait after their submission.
    waiting: BTreeSet<JobKey>,
    options: EvaluateOptions,
    limits: Limits,
    /// The calibration of each method.
    methods: [Calibration; 2],
    /// Earlier waits by the number of GPUs, in the order in which they ended.
    waits: BTreeMap<u32, Vec<Time>>,
    open: BTreeMap<JobKey, OpenForecast>,
    judged: Vec<Judged>,
    made: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Observer for Replay<'_> {
    fn event(&mut self, now: Time, event: &Event, engine: &Engine) {
        self.past.event(now, event, engine);
    }

    fn command(&mut self, now: Time, command: &Command) {
        if let Some(job) = self.past.command(now, command)
            && self.waiting.contains(&job)
        {
            self.started(job, now);
        }
    }

    fn moment(&mut self, now: Time, engine: &Engine) -> ControlFlow<()> {
        for job in self.past.take_waiting(engine) {
            if self.chosen.contains(&job) {
                self.forecast(job, now, engine);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Replay<'_> {
    /// Learns from a job that waited and has started.
    fn started(&mut self, job: JobKey, now: Time) {
        let spec = self.past.submitted(job);
        let wait = now.since(spec.submit);
        self.waits.entry(spec.gpus).or_default().push(wait);
        let Some(mut open) = self.open.remove(&job) else {
            return;
        };
        for (calibration, raw) in self.methods.iter_mut().zip(&open.raw) {
            calibration.learn(raw, now);
        }
        open.judged.start = now;
        if open.is_counted {
            self.judged.push(open.judged);
        }
    }

    /// Makes the forecasts of both methods, if both can be made.
    fn forecast(&mut self, job: JobKey, now: Time, engine: &Engine) {
        self.made += 1;
        (self.progress)(self.made);
        let coverage = self.options.coverage;
        let outlook = self.past.outlook(engine);
        let seed = self.options.seed << 32 | u64::from(job.0);
        let starts = outlook.starts(job, seed, &self.limits);
        let usual = Time(i64::try_from(outlook.history.median().0).unwrap_or(i64::MAX));
        let simulated = RawForecast::new(now, &starts.at, coverage, usual);
        let past_waits = self.past_waits(job, now);
        let from_history = RawForecast::new(now, &past_waits, coverage, usual);
        let (Some(simulated), Some(from_history)) = (simulated, from_history) else {
            return;
        };
        let raw = [simulated, from_history];
        let corrected = Method::ALL.map(|method| {
            let i = method as usize;
            let open = self.open.values().map(|open| &open.raw[i]);
            self.methods[i].correct(&raw[i], open)
        });
        let judged = Judged::new(now, raw, corrected);
        let is_counted = self.made as f64 > self.options.warm_up * self.chosen.len() as f64;
        self.open.insert(
            job,
            OpenForecast {
                raw,
                judged,
                is_counted,
            },
        );
    }

    /// Returns when the job would start after each wait of earlier jobs with as many GPUs, sorted.
    fn past_waits(&self, job: JobKey, now: Time) -> Vec<Time> {
        let gpus = self.past.submitted(job).gpus;
        let same = self.waits.get(&gpus).filter(|waits| waits.len() >= MIN_WAITS);
        let mut waits: Vec<Time> = match same {
            Some(waits) => waits.iter().map(|wait| now + *wait).collect(),
            None => self.waits.values().flatten().map(|wait| now + *wait).collect(),
        };
        waits.sort_unstable();
        waits
    }
}
