//! What the engine does when nodes go and come, owners change their minds, and jobs take their time to stop.

use dovetail_testkit::{check, tell};

#[test]
fn a_lost_node_requeues_the_gang_and_frees_the_rest() {
    // Job a spans both nodes: with node 1 it loses everything, and b gets the GPUs it held on node 0.
    check(
        "cluster 2x4
         policy fifo-backfill
         0 submit a gpus=8 work=100s
         1 submit b gpus=4 work=10s
         5 node-down 1
         20 node-up 1",
        "0 launch a on 0:[0-3] 1:[0-3]
         5 stop a node-lost 1
         5 launch b on 0:[0-3]
         15 done b
         20 launch a on 0:[0-3] 1:[0-3]
         115 done a",
    );
}

#[test]
fn jobs_elsewhere_do_not_notice_a_lost_node() {
    check(
        "cluster 2x4
         policy srtf
         0 submit a gpus=4 work=50s
         0 submit b gpus=4 work=60s
         5 node-down 1
         30 node-up 1",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         5 stop b node-lost 1
         30 launch b on 1:[0-3]
         50 done a
         85 done b",
    );
}

#[test]
fn a_draining_node_takes_no_new_jobs_and_those_on_it_run_on() {
    check(
        "cluster 2x4
         policy fifo
         0 submit a gpus=2 work=30s
         0 submit b gpus=4 work=10s
         5 drain 0
         5 submit c gpus=2 work=10s
         15 submit d gpus=4 work=10s
         40 resume 0",
        "0 launch a on 0:[0-1]
         0 launch b on 1:[0-3]
         10 done b
         10 launch c on 1:[0-1]
         20 done c
         20 launch d on 1:[0-3]
         30 done a
         30 done d",
    );
}

#[test]
fn a_victim_on_a_draining_node_gets_its_own_gpus_back_in_the_same_decision() {
    // To make room for c both are looked at; only b has to go, though a is last in line.
    check(
        "cluster 2x4
         policy srtf
         0 submit b gpus=4 work=80s
         0 submit a gpus=4 work=100s
         5 drain 1
         10 submit c gpus=4 work=10s",
        "0 launch b on 0:[0-3]
         0 launch a on 1:[0-3]
         10 stop b preempted
         10 launch c on 0:[0-3]
         20 done c
         20 launch b on 0:[0-3]
         90 done b
         100 done a",
    );
}

#[test]
fn a_node_that_comes_back_ends_its_draining() {
    check(
        "cluster 1x2
         policy fifo
         0 drain 0
         1 submit a gpus=2 work=10s
         5 node-down 0
         9 node-up 0",
        "9 launch a on 0:[0-1]
         19 done a",
    );
}

#[test]
fn a_launch_waits_until_the_gpus_are_really_free() {
    check(
        "cluster 1x4
         policy srtf
         stop-delay 3s
         0 submit a gpus=4 work=100s
         10 submit b gpus=2 work=5s
         11 submit c gpus=2 work=5s",
        "0 launch a on 0:[0-3]
         10 stop a preempted
         13 stopped a
         13 launch b on 0:[0-1]
         13 launch c on 0:[2-3]
         18 done b
         18 done c
         18 launch a on 0:[0-3]
         105 done a",
    );
}

#[test]
fn a_job_that_ends_while_it_is_told_to_stop_is_done() {
    check(
        "cluster 1x1
         policy fifo:priority=true discipline=preempt
         stop-delay 5s
         0 submit a work=12s
         10 submit b work=5s priority=1",
        "0 launch a on 0:[0]
         10 stop a preempted
         12 done a
         12 launch b on 0:[0]
         17 done b",
    );
}

#[test]
fn a_waiting_job_that_is_cancelled_is_gone() {
    check(
        "cluster 1x1
         policy fifo
         0 submit a work=10s
         0 submit b work=10s
         0 submit c work=10s
         5 cancel b
         6 explain b",
        "0 launch a on 0:[0]
         6 b: unknown
         10 done a
         10 launch c on 0:[0]
         20 done c",
    );
}

#[test]
fn a_running_job_that_is_cancelled_gives_up_its_gpus_when_it_has_stopped() {
    check(
        "cluster 1x1
         policy fifo
         stop-delay 3s
         0 submit a work=100s
         0 submit b work=10s
         5 cancel a
         6 cancel a
         6 explain a",
        "0 launch a on 0:[0]
         5 stop a cancelled
         6 a: stops
         8 stopped a
         8 launch b on 0:[0]
         18 done b",
    );
}

#[test]
fn a_job_cancelled_while_it_stops_does_not_come_back() {
    check(
        "cluster 1x1
         policy srtf
         stop-delay 5s
         0 submit a work=100s
         10 submit b work=10s
         12 cancel a",
        "0 launch a on 0:[0]
         10 stop a preempted
         15 stopped a
         15 launch b on 0:[0]
         25 done b",
    );
}

#[test]
fn a_job_cancelled_while_it_waits_for_gpus_gives_its_place_to_the_victim() {
    // Job b is placed and waits for a to stop; without b, a starts again as soon as it has stopped.
    check(
        "cluster 1x1
         policy srtf
         stop-delay 5s
         0 submit a work=100s
         10 submit b work=10s
         12 cancel b",
        "0 launch a on 0:[0]
         10 stop a preempted
         15 stopped a
         15 launch a on 0:[0]
         100 done a",
    );
}

#[test]
fn a_job_that_fails_is_over() {
    check(
        "cluster 1x1
         policy fifo
         0 submit a work=100s
         0 submit b work=10s
         7 fail a
         8 explain a",
        "0 launch a on 0:[0]
         7 failed a
         7 launch b on 0:[0]
         8 a: unknown
         17 done b",
    );
}

#[test]
fn rounds_decide_only_on_the_grid() {
    // Job a is done at 15; b starts at 60 with the next round, and c, which came in at a round, at once.
    check(
        "cluster 1x1
         policy fifo
         rounds 60s
         0 submit a work=15s
         1 submit b work=59s
         120 submit c work=1s",
        "0 launch a on 0:[0]
         15 done a
         60 launch b on 0:[0]
         119 done b
         120 launch c on 0:[0]
         121 done c",
    );
}

#[test]
fn in_rounds_the_passing_of_time_is_noticed() {
    // Continuous LAS: at every round the job that has used less runs.
    check(
        "cluster 1x1
         policy las:quantum=0
         rounds 10s
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
         40 launch a on 0:[0]
         45 done a",
    );
}

#[test]
fn starting_takes_time_that_counts_as_held_but_not_as_progress() {
    check(
        "cluster 1x1
         policy srtf
         start-delay 2s
         0 submit a work=10s
         5 submit b work=1s",
        "0 launch a on 0:[0]
         5 stop a preempted
         5 launch b on 0:[0]
         8 done b
         8 launch a on 0:[0]
         17 done a",
    );
}

#[test]
fn a_bad_network_changes_when_and_not_what() {
    let story = "cluster 2x4
         policy srtf
         0 submit a gpus=8 work=100s
         10 submit b gpus=2 work=10s
         20 node-down 1
         40 node-up 1
         50 submit c gpus=4 work=5s";
    let done = |trace: &str| {
        let mut done: Vec<String> = trace
            .lines()
            .filter(|l| l.contains("done"))
            .map(str::to_owned)
            .collect();
        done.iter_mut()
            .for_each(|l| *l = l.split_once(' ').unwrap().1.to_owned());
        done
    };
    for seed in 0..50 {
        let trace = tell(&format!("chaos {seed}\n{story}"));
        assert_eq!(
            done(&trace),
            ["done b", "done c", "done a"],
            "seed {seed}\n{trace}"
        );
    }
}
