//! What jobs report while they run reaches the engine: work done, speed, checkpoints, and run times that no user stated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use dovetail_cluster::TaskEnd;
use dovetail_cluster::state::{Cause, EstimateSource, JobState};
use dovetail_cluster::{
    Actor, ClusterState, Fact, JobId, JobRequest, OperatorAction, PolicyText, StageTimes,
};
use dovetail_engine::Clock;
use dovetail_model::{NodeId, NodeSpec, Time, Work};

struct World {
    state: ClusterState,
    start: Time,
}

impl World {
    fn new(policy: &str, gpus: u32) -> Self {
        let policy = PolicyText {
            policy: policy.to_owned(),
            ..PolicyText::default()
        };
        let mut world = Self {
            state: ClusterState::new(policy, Clock::Events).unwrap(),
            start: Time::from_secs(1_000),
        };
        let joined = Fact::NodeJoined {
            node: NodeId(0),
            spec: Box::new(NodeSpec::plain("node".to_owned(), gpus)),
            gpu_type: "virtual".to_owned(),
            rack: "rack".to_owned(),
            address: String::new(),
            identity: 1,
        };
        world.apply(0, joined);
        world
    }

    /// Applies a fact this many seconds after the start.
    fn apply(&mut self, second: i64, fact: Fact) {
        self.state.apply(self.start + Time::from_secs(second), &fact);
        self.state.check().unwrap();
    }

    fn submit(&mut self, second: i64, expected: Option<i64>, total_steps: Option<u64>) -> JobId {
        let job = self.state.next_job();
        let request = JobRequest {
            command: vec!["true".to_owned()],
            expected: expected.map(Time::from_secs),
            total_steps,
            ..JobRequest::default()
        };
        let fact = Fact::Submitted {
            job,
            user: "ann".to_owned(),
            request: Arc::new(request),
            key: None,
        };
        self.apply(second, fact);
        self.start_if_launched(second, job);
        job
    }

    fn attempt(&self, job: JobId) -> u64 {
        self.state.job(job).unwrap().attempt().unwrap().id
    }

    fn start_if_launched(&mut self, second: i64, job: JobId) {
        if self.state.job(job).unwrap().state == JobState::Starting {
            let started = Fact::TaskStarted {
                job,
                attempt: self.attempt(job),
                node: NodeId(0),
                sharing: String::new(),
                remarks: Vec::new(),
            };
            self.apply(second, started);
        }
    }

    fn report(&mut self, second: i64, job: JobId, (step, total_steps): (u64, u64), step_ms: i64) {
        let fact = Fact::Progressed {
            job,
            attempt: self.attempt(job),
            step,
            total_steps,
            step_time: Time(step_ms * 1000),
            data_time: Time::ZERO,
            checkpoint_step: 0,
            stages: None,
        };
        self.apply(second, fact);
    }

    /// Ends the task of a job: stopped with a checkpoint after this step, or completed.
    fn end(&mut self, second: i64, job: JobId, checkpoint: Option<u64>) {
        let end = TaskEnd {
            was_stopped: checkpoint.is_some(),
            checkpoint_step: checkpoint.unwrap_or(0),
            ..TaskEnd::default()
        };
        let fact = Fact::TaskEnded {
            job,
            attempt: self.attempt(job),
            node: NodeId(0),
            end: Box::new(end),
        };
        self.apply(second, fact);
        for job in 1..self.state.next_job() {
            self.start_if_launched(second, job);
        }
    }

    fn word(&self, job: JobId) -> &'static str {
        match self.state.job(job).unwrap().state {
            JobState::Held(_) => "held",
            JobState::Queued => "queued",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Stopping(_) => "stopping",
            JobState::Ended(_) => "ended",
        }
    }
}

#[test]
fn a_stopped_job_resumes_from_its_checkpoint_and_is_ordered_by_what_is_left() {
    // A takes 30 s, B comes at 20 and takes 5 s, C comes at 22 and takes 20 s.
    let mut world = World::new("srtf", 1);
    let a = world.submit(0, Some(30), Some(300));
    world.report(19, a, (190, 300), 100);
    let b = world.submit(20, Some(5), None);
    assert_eq!((world.word(a), world.word(b)), ("stopping", "queued"));
    world.end(20, a, Some(200));
    assert_eq!(world.word(b), "running");
    let c = world.submit(22, Some(20), None);
    world.end(25, b, None);
    assert_eq!(
        (world.word(a), world.word(c)),
        ("running", "queued"),
        "A has 10 s left"
    );
}

#[test]
fn what_a_restart_costs_is_measured_from_the_stop_to_the_first_new_step() {
    let mut world = World::new("srtf", 1);
    let a = world.submit(0, Some(30), Some(300));
    world.report(19, a, (190, 300), 100);
    let b = world.submit(20, Some(5), None);
    // It takes 3 s to stop, and 40 steps of 0.1 s are done again. The 5 s of B do not count.
    world.end(23, a, Some(150));
    assert_eq!(world.word(b), "running");
    world.end(28, b, None);
    let cost = |world: &World| world.state.profiles().get("~ann/").unwrap().restarts.cost();
    assert_eq!(cost(&world), None);
    world.report(30, a, (150, 300), 100);
    assert_eq!(cost(&world), None, "no new step");
    // Ten new steps by now: the first ended 6.1 s after the launch.
    world.report(35, a, (160, 300), 100);
    assert_eq!(cost(&world), Some(Time(13_100_000)));
    world.report(36, a, (170, 300), 100);
    let profile = world.state.profiles().get("~ann/").unwrap();
    assert_eq!(profile.restarts.count(), 1);
}

#[test]
fn a_job_keeps_its_width_as_long_as_its_measured_restart_demands() {
    let mut world = World::new("elastic-fifo:interval=0", 4);
    let elastic = JobRequest {
        gpus: 2,
        max_gpus: Some(4),
        expected: Some(Time::from_secs(1_000)),
        total_steps: Some(10_000),
        ..named("elastic")
    };
    let a = submit_request(&mut world, 0, elastic);
    world.report(10, a, (200, 10_000), 50);
    let rigid = JobRequest {
        gpus: 2,
        expected: Some(Time::from_secs(20)),
        ..named("rigid")
    };
    let b = submit_request(&mut world, 12, rigid);
    // No restart was measured: it shrinks at once.
    assert_eq!((world.word(a), world.word(b)), ("stopping", "queued"));
    world.end(14, a, Some(240));
    assert_eq!((world.word(a), world.word(b)), ("running", "running"));
    // 2 s to stop, and 0.1 s to the first of 60 steps: 2.1 s are a twentieth of 42 s.
    world.report(20, a, (300, 10_000), 100);
    let profile = world.state.profiles().get("~ann/elastic").unwrap();
    assert_eq!(profile.restarts.cost(), Some(Time(2_100_000)));
    world.end(34, b, None);
    assert_eq!(world.word(a), "running", "its width changed 20 s ago");
    let saved = world.state.save().unwrap();
    world.apply(55, Fact::Woke);
    assert_eq!(world.word(a), "running");
    world.apply(56, Fact::Woke);
    assert_eq!(world.word(a), "stopping");
    // A restart of the server keeps what was learned; the time counts from there.
    world.state = ClusterState::load(&saved).unwrap();
    world.apply(75, Fact::Woke);
    assert_eq!(world.word(a), "running");
    world.apply(76, Fact::Woke);
    assert_eq!(world.word(a), "stopping");
}

#[test]
fn a_job_that_is_nearly_done_is_not_preempted_for_a_long_one() {
    let mut world = World::new("srsf", 1);
    let first = world.submit(0, Some(60), Some(60));
    // Faster than its user stated: four seconds are left.
    world.report(8, first, (40, 60), 200);
    let long = world.submit(9, Some(30), None);
    assert_eq!((world.word(first), world.word(long)), ("running", "queued"));
}

#[test]
fn a_run_time_that_no_user_stated_follows_from_steps() {
    let mut world = World::new("srtf", 1);
    let job = world.submit(0, None, None);
    assert_eq!(world.state.job(job).unwrap().estimate(), None);
    world.report(10, job, (100, 1_000), 100);
    let estimate = world.state.job(job).unwrap().estimate().unwrap();
    assert_eq!(
        (estimate.expected, estimate.source),
        (Work(100_000_000), EstimateSource::Steps)
    );
    // 90 s are left, so a job of 60 s is ahead of it, and one of 95 s is not.
    let longer = world.submit(10, Some(95), None);
    assert_eq!((world.word(job), world.word(longer)), ("running", "queued"));
    world.submit(10, Some(60), None);
    assert_eq!(world.word(job), "stopping");
}

#[test]
fn a_slower_job_than_stated_is_overtaken_when_that_is_seen() {
    let mut world = World::new("srtf", 1);
    let slow = world.submit(0, Some(100), Some(100));
    let other = world.submit(50, Some(80), None);
    assert_eq!(world.word(slow), "running", "50 s are left as far as is known");
    // It is at step 10 instead of 50.
    world.report(51, slow, (10, 100), 5_100);
    assert_eq!((world.word(slow), world.word(other)), ("stopping", "queued"));
}

#[test]
fn work_survives_hold_and_release() {
    let mut world = World::new("srtf", 1);
    let job = world.submit(0, Some(30), Some(300));
    world.report(20, job, (200, 300), 100);
    let by = Actor::user("ann");
    world.apply(20, Fact::Held { job, by: by.clone() });
    world.end(20, job, Some(200));
    assert_eq!(world.word(job), "held");
    let other = world.submit(21, Some(15), None);
    world.apply(22, Fact::Released { job, by });
    assert_eq!(
        (world.word(job), world.word(other)),
        ("queued", "stopping"),
        "10 s are left of 30"
    );
}

#[test]
fn work_without_a_checkpoint_is_lost() {
    let mut world = World::new("srtf", 1);
    let job = world.submit(0, Some(30), Some(300));
    world.report(20, job, (200, 300), 100);
    let short = world.submit(20, Some(5), None);
    world.end(20, job, Some(0));
    let other = world.submit(22, Some(20), None);
    world.end(25, short, None);
    assert_eq!(
        (world.word(job), world.word(other)),
        ("queued", "running"),
        "30 s are left again"
    );
}

/// Submits a job by request, and starts it if it is launched.
fn submit_request(world: &mut World, second: i64, request: JobRequest) -> JobId {
    let job = world.state.next_job();
    let fact = Fact::Submitted {
        job,
        user: "ann".to_owned(),
        request: Arc::new(request),
        key: None,
    };
    world.apply(second, fact);
    world.start_if_launched(second, job);
    job
}

fn named(name: &str) -> JobRequest {
    JobRequest {
        command: vec!["true".to_owned()],
        name: name.to_owned(),
        ..JobRequest::default()
    }
}

#[test]
fn run_times_of_similar_jobs_order_jobs_without_one() {
    let mut world = World::new("srtf", 1);
    for (i, (name, seconds)) in [("long-1", 100), ("long-2", 120), ("short-1", 10), ("short-2", 14)]
        .into_iter()
        .enumerate()
    {
        let second = 1_000 * i as i64;
        let job = submit_request(&mut world, second, named(name));
        assert_eq!(world.word(job), "running");
        world.end(second + seconds, job, None);
    }
    let first = world.submit(10_000, Some(1), None);
    let long = submit_request(&mut world, 10_000, named("long-3"));
    let short = submit_request(&mut world, 10_000, named("short-3"));
    let estimate = |world: &World, job| world.state.job(job).unwrap().estimate().unwrap();
    assert_eq!(estimate(&world, long).source, EstimateSource::Prediction);
    assert_eq!(estimate(&world, long).expected, Work(100_000_000));
    assert_eq!(estimate(&world, short).expected, Work(10_000_000));
    // A restart keeps the predictions and what they are based on.
    world.state = ClusterState::load(&world.state.save().unwrap()).unwrap();
    world.end(10_001, first, None);
    assert_eq!((world.word(short), world.word(long)), ("running", "queued"));
    let stated = submit_request(
        &mut world,
        10_002,
        JobRequest {
            expected: Some(Time::from_secs(3)),
            ..named("long-4")
        },
    );
    assert_eq!(
        (estimate(&world, stated).source, world.word(short)),
        (EstimateSource::User, "stopping"),
        "what the user states counts"
    );
}

#[test]
fn a_model_that_was_measured_needs_only_a_number_of_steps() {
    let mut world = World::new("srtf", 2);
    let bert = |total_steps: Option<u64>| JobRequest {
        model: Some("bert".to_owned()),
        total_steps,
        ..named("train")
    };
    let first = submit_request(&mut world, 0, bert(None));
    let record = |world: &World, job| world.state.job(job).unwrap().clone();
    for second in 1..=3 {
        let progress = Fact::Progressed {
            job: first,
            attempt: world.attempt(first),
            step: 10 * second as u64,
            total_steps: 1_000,
            step_time: Time(100_000),
            data_time: Time(30_000),
            checkpoint_step: 0,
            stages: None,
        };
        world.apply(second, progress);
    }
    let profile = world.state.profiles().get("bert").unwrap();
    assert_eq!((profile.jobs, profile.on(1).unwrap().count), (1, 3));
    let second = submit_request(&mut world, 10, bert(Some(500)));
    let estimate = record(&world, second).estimate().unwrap();
    assert_eq!(
        (estimate.source, estimate.expected),
        (EstimateSource::Profile, Work(50_000_000))
    );
    let engine = world.state.engine();
    let spec = engine
        .jobs()
        .find(|job| job.spec.expected == Some(Work(50_000_000)));
    let stages = spec.unwrap().spec.stages.unwrap();
    assert_eq!(
        (stages.times_us, stages.iteration_us),
        ([30_000, 70_000, 0, 0], 100_000)
    );
    // It is forgotten, but what a queued or running job was told stays.
    let forget = Fact::Operated {
        action: OperatorAction::ForgetProfile("bert".to_owned()),
        by: Actor::user("root"),
    };
    world.apply(11, forget);
    assert!(world.state.profiles().is_empty());
    assert!(record(&world, second).estimate().is_some());
    let third = submit_request(&mut world, 12, bert(Some(500)));
    assert_eq!(record(&world, third).estimate(), None);
}

#[test]
fn models_that_slow_one_another_down_do_not_share_again() {
    let mut world = World::new("sjf-bsbf-no-preempt", 1);
    let request = |model: &str, data_ms: i64| JobRequest {
        model: Some(model.to_owned()),
        expected: Some(Time::from_secs(100)),
        stages: Some(StageTimes {
            data: Time(1_000 * data_ms),
            gpu: Time(1_000 * (100 - data_ms)),
            net: Time::ZERO,
        }),
        ..named("train")
    };
    let (loads, computes) = (request("loads", 90), request("computes", 10));
    let measure = |world: &mut World, from: i64, job, step_ms| {
        for second in 0..3 {
            world.report(from + second, job, (10 * (second + 1) as u64, 1_000), step_ms);
        }
    };
    let alone = submit_request(&mut world, 0, computes.clone());
    measure(&mut world, 1, alone, 100);
    world.end(5, alone, None);
    let first = submit_request(&mut world, 10, loads.clone());
    measure(&mut world, 11, first, 100);
    let second = submit_request(&mut world, 20, computes.clone());
    assert_eq!(world.word(second), "running", "by their stages they fit together");
    measure(&mut world, 21, first, 250);
    measure(&mut world, 21, second, 250);
    let profile = world.state.profiles().get("loads").unwrap();
    assert_eq!(profile.slowdowns().collect::<Vec<_>>(), [("computes", 1, 2.5)]);
    world.end(30, first, None);
    world.end(31, second, None);

    let first = submit_request(&mut world, 40, loads.clone());
    let second = submit_request(&mut world, 41, computes.clone());
    assert_eq!((world.word(first), world.word(second)), ("running", "queued"));
    world.state = ClusterState::load(&world.state.save().unwrap()).unwrap();
    let third = submit_request(&mut world, 42, computes);
    assert_eq!(world.word(third), "queued", "also after a restart");
    for model in ["loads", "computes"] {
        let forget = Fact::Operated {
            action: OperatorAction::ForgetProfile(model.to_owned()),
            by: Actor::user("root"),
        };
        world.apply(43, forget);
    }
    world.apply(44, Fact::Woke);
    assert_ne!(world.word(second), "queued", "forgotten, the stages count again");
}

#[test]
fn an_attempt_that_the_runtime_aborts_stops_and_its_job_is_queued_again() {
    let mut world = World::new("fifo", 1);
    let job = world.submit(0, Some(30), None);
    let abort = |attempt| Fact::AttemptAborted {
        job,
        attempt,
        reason: "a pod was deleted".to_owned(),
    };
    world.apply(5, abort(world.attempt(job) + 1));
    assert_eq!(
        world.word(job),
        "running",
        "an attempt that is not the current one"
    );
    world.apply(5, abort(world.attempt(job)));
    assert_eq!(world.word(job), "stopping");
    let other = world.submit(6, Some(30), None);
    world.end(7, job, Some(0));
    assert_eq!(
        (world.word(job), world.word(other)),
        ("running", "queued"),
        "it keeps its place in the queue"
    );
    let record = world.state.job(job).unwrap();
    assert_eq!((record.attempts.len(), record.failures.platform), (2, 0));
    assert!(
        matches!(&record.attempts[0].cause, Some(Cause::Platform(reason)) if reason == "a pod was deleted")
    );
    world.apply(8, abort(record.attempts[0].id));
    assert_eq!(
        world.word(job),
        "running",
        "a repeated fact about an earlier attempt"
    );
}
