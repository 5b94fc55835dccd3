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
fn a_job_keeps_its_size_until_a_restart_costs_a_small_part_of_its_time() {
    // A restart costs 2 s, which is a twentieth of 40 s. b waits, although a could shrink.
    check(
        "cluster 1x4
         policy elastic-fifo:interval=0
         0 submit a gpus=2 work=400s max=4 restart=2s
         10 submit b gpus=2 work=10s",
        "0 launch a on 0:[0-3]
         40 stop a resized
         40 launch a on 0:[0-1]
         40 launch b on 0:[2-3]
         50 done b
         80 stop a resized
         80 launch a on 0:[0-3]
         220 done a",
    );
}

#[test]
fn a_job_does_not_grow_if_that_gains_less_than_a_restart_costs() {
    // At 25 s, a has 5 s left, and would need 2.5 s on all GPUs.
    for (policy, a, b) in [("elastic-fifo", "0-1", "2-3"), ("optimus", "2-3", "0-1")] {
        check(
            &format!(
                "cluster 1x4
                 policy {policy}:interval=0,overhead=1
                 0 submit a gpus=2 work=30s max=4 restart=3s
                 0 submit b gpus=2 work=25s"
            ),
            &format!(
                "0 launch a on 0:[{a}]
                 0 launch b on 0:[{b}]
                 25 done b
                 30 done a"
            ),
        );
    }
}

#[test]
fn gpus_that_one_job_does_not_take_for_the_cost_of_a_restart_go_to_others() {
    check(
        "cluster 1x6
         policy elastic-fifo:interval=0,overhead=1
         0 submit a gpus=2 work=30s max=4 restart=3s
         0 submit b gpus=2 work=25s
         0 submit c gpus=2 work=100s max=4 restart=3s",
        "0 launch a on 0:[0-1]
         0 launch b on 0:[2-3]
         0 launch c on 0:[4-5]
         25 done b
         25 stop c resized
         25 launch c on 0:[2-5]
         30 done a
         62.5 done c",
    );
}

#[test]
fn jobs_do_not_exchange_gpus_for_less_than_their_restarts_cost() {
    // At 12 s, a has 28 s left and b 8 s: one GPU more shortens a by 9.3 s and lengthens b by 8 s.
    let story = |cost: &str| {
        format!(
            "cluster 1x4
             policy optimus:interval=0,overhead=1
             0 submit a gpus=1 work=80s max=4 restart={cost}
             0 submit b gpus=1 work=40s max=4 restart={cost}
             12 submit c gpus=4 work=500s"
        )
    };
    check(
        &story("6s"),
        "0 launch a on 0:[2-3]
         0 launch b on 0:[0-1]
         20 done b
         20 stop a resized
         20 launch a on 0:[0-3]
         30 done a
         30 launch c on 0:[0-3]
         530 done c",
    );
    check(
        &story("0.6s"),
        "0 launch a on 0:[2-3]
         0 launch b on 0:[0-1]
         12 stop a resized
         12 stop b resized
         12 launch a on 0:[1-3]
         12 launch b on 0:[0]
         28 done b
         28 stop a resized
         28 launch a on 0:[0-3]
         30 done a
         30 launch c on 0:[0-3]
         530 done c",
    );
}

#[test]
fn a_job_of_higher_priority_does_not_wait_for_what_restarts_cost() {
    check(
        "cluster 1x4
         policy elastic-fifo:interval=0 order=fifo:priority=true
         0 submit a gpus=2 work=400s max=4 restart=2s
         10 submit b gpus=2 work=10s priority=5",
        "0 launch a on 0:[0-3]
         10 stop a resized
         10 launch a on 0:[2-3]
         10 launch b on 0:[0-1]
         20 done b
         50 stop a resized
         50 launch a on 0:[0-3]
         220 done a",
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
