//! "Why does it wait?": the right reason in every situation, as people read it.

use dovetail_engine::Explanation;
use dovetail_model::{JobId, Reason, Time};
use dovetail_testkit::{Scenario, World, tell};

/// Tells the story and compares only the answers to its questions.
fn check(story: &str, expected: &str) {
    let trace = tell(story);
    let answers = trace
        .lines()
        .filter(|l| l.contains(": ") && !l.contains("reject"));
    let answers: Vec<&str> = answers.map(|l| l.split_once(' ').unwrap().1).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(answers, expected, "\nthe whole trace:\n{trace}");
}

#[test]
fn a_running_a_stopping_and_an_unknown_job() {
    check(
        "cluster 2x4
         policy srtf
         stop-delay 5s
         0 submit a gpus=6 work=100s
         2 explain a
         3 submit b gpus=8 work=10s
         3 explain a
         3 explain b
         20 explain b",
        "a: runs since 0 on 6 GPUs, 2 nodes
         a: stops
         b: waits since 3: placed; waits for 6 GPUs to be given up
         b: unknown",
    );
}

#[test]
fn a_job_that_does_not_fit_hears_what_is_free() {
    check(
        "cluster 2x4
         policy fifo-backfill placement=consolidate:strict=true
         0 submit a gpus=3 work=100s
         0 submit b gpus=3 work=100s
         0 submit c gpus=4 work=100s
         0 submit d gpus=2 work=100s
         1 explain c
         1 explain d",
        "c: waits since 0: asks for 4 GPUs, 2 are free
         d: waits since 0: asks for 2 GPUs; 2 are free, but at most 1 in one acceptable place",
    );
}

#[test]
fn cpu_and_memory_are_told_apart_from_gpus() {
    check(
        "cluster 1x4,cpu=8
         policy fifo
         0 submit a gpus=2 work=100s cpu=3
         0 submit b gpus=2 work=100s cpu=1.5
         1 explain b",
        "b: waits since 0: no node has 1.5 cores and 0 MiB free beside each GPU",
    );
}

#[test]
fn behind_in_line_only_where_the_head_blocks() {
    let jobs = "0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         0 submit c gpus=1 work=100s
         0 submit d gpus=2 work=100s
         1 explain c
         1 explain d";
    check(
        &format!("cluster 1x4\n policy fifo\n {jobs}"),
        "c: waits since 0: job 1 is ahead in line, and it may not pass it
         d: waits since 0: asks for 2 GPUs, 1 are free; 2 jobs are ahead in line, job 1 first, and it may not pass them",
    );
    check(
        &format!("cluster 1x4\n policy fifo-backfill\n {jobs}"),
        "c: runs since 0 on 1 GPUs, 1 nodes
         d: waits since 0: asks for 2 GPUs, 0 are free",
    );
}

#[test]
fn gpus_kept_for_the_head_are_named_with_its_start() {
    check(
        "cluster 1x4
         policy fifo-easy
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         0 submit c gpus=1 work=500s
         1 explain b
         1 explain c",
        "b: waits since 0: asks for 4 GPUs, 1 are free
         c: waits since 0: GPUs are kept for job 1, expected to start at 100 s",
    );
    check(
        "cluster 1x4
         policy fifo discipline=backfill:patience=10s
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         20 submit c gpus=1 work=5s
         20 explain b
         20 explain c",
        "b: waits since 0: asks for 4 GPUs, 1 are free
         c: waits since 20: GPUs are kept for job 1",
    );
}

#[test]
fn admission_says_which_limit_holds_a_job() {
    check(
        "cluster 1x4
         policy fifo admission=load:factor=1
         0 submit a gpus=4 work=10s
         0 submit b gpus=2 work=10s
         0 submit c gpus=2 work=10s
         0 explain c",
        "c: waits since 0: held by admission: jobs let in ask for 6 GPUs, the limit is 4",
    );
    check(
        "cluster 1x8
         policy fifo admission=caps:tenant=4,user=3
         0 submit a gpus=3 work=10s tenant=x
         0 submit b gpus=2 work=10s tenant=x
         0 submit c gpus=2 work=10s tenant=y user=u
         0 submit d gpus=2 work=10s tenant=z user=u
         0 explain b
         0 explain d",
        "b: waits since 0: held by admission: tenant 1 asks for 3 GPUs, its cap is 4
         d: waits since 0: held by admission: user 1 asks for 2 GPUs, the cap is 3",
    );
}

#[test]
fn a_held_job_behind_another_in_its_lane_is_told_so() {
    // By itself c would be let in, but b came first.
    check(
        "cluster 1x8
         policy fifo admission=caps:tenant=4
         0 submit a gpus=3 work=10s
         0 submit b gpus=2 work=10s
         0 submit c gpus=1 work=10s
         0 explain c",
        "c: waits since 0: job 1 is ahead in line, and it may not pass it",
    );
}

#[test]
fn nodes_that_are_down_may_leave_too_few() {
    check(
        "cluster 2x4
         policy fifo
         0 node-down 1
         0 submit a gpus=8 work=10s
         1 explain a
         2 node-up 1
         3 explain a",
        "a: waits since 0: asks for 8 GPUs, but the cluster has only 4 it could use
         a: runs since 2 on 8 GPUs, 2 nodes",
    );
}

#[test]
fn between_rounds_a_job_waits_for_the_next_one() {
    check(
        "cluster 1x4
         policy fifo
         rounds 60s
         0 submit a gpus=1 work=10s
         7 submit b gpus=1 work=10s
         7 explain b",
        "b: waits since 7: starts with the next round, at 60 s",
    );
}

#[test]
fn a_lost_job_waits_since_it_was_lost() {
    check(
        "cluster 1x4
         policy fifo
         0 submit a gpus=4 work=10s
         5 node-down 0
         6 explain a",
        "a: waits since 5: asks for 4 GPUs, but the cluster has only 0 it could use",
    );
}

#[test]
fn the_value_has_the_numbers_the_sentence_has() {
    let story =
        "cluster 1x4\n 0 submit a gpus=4 work=9s\n 1 submit b gpus=2 work=9s\n 1 submit c gpus=1 work=9s";
    let scenario: Scenario = story.parse().unwrap();
    let mut world = World::new(&scenario);
    assert!(world.step() && world.step());
    let none_free = Reason::NotEnoughFreeGpus { asked: 1, free: 0 };
    let behind = Reason::BehindInLine {
        head: JobId(1),
        ahead: 1,
    };
    let expected = Explanation::Waiting {
        since: Time::from_secs(1),
        reasons: vec![none_free, behind],
        ahead: 1,
    };
    assert_eq!(world.engine.explain(JobId(2)), expected);
    assert_eq!(world.engine.explain(JobId(99)), Explanation::Unknown);
}
