//! Regressions: bugs that were found, as the shortest stories that show them.

use dovetail_engine::{Engine, Snapshot};
use dovetail_model::{AttemptKey, Command, Event, JobKey, JobSpec, Rate, Stages, Time, Work};
use dovetail_testkit::{Call, Scenario, World, check, replay};

/// Runs a story to its end.
fn run(story: &str) -> (Scenario, World) {
    let scenario: Scenario = story.parse().unwrap();
    let mut world = World::new(&scenario);
    world.run();
    (scenario, world)
}

#[test]
fn a_node_returns_empty_even_if_the_gang_lost_with_it_has_not_stopped() {
    check(
        "cluster 1x1
         policy fifo
         stop-delay 2s
         0 submit a gpus=1 work=10s
         0 submit b gpus=1 work=1s
         1 node-down 0
         1 node-up 0",
        "0 launch a on 0:[0]
         1 stop a node-lost 0
         1 launch b on 0:[0]
         2 done b
         3 stopped a
         3 launch a on 0:[0]
         12 done a",
    );
}

#[test]
fn a_late_answer_of_a_lost_job_does_not_free_what_other_jobs_hold() {
    // Job a is lost with the node, b starts there and is stopped for c; then a answers.
    check(
        "cluster 1x1
         policy srtf
         stop-delay 5s
         0 submit a gpus=1 work=100s
         1 node-down 0
         1 node-up 0
         2 submit b gpus=1 work=50s
         3 submit c gpus=1 work=1s",
        "0 launch a on 0:[0]
         1 stop a node-lost 0
         2 launch b on 0:[0]
         3 stop b preempted
         6 stopped a
         8 stopped b
         8 launch c on 0:[0]
         9 done c
         9 launch b on 0:[0]
         53 done b
         53 launch a on 0:[0]
         152 done a",
    );
}

#[test]
fn a_placed_job_is_not_launched_on_a_draining_node() {
    check(
        "cluster 1x4 1x4
         policy srtf
         stop-delay 10s
         0 submit a gpus=4 work=100s
         0 submit b gpus=4 work=100s
         1 submit c gpus=4 work=10s
         5 drain 1
         20 resume 1",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         1 stop b preempted
         5 stop a preempted
         11 stopped b
         15 stopped a
         15 launch c on 0:[0-3]
         20 launch a on 1:[0-3]
         25 done c
         25 launch b on 0:[0-3]
         105 done a
         114 done b",
    );
}

#[test]
fn cpu_and_memory_of_a_stopping_job_are_not_given_to_others() {
    // Job b gets other GPUs than a held, but needs the CPU that a uses until it has stopped.
    check(
        "cluster 1x4,cpu=4
         policy srtf
         stop-delay 5s
         0 submit z gpus=2 work=0.5s
         0 submit a gpus=2 work=100s cpu=2
         1 submit b gpus=2 work=10s cpu=1
         1 explain b",
        "0 launch z on 0:[0-1]
         0 launch a on 0:[2-3]
         0.5 done z
         1 stop a preempted
         1 b: waits since 1: no node has 1 CPU cores and 0 MiB of memory free for each GPU
         6 stopped a
         6 launch b on 0:[0-1]
         16 done b
         16 launch a on 0:[0-1]
         110 done a",
    );
}

#[test]
fn a_repeated_submission_does_not_restart_a_job_that_has_ended() {
    let (_, mut world) = run("cluster 1x1\n 0 submit a work=5s");
    let Some(Call::Handle(_, submitted @ Event::Submitted(_))) = world.calls().first().cloned() else {
        panic!("the first event is the submission");
    };
    world.engine.handle(world.now(), submitted);
    assert_eq!(world.engine.poll(), None);
    assert_eq!(world.engine.idle(), (0, 0));
}

#[test]
fn a_snapshot_keeps_queue_membership_and_stale_keys() {
    // With rounds, a snapshot that lost track of stale keys asked to be woken at the next round.
    let (scenario, world) = run("cluster 1x4
         policy tiresias:limits=20/200,promote=2
         rounds 60s
         stop-delay 5s
         0 submit a gpus=4 work=100s
         7 submit b gpus=2 work=100s cpu=1
         61 submit c gpus=4 work=300s");
    for cut in 0..world.calls().len() {
        let mut engine = scenario.engine();
        replay(&mut engine, &world.calls()[..cut]).unwrap();
        let text = serde_json::to_string(&engine).unwrap();
        let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
        let mut restored = Engine::restore(snapshot, scenario.policy.build().0).unwrap();
        assert_eq!(restored.wake_at(), engine.wake_at(), "after call {cut}");
        assert_eq!(
            serde_json::to_string(&restored).unwrap(),
            text,
            "after call {cut}"
        );
        replay(&mut restored, &world.calls()[cut..]).unwrap();
    }
}

#[test]
fn a_job_that_stops_just_after_a_decision_is_considered_again() {
    let scenario: Scenario = "cluster 1x1\n policy srtf".parse().unwrap();
    let mut engine = scenario.engine();
    let submit = |engine: &mut Engine, at: i64, id: u32, work: u64| {
        let expected = Some(Work(work * 1_000_000));
        let spec = JobSpec {
            expected,
            ..JobSpec::new(JobKey(id), 1)
        };
        engine.handle(Time::from_secs(at), Event::Submitted(spec));
    };
    let (job, attempt) = (JobKey(0), AttemptKey(1));
    submit(&mut engine, 0, 0, 100);
    assert!(matches!(engine.poll(), Some(Command::Launch { .. })));
    engine.handle(
        Time::ZERO,
        Event::Started {
            job,
            attempt,
            rate: Rate::FULL,
        },
    );
    submit(&mut engine, 1, 1, 10);
    assert!(matches!(engine.poll(), Some(Command::Stop { .. })));
    // While the first job stops, the second is cancelled. That decision does not consider the first job, which has
    // stopped by the end of the same moment.
    engine.handle(Time::from_secs(5), Event::Cancelled { job: JobKey(1) });
    assert_eq!(engine.poll(), None);
    engine.handle(
        Time::from_secs(5),
        Event::Stopped {
            job,
            attempt,
            done: Work(0),
        },
    );
    assert!(matches!(
        engine.poll(),
        Some(Command::Launch { job: JobKey(0), .. })
    ));
}

#[test]
fn a_change_of_a_profile_leads_to_a_decision_only_if_the_policy_looks_at_it() {
    let decisions = |policy: &str, change: fn(&mut JobSpec)| {
        let scenario: Scenario = format!("cluster 1x1\n policy {policy}").parse().unwrap();
        let mut engine = scenario.engine();
        let mut spec = JobSpec::new(JobKey(0), 1);
        spec.expected = Some(Work(100_000_000));
        engine.handle(Time::ZERO, Event::Submitted(spec.clone()));
        while engine.poll().is_some() {}
        let before = engine.decisions();
        change(&mut spec);
        let profile = Box::new(spec.profile());
        engine.handle(
            Time::from_secs(1),
            Event::Respecified {
                job: JobKey(0),
                profile,
            },
        );
        while engine.poll().is_some() {}
        engine.decisions() - before
    };
    let stages: fn(&mut JobSpec) = |spec| spec.stages = Some(Stages::three(10, 20, 0, 30));
    let length: fn(&mut JobSpec) = |spec| spec.expected = Some(Work(50_000_000));
    assert_eq!(decisions("srtf", stages), 0);
    assert_eq!(decisions("srtf", length), 1);
    assert_eq!(decisions("fifo", length), 0);
    assert_eq!(decisions("muri-l", stages), 1);
}

#[test]
fn an_expiring_sort_key_leads_to_a_decision() {
    // Job a has used its quantum at 10, b at 20; nothing else happens at these moments.
    check(
        "cluster 1x1
         policy las:quantum=10s
         0 submit a work=25s
         0 submit b work=15s",
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch b on 0:[0]
         20 stop b preempted
         20 launch a on 0:[0]
         30 stop a preempted
         30 launch b on 0:[0]
         35 done b
         35 launch a on 0:[0]
         40 done a",
    );
}

#[test]
fn a_key_that_expires_before_a_late_wake_leads_to_a_decision() {
    // Job a has used its quantum at 10. A report comes at 11, before the wake, and renews its key.
    let scenario: Scenario = "cluster 1x1
         policy las:quantum=10s"
        .parse()
        .unwrap();
    let mut engine = scenario.engine();
    for job in 0..2 {
        let spec = JobSpec::new(JobKey(job), 1);
        engine.handle(Time::ZERO, Event::Submitted(spec));
    }
    assert!(matches!(engine.poll(), Some(Command::Launch { .. })));
    assert_eq!(engine.poll(), None);
    let started = Event::Started {
        job: JobKey(0),
        attempt: AttemptKey(1),
        rate: Rate::FULL,
    };
    engine.handle(Time::from_secs(11), started);
    assert_eq!(engine.poll(), None);
    assert_eq!(engine.wake_at(), Some(Time::from_secs(10)));
    engine.handle(Time::from_secs(12), Event::Wake);
    assert!(matches!(
        engine.poll(),
        Some(Command::Stop { job: JobKey(0), .. })
    ));
}

#[test]
fn shared_gpus_are_free_when_the_last_job_of_the_group_has_stopped() {
    let story = "cluster 1x1
         policy muri-s
         0 submit a work=50s stages=60/20/10
         0 submit b work=50s stages=10/20/60
         1 submit c work=1s";
    let scenario: Scenario = story.parse().unwrap();
    let mut engine = scenario.engine();
    let submit = |engine: &mut Engine, at: i64, job: u32| {
        let spec = scenario.jobs[job as usize].spec(JobKey(job));
        engine.handle(Time::from_secs(at), Event::Submitted(spec));
    };
    let commands = |engine: &mut Engine| std::iter::from_fn(|| engine.poll()).count();
    let stopped = |job: u32| Event::Stopped {
        job: JobKey(job),
        attempt: AttemptKey(1),
        done: Work(0),
    };
    submit(&mut engine, 0, 0);
    submit(&mut engine, 0, 1);
    assert_eq!(commands(&mut engine), 2, "both jobs are launched on one GPU");
    submit(&mut engine, 1, 2);
    assert_eq!(commands(&mut engine), 2, "both jobs are stopped for the third");
    engine.handle(Time::from_secs(2), stopped(0));
    assert_eq!(engine.poll(), None, "one of them has not stopped");
    engine.handle(Time::from_secs(3), stopped(1));
    assert!(matches!(
        engine.poll(),
        Some(Command::Launch { job: JobKey(2), .. })
    ));
}

#[test]
fn a_greedy_job_asks_for_no_more_than_the_nodes_it_can_use_have() {
    // Alexnet prefers more than one GPU's share of a node, but only the smallest node has GPUs with enough memory.
    check(
        "cluster 1x2,gpumem=6144 1x1,gpumem=12288
         policy fifo sizing=greedy
         0 submit a work=10s gpumem=7168 curve=alexnet",
        "0 launch a on 1:[0]
         10 done a",
    );
}
