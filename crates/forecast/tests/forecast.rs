//! Forecasts equal what the simulator does where everything is known, cover what they should where it is not, and end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use dovetail_engine::Engine;
use dovetail_forecast::{
    EvaluateOptions, History, JobHint, JobTraits, Limits, ObservedJob, Outlook, evaluate,
};
use dovetail_model::{ClusterSpec, Command, Event, JobKey, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{Observer, SimConfig, simulate_with};
use dovetail_workload::{JobLabel, TraceJob, Workload};
use proptest::prelude::*;
use proptest::sample::select;

fn seconds(s: f64) -> Work {
    Work((s * 1e6) as u64)
}

/// Returns a workload of jobs with these GPUs and run times, all submitted in the first second.
fn at_once(jobs: &[(u32, u64)]) -> Workload {
    let job = |(i, (gpus, work_s)): (usize, &(u32, u64))| {
        let label = JobLabel::Number(i as u64);
        TraceJob::new(label, Time(i as i64), Work(work_s * 1_000_000), *gpus)
    };
    Workload {
        source: "test".to_owned(),
        jobs: jobs.iter().enumerate().map(job).collect(),
        ..Workload::default()
    }
}

/// Copies the engine at every moment after the last submission, and keeps the first start of each job.
#[derive(Default)]
struct Copies {
    engines: Vec<Engine>,
    starts: BTreeMap<JobKey, Time>,
    submitted: u32,
    jobs: u32,
}

impl Observer for Copies {
    fn event(&mut self, _: Time, event: &Event, _: &Engine) {
        self.submitted += u32::from(matches!(event, Event::Submitted(_)));
    }

    fn command(&mut self, now: Time, command: &Command) {
        if let Command::Launch { job, .. } = command {
            self.starts.entry(*job).or_insert(now);
        }
    }

    fn moment(&mut self, _: Time, engine: &Engine) -> ControlFlow<()> {
        if self.submitted == self.jobs && self.engines.len() < 40 {
            self.engines.push(engine.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Returns an outlook in which the stated run times are exact.
fn exact_outlook(engine: Engine, jobs: u32, config: &SimConfig) -> Outlook {
    let exact = |_| ObservedJob {
        traits: JobTraits::default(),
        started: Time::ZERO,
        work: Work(7),
        is_finished: true,
        expected: Some(Work(7)),
    };
    let hint = |job: &dovetail_engine::Job| {
        let hint = JobHint {
            expected: job.spec.expected,
            ..JobHint::default()
        };
        (job.spec.id, hint)
    };
    Outlook {
        hints: engine.jobs().map(hint).collect(),
        first_new: JobKey(jobs),
        config: config.for_future(),
        history: History::new((0..20).map(exact).collect()),
        arrivals: Vec::new(),
        neighbours: BTreeMap::new(),
        engine,
    }
}

fn few() -> Limits {
    Limits {
        samples: 3,
        wall: Duration::from_secs(60),
        ..Limits::default()
    }
}

proptest! {
    #![proptest_config(dovetail_testkit::any::cases(60))]

    #[test]
    fn with_exact_estimates_the_forecast_is_what_the_simulator_does(
        jobs in prop::collection::vec((1..=4u32, 1..200u64), 2..25),
        policy in select(&["fifo", "fifo-backfill", "fifo-easy", "sjf", "srtf", "srsf"][..]),
        restart_s in select(&[0i64, 5, 30][..]),
        moment in 0..40usize,
    ) {
        let workload = at_once(&jobs);
        let (built, needs) = build(policy, &Overrides::default()).unwrap();
        let config = SimConfig {
            restart_cost: Time::from_secs(restart_s),
            knowledge: Some(dovetail_sim::Knowledge::Oracle),
            ..SimConfig::new(ClusterSpec::uniform(2, 4))
        };
        let mut copies = Copies { jobs: jobs.len() as u32, ..Copies::default() };
        simulate_with(&workload, built, needs, &config, Some(&mut copies), &mut |_| {}).unwrap();
        let engine = copies.engines[moment % copies.engines.len()].clone();
        let outlook = exact_outlook(engine, jobs.len() as u32, &config);
        for job in outlook.engine.jobs().filter(|job| job.first_start.is_none()) {
            let starts = outlook.starts(job.spec.id, 1, &few());
            let actual = copies.starts[&job.spec.id];
            prop_assert_eq!((starts.at, starts.never), (vec![actual; 3], 0), "job {:?} under {}", job.spec.id, policy);
        }
    }
}

/// Returns jobs of seconds on a cluster that is nearly full: bursts of equal jobs, as in a sweep.
fn seconds_scale(count: usize) -> Workload {
    let mut state = 7u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
    };
    let mut jobs = Vec::new();
    let mut at = 0.0;
    while jobs.len() < count {
        let gpus = [1, 1, 2, 4][(uniform() * 4.0) as usize];
        let work = seconds(2.0 * (1.8 * (uniform() + uniform() + uniform() - 1.5)).exp() + 0.5);
        for _ in 0..=(uniform() * 5.0) as usize {
            let label = JobLabel::Number(jobs.len() as u64);
            jobs.push(TraceJob::new(label, Time::from_secs_f64(at), work, gpus));
            at += 0.05;
        }
        at -= 2.45 * uniform().ln();
    }
    Workload {
        source: "seconds".to_owned(),
        jobs,
        ..Workload::default()
    }
}

#[test]
fn intervals_of_jobs_of_seconds_contain_what_they_should() {
    let workload = seconds_scale(3_000);
    let (policy, needs) = build("fifo-backfill", &Overrides::default()).unwrap();
    let config = SimConfig::new(ClusterSpec::uniform(2, 4));
    let options = EvaluateOptions {
        forecasts: 400,
        samples: 40,
        ..EvaluateOptions::default()
    };
    let result = evaluate(&workload, &policy, needs, &config, &options, &mut |_| {}).unwrap();
    println!("{result:#?}");
    assert!(result.forecasts > 200, "{result:?}");
    assert!((0.85..=0.95).contains(&result.forecast.coverage), "{result:#?}");
    assert!(result.forecast.median_width_s < 60.0, "{result:#?}");
    assert!(result.width_ratio <= 0.5, "{result:#?}");
}

#[test]
fn an_evaluation_is_the_same_each_time() {
    let workload = seconds_scale(400);
    let (policy, needs) = build("srtf", &Overrides::default()).unwrap();
    let config = SimConfig {
        restart_cost: Time::from_secs(1),
        ..SimConfig::new(ClusterSpec::uniform(2, 4))
    };
    let options = EvaluateOptions {
        forecasts: 40,
        samples: 12,
        ..EvaluateOptions::default()
    };
    let run = || evaluate(&workload, &policy, needs, &config, &options, &mut |_| {}).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn a_workload_in_which_no_job_waits_is_an_error() {
    let workload = at_once(&[(1, 5), (1, 5)]);
    let (policy, needs) = build("fifo", &Overrides::default()).unwrap();
    let config = SimConfig::new(ClusterSpec::uniform(1, 4));
    let options = EvaluateOptions::default();
    let error = evaluate(&workload, &policy, needs, &config, &options, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "test: no job waits on this cluster");
}

/// Returns the outlook of a cluster with many queued jobs, and the last of them.
fn crowded() -> (Outlook, JobKey) {
    let jobs = vec![(4, 100); 200];
    let workload = at_once(&jobs);
    let (policy, needs) = build("fifo", &Overrides::default()).unwrap();
    let config = SimConfig {
        knowledge: Some(dovetail_sim::Knowledge::Oracle),
        ..SimConfig::new(ClusterSpec::uniform(1, 4))
    };
    let mut copies = Copies {
        jobs: jobs.len() as u32,
        ..Copies::default()
    };
    simulate_with(&workload, policy, needs, &config, Some(&mut copies), &mut |_| {}).unwrap();
    let outlook = exact_outlook(copies.engines[0].clone(), jobs.len() as u32, &config);
    (outlook, JobKey(199))
}

#[test]
fn work_is_limited() {
    let (outlook, last) = crowded();
    let enough = outlook.starts(last, 1, &few());
    assert_eq!((enough.at.len(), enough.never, enough.is_limited), (3, 0, false));
    let few_events = Limits { events: 50, ..few() };
    let limited = outlook.starts(last, 1, &few_events);
    assert_eq!(
        (limited.at.len(), limited.never, limited.is_limited),
        (0, 1, true)
    );
    let no_time = Limits {
        wall: Duration::ZERO,
        ..few()
    };
    let limited = outlook.starts(last, 1, &no_time);
    assert_eq!(
        (limited.at.len(), limited.never, limited.is_limited),
        (0, 0, true)
    );
    let near = Limits {
        horizon: Time::from_secs(60),
        ..few()
    };
    let limited = outlook.starts(last, 1, &near);
    assert_eq!(
        (limited.at.len(), limited.never, limited.is_limited),
        (0, 3, false)
    );
}
