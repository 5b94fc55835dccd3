//! A run that continues from a copy of the engine does exactly what the original run does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;

use dovetail_engine::{Engine, Job};
use dovetail_model::{ClusterSpec, Command, Event, JobKey, JobSpec, Time, Work};
use dovetail_sim::{
    Compat, Future, FutureJob, Journal, MuriTime, Observer, SimConfig, TrueJob, resume, simulate_with,
};
use dovetail_testkit::any::{cases, clusters, plain, sharing_policies, steady_policies};
use dovetail_testkit::{PolicyText, Scenario};
use dovetail_workload::Workload;
use proptest::prelude::*;
use proptest::sample::select;

/// Copies the engine after some moment, and keeps the commands that follow.
struct Copier {
    moments_left: u32,
    submitted: u32,
    specs: Vec<JobSpec>,
    copy: Option<(Engine, u32)>,
    later: Vec<(Time, Command)>,
}

impl Observer for Copier {
    fn event(&mut self, _: Time, event: &Event, _: &Engine) {
        if let Event::Submitted(spec) = event {
            self.submitted += 1;
            self.specs.push(spec.clone());
        }
    }

    fn command(&mut self, now: Time, command: &Command) {
        if self.copy.is_some() {
            self.later.push((now, command.clone()));
        }
    }

    fn moment(&mut self, _: Time, engine: &Engine) -> ControlFlow<()> {
        if self.copy.is_none() && self.submitted > 0 {
            if self.moments_left == 0 {
                self.copy = Some((engine.clone(), self.submitted));
            }
            self.moments_left = self.moments_left.saturating_sub(1);
        }
        ControlFlow::Continue(())
    }
}

/// The future as it really was.
struct RealFuture<'a> {
    workload: &'a Workload,
    specs: std::vec::IntoIter<JobSpec>,
}

impl RealFuture<'_> {
    fn of(&self, id: JobKey) -> TrueJob {
        let job = &self.workload.jobs[id.0 as usize];
        TrueJob {
            work: job.work,
            checkpoint: job.checkpoint,
        }
    }
}

impl Future for RealFuture<'_> {
    fn truth(&mut self, job: &Job) -> TrueJob {
        self.of(job.spec.id)
    }

    fn next_job(&mut self) -> Option<FutureJob> {
        let spec = self.specs.next()?;
        let truth = self.of(spec.id);
        Some(FutureJob { spec, truth })
    }
}

/// Runs a scenario, and again from a copy of the engine after some moment. Returns the commands after that moment.
fn run_twice(scenario: &Scenario, config: &SimConfig, moments: u32) -> Option<[Vec<(Time, Command)>; 2]> {
    let workload = scenario.workload();
    let (policy, needs) = scenario.policy.build();
    let mut copier = Copier {
        moments_left: moments,
        submitted: 0,
        specs: Vec::new(),
        copy: None,
        later: Vec::new(),
    };
    simulate_with(&workload, policy, needs, config, Some(&mut copier), &mut |_| {}).unwrap();
    let (engine, submitted) = copier.copy?;
    let mut future = RealFuture {
        workload: &workload,
        specs: copier.specs.split_off(submitted as usize).into_iter(),
    };
    let mut journal = Journal::default();
    let config = SimConfig {
        check: true,
        ..config.for_future()
    };
    resume(engine, JobKey(submitted), &config, &mut future, &mut journal).unwrap();
    Some([copier.later, journal.commands])
}

const PRESETS: &[&str] = &[
    "fifo",
    "fifo-backfill",
    "fifo-easy",
    "srtf",
    "srsf",
    "las",
    "tiresias",
    "gittins",
];

fn presets() -> impl Strategy<Value = PolicyText> {
    select(PRESETS).prop_map(PolicyText::preset)
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn a_copy_continues_like_the_original(
        scenario in plain(clusters(), prop_oneof![presets(), steady_policies()], 25, false),
        moments in 0..60u32,
        restart_s in select(&[0i64, 3, 40][..]),
        saves in any::<bool>(),
        checkpoint_s in prop::option::of(1..30i64),
    ) {
        // Jobs that take turns would never finish if they lost their work, or if a start took as long as a turn.
        let takes_turns = scenario.policy.takes_turns();
        let config = SimConfig {
            restart_cost: if takes_turns { Time::ZERO } else { Time::from_secs(restart_s) },
            saves_on_stop: saves || takes_turns,
            checkpoint: checkpoint_s.map(Time::from_secs).or((!saves).then_some(Time::from_secs(2))),
            ..SimConfig::new(scenario.cluster.clone())
        };
        if let Some([original, again]) = run_twice(&scenario, &config, moments) {
            prop_assert_eq!(original, again);
        }
    }

    #[test]
    fn a_copy_with_shared_gpus_continues_like_the_original(
        scenario in plain(clusters(), sharing_policies(), 20, false),
        moments in 0..60u32,
    ) {
        let config = SimConfig::new(scenario.cluster.clone());
        if let Some([original, again]) = run_twice(&scenario, &config, moments) {
            prop_assert_eq!(original, again);
        }
    }
}

#[test]
fn quirks_of_other_simulators_are_refused() {
    let cluster = ClusterSpec::uniform(1, 1);
    let (policy, _) = PolicyText::preset("fifo").build();
    let config = SimConfig {
        compat: Compat::Muri(MuriTime::Alone),
        ..SimConfig::new(cluster.clone())
    };
    let engine = Engine::with_cluster(policy, config.clock, &cluster);
    let workload = Workload::default();
    let mut future = RealFuture {
        workload: &workload,
        specs: Vec::new().into_iter(),
    };
    let error = resume(engine, JobKey(0), &config, &mut future, &mut Journal::default()).unwrap_err();
    assert!(error.to_string().contains("compat"), "{error}");
}

#[test]
fn a_job_that_loses_its_work_is_as_long_again_in_the_copy() {
    // A long job runs alone and is preempted by a short one later: without a checkpoint it starts over.
    let job = |at: i64, work_s: u64| {
        let label = dovetail_workload::JobLabel::Number(0);
        dovetail_workload::TraceJob::new(label, Time::from_secs(at), Work(work_s * 1_000_000), 1)
    };
    let jobs = vec![job(0, 100), job(10, 1), job(50, 5)];
    let scenario = Scenario::plain(ClusterSpec::uniform(1, 1), PolicyText::preset("srtf"), jobs);
    let config = SimConfig {
        saves_on_stop: false,
        ..SimConfig::new(scenario.cluster.clone())
    };
    let [original, again] = run_twice(&scenario, &config, 0).unwrap();
    assert!(
        original
            .iter()
            .any(|(_, command)| matches!(command, Command::Stop { .. }))
    );
    assert_eq!(original, again);
}
