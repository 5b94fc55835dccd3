//! Rounds, slow starts and an unreliable network.

use dovetail_testkit::{check, trace};

#[test]
fn decisions_are_taken_only_at_rounds() {
    // Job a ends at 15; b starts at 60 with the next round, and c, submitted at a round, starts at once.
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
fn rounds_notice_keys_that_cross_as_time_passes() {
    // Continuous LAS: at every round the job with less service runs.
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
fn a_slow_start_counts_as_held_time_but_not_as_progress() {
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
fn an_unreliable_network_changes_times_but_not_the_order_of_completion() {
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
        let trace = trace(&format!("chaos {seed}\n{story}"));
        assert_eq!(
            done(&trace),
            ["done b", "done c", "done a"],
            "seed {seed}\n{trace}"
        );
    }
}
