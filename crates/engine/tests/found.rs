//! Bugs that were found, as the shortest stories that show them.

use dovetail_testkit::check;

#[test]
fn a_node_that_comes_back_is_empty_even_if_a_lost_gang_has_not_answered() {
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
fn a_late_answer_from_before_a_node_was_lost_does_not_free_what_others_hold_now() {
    // Job a is lost with the node, b comes to it and is told to stop for c; then a answers.
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
fn a_job_that_was_placed_but_not_launched_does_not_come_to_a_draining_node() {
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
fn cpu_and_memory_of_a_job_that_has_not_stopped_are_not_given_away() {
    // Job b gets other GPUs than a had, but needs the CPU that a holds until it has stopped.
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
         1 b: waits since 1: no node has 1 cores and 0 MiB free beside each GPU
         6 stopped a
         6 launch b on 0:[0-1]
         16 done b
         16 launch a on 0:[0-1]
         110 done a",
    );
}
