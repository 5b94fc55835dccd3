//! Cancelled jobs, failed jobs, and jobs that take time to stop.

use dovetail_testkit::check;

#[test]
fn a_launch_waits_until_the_gpus_are_vacated() {
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
fn a_job_that_ends_while_stopping_is_completed() {
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
fn a_cancelled_queued_job_is_removed() {
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
fn a_cancelled_running_job_frees_its_gpus_when_it_has_stopped() {
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
fn a_job_cancelled_while_stopping_is_not_started_again() {
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
fn cancelling_a_placed_job_returns_the_gpus_to_its_victim() {
    // Job b is placed and waits for a to stop; once b is cancelled, a starts again as soon as it has stopped.
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
fn a_failed_job_is_removed() {
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
