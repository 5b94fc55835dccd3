//! How many GPUs jobs get.

use dovetail_testkit::check;

#[test]
fn elastic_jobs_grow_on_idle_gpus_and_shrink_for_others() {
    // Alone, a runs on all eight GPUs. Beside b, both get what they asked for; then a has all of them again.
    check(
        "cluster 1x8
         policy elastic-fifo:interval=0
         0 submit a gpus=4 work=100s min=1 max=8
         10 submit b gpus=4 work=20s min=2",
        "0 launch a on 0:[0-7]
         10 stop a resized
         10 launch a on 0:[0-3]
         10 launch b on 0:[4-7]
         30 done b
         30 stop a resized
         30 launch a on 0:[0-7]
         60 done a",
    );
}

#[test]
fn elastic_jobs_shrink_to_their_minimum_before_others_wait() {
    check(
        "cluster 1x4
         policy elastic-fifo:interval=0
         0 submit a gpus=4 work=10s min=1
         0 submit b gpus=4 work=10s min=1
         0 submit c gpus=4 work=10s min=2
         0 submit d gpus=4 work=10s min=1",
        "0 launch a on 0:[0]
         0 launch b on 0:[1]
         0 launch c on 0:[2-3]
         20 done c
         20 stop a resized
         20 launch d on 0:[3]
         20 launch a on 0:[0,2]
         30 done a
         30 stop b resized
         30 launch b on 0:[0-2]
         33.333334 done b
         33.333334 stop d resized
         33.333334 launch d on 0:[0-3]
         40.000001 done d",
    );
}

#[test]
fn a_job_keeps_its_size_for_an_interval() {
    check(
        "cluster 1x4
         policy elastic-fifo:interval=30s
         0 submit a gpus=2 work=100s max=4
         10 submit b gpus=2 work=10s
         12 submit c gpus=2 work=10s",
        "0 launch a on 0:[0-3]
         30 stop a resized
         30 launch a on 0:[0-1]
         30 launch b on 0:[2-3]
         40 done b
         40 launch c on 0:[2-3]
         50 done c
         60 stop a resized
         60 launch a on 0:[0-3]
         65 done a",
    );
}

#[test]
fn optimus_gives_gpus_to_the_job_they_shorten_most() {
    // Both have the same work; a scales, b hardly does: after one GPU each, the next ones go to a.
    check(
        "cluster 1x4
         policy optimus:interval=0
         0 submit a gpus=1 work=90s max=4
         0 submit b gpus=1 work=90s max=4 amdahl=0.1",
        "0 launch a on 0:[0-2]
         0 launch b on 0:[3]
         30 done a
         30 stop b resized
         30 launch b on 0:[0-3]
         85.500005 done b",
    );
}

#[test]
fn optimus_prefers_the_longer_job_at_equal_scaling() {
    check(
        "cluster 1x3
         policy optimus:interval=0
         0 submit a gpus=1 work=20s max=2
         0 submit b gpus=1 work=60s max=2",
        "0 launch a on 0:[0]
         0 launch b on 0:[1-2]
         20 done a
         30 done b",
    );
}

#[test]
fn rigid_jobs_are_not_resized_by_a_replan() {
    check(
        "cluster 1x4
         policy fifo discipline=replan
         0 submit a gpus=2 work=10s min=1 max=4
         0 submit b gpus=3 work=10s min=1",
        "0 launch a on 0:[0-1]
         10 done a
         10 launch b on 0:[0-2]
         20 done b",
    );
}
