//! Regression tests: bugs, as the shortest stories that reproduce them.

use dovetail_testkit::check;

#[test]
fn easy_counts_on_jobs_that_start_in_the_same_decision() {
    // Job a ends at 10, so the pool is reserved for b from then on, and c, which is long, may not pass it.
    check(
        "cluster 1x4
         policy fifo-easy
         0 submit a gpus=3 work=10s
         0 submit b gpus=4 work=10s
         0 submit c gpus=1 work=100s",
        "0 launch a on 0:[0-2]
         10 done a
         10 launch b on 0:[0-3]
         20 done b
         20 launch c on 0:[0]
         120 done c",
    );
}

#[test]
fn strict_consolidation_accepts_as_many_nodes_as_the_empty_cluster_needs() {
    check(
        "cluster 2x1 1x2
         policy fifo placement=consolidate:strict=true
         0 submit a gpus=4 work=1s",
        "0 launch a on 0:[0] 1:[0] 2:[0-1]
         1 done a",
    );
    check(
        "cluster 2x4,cpu=4
         policy fifo placement=consolidate:strict=true
         0 submit a gpus=4 work=1s cpu=2",
        "0 launch a on 0:[0-1] 1:[0-1]
         1 done a",
    );
}

#[test]
fn replanning_leaves_jobs_alone_when_a_node_drains() {
    check(
        "cluster 2x4
         policy elastic-fifo
         0 submit a gpus=4 work=100s
         0 submit b gpus=4 work=100s
         5 drain 0",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         100 done a
         100 done b",
    );
}

#[test]
fn an_elastic_job_that_cannot_have_its_width_takes_the_gpus_that_are_free() {
    // The CPU is enough for one GPU on each node; and only two GPUs are of the type that b asks for.
    check(
        "cluster 3x2,cpu=12
         policy elastic-fifo
         0 submit a gpus=1 work=6s max=4 cpu=6.5",
        "0 launch a on 0:[0] 1:[0] 2:[0]
         2 done a",
    );
    check(
        "cluster 1x2 1x6,type=v100
         policy optimus
         0 submit b gpus=1 work=8s max=8 type=gpu",
        "0 launch b on 0:[0-1]
         4 done b",
    );
}

#[test]
fn an_elastic_job_shrinks_for_others_after_its_interval() {
    // No other event happens at 10: the policy must request that decision itself.
    check(
        "cluster 1x4
         policy elastic-fifo:interval=10s
         0 submit a gpus=2 work=100s min=1 max=4
         5 submit b gpus=2 work=20s",
        "0 launch a on 0:[0-3]
         10 stop a resized
         10 launch a on 0:[0-1]
         10 launch b on 0:[2-3]
         30 done b
         30 stop a resized
         30 launch a on 0:[0-3]
         60 done a",
    );
}

#[test]
fn a_rigid_policy_rejects_an_elastic_job_that_only_fits_shrunk() {
    check(
        "cluster 1x4
         policy fifo
         0 submit a gpus=8 work=1s min=2
         0 submit b gpus=4 work=1s",
        "0 reject a: asks for 8 GPUs, but the cluster has only 4 that it could use
         0 launch b on 0:[0-3]
         1 done b",
    );
    check(
        "cluster 1x4
         policy elastic-fifo
         0 submit a gpus=8 work=1s min=2",
        "0 launch a on 0:[0-3]
         2 done a",
    );
}

#[test]
fn a_lack_of_cpu_is_not_reported_as_fragmentation() {
    check(
        "cluster 1x4,cpu=8
         policy fifo
         0 submit a gpus=2 work=100s cpu=3
         0 submit b gpus=2 work=100s cpu=1.5
         1 explain b",
        "0 launch a on 0:[0-1]
         1 b: waits since 0: no node has 1.5 CPU cores and 0 MiB of memory free for each GPU
         100 done a
         100 launch b on 0:[0-1]
         200 done b",
    );
}

#[test]
fn min_run_protects_a_job_for_that_long_and_no_longer() {
    check(
        "cluster 1x1
         policy srtf discipline=preempt:min_run=20s
         0 submit a work=100s
         5 submit b work=10s",
        "0 launch a on 0:[0]
         20 stop a preempted
         20 launch b on 0:[0]
         30 done b
         30 launch a on 0:[0]
         110 done a",
    );
}

#[test]
fn a_group_that_is_lost_with_a_node_stops_together_and_lingers_until_the_last_has_stopped() {
    check(
        "cluster 2x1
         policy muri-s
         stop-delay 2s
         0 submit a gpus=2 work=10s stages=60/20/10
         0 submit b gpus=2 work=10s stages=10/20/60
         3 node-down 0
         3 node-up 0
         3 submit c gpus=1 work=1s",
        "0 launch a on 0:[0] 1:[0]
         0 launch b on 0:[0] 1:[0]
         3 stop a node-lost 0
         3 stop b node-lost 0
         3 launch c on 0:[0]
         4 done c
         5 stopped a
         5 stopped b
         5 launch a on 0:[0] 1:[0]
         5 launch b on 0:[0] 1:[0]
         12 done a
         12 done b",
    );
}

#[test]
fn no_job_joins_a_group_on_a_draining_node() {
    check(
        "cluster 1x1
         policy muri-s
         0 submit a work=10s stages=60/20/10
         1 drain 0
         2 submit b work=10s stages=10/20/60
         20 resume 0",
        "0 launch a on 0:[0]
         10 done a
         20 launch b on 0:[0]
         30 done b",
    );
}

#[test]
fn a_group_on_a_draining_node_counts_its_gpus_once() {
    // Node 0 drains under a and b, which share it: they keep running, and c takes node 1 from x.
    check(
        "cluster 2x1
         policy muri-s:size=2
         0 submit a work=10s stages=60/20/10
         0 submit b work=10s stages=10/20/60
         0 submit x work=20s
         1 drain 0
         2 submit c work=5s",
        "0 launch a on 0:[0]
         0 launch b on 0:[0]
         0 launch x on 1:[0]
         2 stop x preempted
         2 launch c on 1:[0]
         7 done c
         7 launch x on 1:[0]
         10 done a
         10 done b
         25 done x",
    );
}

#[test]
fn under_tetris_two_jobs_do_not_preempt_each_other_forever() {
    // While w runs no CPU is free, which suits n; while n runs all CPU is free, which suits w.
    check(
        "cluster 1x4,cpu=8
         policy tetris
         stop-delay 1s
         0 submit w gpus=4 work=100s cpu=2
         0 submit n gpus=4 work=160s
         5 submit late gpus=4 work=900s",
        "0 launch n on 0:[0-3]
         160 done n
         160 launch w on 0:[0-3]
         260 done w
         260 launch late on 0:[0-3]
         1160 done late",
    );
}
