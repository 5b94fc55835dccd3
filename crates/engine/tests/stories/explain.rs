//! Why a job is pending: the right reason in every situation, as users read it.

use dovetail_engine::Explanation;
use dovetail_model::{JobKey, Reason, Time};
use dovetail_testkit::{Scenario, World, trace};

/// Runs the story and compares only its explanations.
fn check(story: &str, expected: &str) {
    let trace = trace(story);
    let answers = trace
        .lines()
        .filter(|l| l.contains(": ") && !l.contains("reject"));
    let answers: Vec<&str> = answers.map(|l| l.split_once(' ').unwrap().1).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(answers, expected, "\nthe whole trace:\n{trace}");
}

#[test]
fn running_stopping_and_unknown_jobs_are_told_apart() {
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
         b: waits since 3: placed; waits for 6 GPUs to be vacated
         b: unknown",
    );
}

#[test]
fn a_job_that_does_not_fit_is_told_what_is_free() {
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
         d: waits since 0: asks for 2 GPUs; 2 are free, but at most 1 in one place that the placement accepts",
    );
}

#[test]
fn missing_cpu_is_distinguished_from_missing_gpus() {
    check(
        "cluster 1x4,cpu=8
         policy fifo
         0 submit a gpus=2 work=100s cpu=3
         0 submit b gpus=2 work=100s cpu=1.5
         1 explain b",
        "b: waits since 0: no node has 1.5 CPU cores and 0 MiB of memory free for each GPU",
    );
}

#[test]
fn the_jobs_ahead_are_named_only_if_the_head_blocks_the_queue() {
    let jobs = "0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         0 submit c gpus=1 work=100s
         0 submit d gpus=2 work=100s
         1 explain c
         1 explain d";
    check(
        &format!("cluster 1x4\n policy fifo\n {jobs}"),
        "c: waits since 0: job 1 is ahead of it in the queue and must start first
         d: waits since 0: asks for 2 GPUs, 1 is free; 2 jobs are ahead of it in the queue and must start first, beginning with job 1",
    );
    check(
        &format!("cluster 1x4\n policy fifo-backfill\n {jobs}"),
        "c: runs since 0 on 1 GPUs, 1 nodes
         d: waits since 0: asks for 2 GPUs, 0 are free",
    );
}

#[test]
fn a_reservation_names_the_job_and_its_expected_start() {
    check(
        "cluster 1x4
         policy fifo-easy
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         0 submit c gpus=1 work=500s
         1 explain b
         1 explain c",
        "b: waits since 0: asks for 4 GPUs, 1 is free
         c: waits since 0: free GPUs are reserved for job 1, expected to start at 100 s",
    );
    check(
        "cluster 1x4
         policy fifo discipline=backfill:patience=10s
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=100s
         20 submit c gpus=1 work=5s
         20 explain b
         20 explain c",
        "b: waits since 0: asks for 4 GPUs, 1 is free
         c: waits since 20: free GPUs are reserved for job 1",
    );
}

#[test]
fn a_held_job_is_told_which_limit_holds_it() {
    check(
        "cluster 1x4
         policy fifo admission=load:factor=1
         0 submit a gpus=4 work=10s
         0 submit b gpus=2 work=10s
         0 submit c gpus=2 work=10s
         0 explain c",
        "c: waits since 0: held by admission: admitted jobs ask for 6 GPUs, the limit is 4",
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
        "b: waits since 0: held by admission: tenant 1 asks for 3 GPUs, its limit is 4
         d: waits since 0: held by admission: user 1 asks for 2 GPUs, the limit is 3",
    );
}

#[test]
fn a_held_job_is_told_which_job_is_ahead_in_its_lane() {
    // Alone c would be admitted, but b was submitted first.
    check(
        "cluster 1x8
         policy fifo admission=caps:tenant=4
         0 submit a gpus=3 work=10s
         0 submit b gpus=2 work=10s
         0 submit c gpus=1 work=10s
         0 explain c",
        "c: waits since 0: job 1 is ahead of it in the queue and must start first",
    );
}

#[test]
fn a_job_that_needs_nodes_that_are_down_is_told_what_is_left() {
    check(
        "cluster 2x4
         policy fifo
         0 node-down 1
         0 submit a gpus=8 work=10s
         1 explain a
         2 node-up 1
         3 explain a",
        "a: waits since 0: asks for 8 GPUs, but the cluster has only 4 that it could use
         a: runs since 2 on 8 GPUs, 2 nodes",
    );
}

#[test]
fn between_rounds_a_job_is_told_when_the_next_round_is() {
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
fn a_job_waits_since_it_was_lost_with_its_node() {
    check(
        "cluster 1x4
         policy fifo
         0 submit a gpus=4 work=10s
         5 node-down 0
         6 explain a",
        "a: waits since 5: asks for 4 GPUs, but the cluster has only 0 that it could use",
    );
}

#[test]
fn reasons_are_values_with_numbers() {
    let story =
        "cluster 1x4\n 0 submit a gpus=4 work=9s\n 1 submit b gpus=2 work=9s\n 1 submit c gpus=1 work=9s";
    let scenario: Scenario = story.parse().unwrap();
    let mut world = World::new(&scenario);
    assert!(world.step() && world.step());
    let none_free = Reason::NotEnoughFreeGpus { asked: 1, free: 0 };
    let behind = Reason::BehindInQueue {
        head: JobKey(1),
        ahead: 1,
    };
    let expected = Explanation::Waiting {
        since: Time::from_secs(1),
        reasons: vec![none_free, behind],
        ahead: 1,
    };
    assert_eq!(world.engine.explain(JobKey(2)), expected);
    assert_eq!(world.engine.explain(JobKey(99)), Explanation::Unknown);
}
