//! Which GPUs jobs get.

use dovetail_testkit::{check, trace};

#[test]
fn consolidate_takes_the_tightest_node_or_else_the_emptiest_ones() {
    // b fills the gap that a leaves; d needs two nodes and takes a whole one and the rest of another.
    check(
        "cluster 3x4
         policy fifo
         0 submit a gpus=3 work=10s
         0 submit b gpus=1 work=10s
         0 submit c gpus=2 work=10s
         0 submit d gpus=6 work=10s",
        "0 launch a on 0:[0-2]
         0 launch b on 0:[3]
         0 launch c on 1:[0-1]
         0 launch d on 1:[2-3] 2:[0-3]
         10 done a
         10 done b
         10 done c
         10 done d",
    );
}

#[test]
fn consolidate_does_not_mix_gpu_types() {
    check(
        "cluster 1x4 1x4,type=v100
         policy fifo-backfill
         0 submit a gpus=3 work=10s type=gpu
         0 submit b gpus=3 work=10s type=v100
         0 submit c gpus=2 work=10s
         0 submit d gpus=1 work=10s",
        "0 launch a on 0:[0-2]
         0 launch b on 1:[0-2]
         0 launch d on 0:[3]
         10 done a
         10 done b
         10 done d
         10 launch c on 0:[0-1]
         20 done c",
    );
}

#[test]
fn strict_consolidation_waits_for_whole_nodes() {
    // Three GPUs are free for c, on two nodes; the empty cluster would have one node for it.
    let jobs = "0 submit a gpus=2 work=10s
         0 submit b gpus=3 work=10s
         0 submit c gpus=3 work=10s";
    check(
        &format!("cluster 2x4\n policy fifo placement=consolidate:strict=true\n {jobs}"),
        "0 launch a on 0:[0-1]
         0 launch b on 1:[0-2]
         10 done a
         10 done b
         10 launch c on 0:[0-2]
         20 done c",
    );
    check(
        &format!("cluster 2x4\n policy fifo\n {jobs}"),
        "0 launch a on 0:[0-1]
         0 launch b on 1:[0-2]
         0 launch c on 0:[2-3] 1:[3]
         10 done a
         10 done b
         10 done c",
    );
}

#[test]
fn spread_takes_one_gpu_at_a_time_from_the_emptiest_node() {
    check(
        "cluster 3x4
         policy fifo placement=spread
         0 submit a gpus=4 work=10s
         0 submit b gpus=2 work=10s",
        "0 launch a on 0:[0-1] 1:[0] 2:[0]
         0 launch b on 1:[1] 2:[1]
         10 done a
         10 done b",
    );
}

#[test]
fn first_free_takes_the_lowest_gpus() {
    check(
        "cluster 3x4
         policy fifo placement=first-free
         0 submit a gpus=3 work=10s
         0 submit b gpus=3 work=20s
         12 submit c gpus=5 work=10s",
        "0 launch a on 0:[0-2]
         0 launch b on 0:[3] 1:[0-1]
         10 done a
         12 launch c on 0:[0-2] 1:[2-3]
         20 done b
         22 done c",
    );
}

#[test]
fn rack_aware_stays_inside_a_rack() {
    // Job b fits into the second rack; for c there is room in both racks together, but in neither alone.
    let story = |placement: &str| {
        format!(
            "cluster 1x4 1x2 | 2x4
             policy fifo placement={placement}
             0 submit a gpus=3 work=10s
             0 submit b gpus=6 work=10s
             0 submit c gpus=5 work=10s"
        )
    };
    check(
        &story("rack-aware"),
        "0 launch a on 0:[0-2]
         0 launch b on 2:[0-3] 3:[0-1]
         0 launch c on 0:[3] 1:[0-1] 3:[2-3]
         10 done a
         10 done b
         10 done c",
    );
    check(
        &story("rack-aware:strict=true"),
        "0 launch a on 0:[0-2]
         0 launch b on 2:[0-3] 3:[0-1]
         10 done a
         10 done b
         10 launch c on 0:[0-3] 1:[0]
         20 done c",
    );
}

#[test]
fn random_is_the_same_for_the_same_seed_and_differs_for_others() {
    let story = |seed: u32| {
        let jobs: String = (0..8)
            .map(|i| format!("0 submit j{i} gpus=2 work=10s\n"))
            .collect();
        trace(&format!(
            "cluster 8x4\n policy fifo placement=random:seed={seed}\n {jobs}"
        ))
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}

#[test]
fn blox_scatter_requires_the_sum_to_be_exact() {
    // 3 and 4 GPUs are free: a request for 4 is refused, as 3 + 4 is not 4; one for 7 is not.
    check(
        "cluster 2x4
         policy fifo-backfill placement=blox-scatter
         0 submit a gpus=1 work=10s
         0 submit b gpus=4 work=10s
         0 submit c gpus=7 work=10s",
        "0 launch a on 0:[0]
         0 launch c on 0:[1-3] 1:[0-3]
         10 done a
         10 done c
         10 launch b on 0:[0-3]
         20 done b",
    );
}

#[test]
fn placement_respects_free_cpu_and_memory() {
    // Two cores for each of two GPUs leave nothing of node 0's four; the memory of node 1 is enough for one GPU.
    check(
        "cluster 1x4,cpu=4 1x4,mem=64
         policy fifo-backfill
         0 submit a gpus=2 work=10s cpu=2
         0 submit b gpus=2 work=10s cpu=1
         0 submit c gpus=2 work=10s mem=64",
        "0 launch a on 0:[0-1]
         0 launch b on 1:[0-1]
         0 launch c on 0:[2-3]
         10 done a
         10 done b
         10 done c",
    );
}
