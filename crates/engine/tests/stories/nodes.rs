//! Nodes that fail, return, drain and resume.

use dovetail_testkit::check;

#[test]
fn a_lost_node_requeues_its_gang_and_frees_the_other_gpus() {
    // Job a spans both nodes: it loses all its GPUs with node 1, and b gets those it held on node 0.
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
fn jobs_on_other_nodes_are_not_disturbed_by_a_lost_node() {
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
fn a_draining_node_accepts_no_new_jobs_and_keeps_running_ones() {
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
    // To make room for c both jobs are evicted in the draft; only b is stopped, although a is last in the queue.
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
fn a_node_that_returns_is_no_longer_draining() {
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
