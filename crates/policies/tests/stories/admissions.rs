//! Which jobs are admitted.

use dovetail_testkit::check;

#[test]
fn rejects_jobs_that_can_never_run() {
    check(
        "cluster 2x4 1x2,type=v100
         policy fifo
         0 submit a gpus=16 work=10s
         0 submit b gpus=3 work=10s type=v100
         0 submit c gpus=1 work=10s type=h100
         0 submit d gpus=4 work=10s mem=200
         0 submit e gpus=0 work=10s
         0 submit f gpus=2 work=10s min=3
         0 submit g gpus=2 work=10s type=v100",
        "0 reject a: asks for 16 GPUs, but the cluster has only 10 that it could use
         0 reject b: asks for 3 GPUs of type 1, but the cluster has only 2 that it could use
         0 reject c: asks for 1 GPU of type 2, but the cluster has only 0 that it could use
         0 reject d: asks for 4 GPUs, but the cluster has only 2 that it could use
         0 reject e: asks for 0 GPUs; expected at least 1
         0 reject f: `min_gpus` (3) must not exceed `max_gpus` (2)
         0 launch g on 2:[0-1]
         10 done g",
    );
}

#[test]
fn accept_all_admits_jobs_that_can_never_run() {
    check(
        "cluster 1x4
         policy fifo-backfill admission=accept-all
         0 submit a gpus=16 work=10s
         0 submit b gpus=1 work=10s",
        "0 launch b on 0:[0]
         10 done b
         never a",
    );
}

#[test]
fn a_node_that_is_down_counts_for_feasibility() {
    check(
        "cluster 2x4
         policy fifo
         0 node-down 1
         1 submit a gpus=8 work=10s
         5 node-up 1",
        "5 launch a on 0:[0-3] 1:[0-3]
         15 done a",
    );
}

#[test]
fn load_holds_jobs_in_order_of_submission() {
    // One job may exceed the limit of 4: b is admitted, c is held, and d, though small, is behind it.
    check(
        "cluster 1x4
         policy sjf admission=load:factor=1
         0 submit a gpus=4 work=10s
         0 submit b gpus=4 work=10s
         0 submit c gpus=4 work=5s
         0 submit d gpus=1 work=1s",
        "0 launch a on 0:[0-3]
         10 done a
         10 launch c on 0:[0-3]
         15 done c
         15 launch d on 0:[0]
         16 done d
         16 launch b on 0:[0-3]
         26 done b",
    );
}

#[test]
fn caps_hold_each_tenant_in_its_own_lane() {
    // Tenant x is at its cap with a, which does not affect y. Within x, c waits behind b although it would fit.
    check(
        "cluster 1x8
         policy fifo admission=caps:tenant=3
         0 submit a gpus=2 work=10s tenant=x
         0 submit b gpus=2 work=10s tenant=x
         0 submit c gpus=1 work=10s tenant=x
         0 submit d gpus=3 work=10s tenant=y",
        "0 launch a on 0:[0-1]
         0 launch d on 0:[2-4]
         10 done a
         10 done d
         10 launch b on 0:[0-1]
         10 launch c on 0:[2]
         20 done b
         20 done c",
    );
}

#[test]
fn a_job_larger_than_the_cap_is_admitted_if_its_user_has_no_other() {
    check(
        "cluster 1x8
         policy fifo admission=caps:user=2
         0 submit a gpus=1 work=10s user=u
         0 submit b gpus=5 work=10s user=u
         0 submit c gpus=2 work=10s user=v",
        "0 launch a on 0:[0]
         0 launch c on 0:[1-2]
         10 done a
         10 done c
         10 launch b on 0:[0-4]
         20 done b",
    );
}

#[test]
fn cancelling_a_held_job_admits_the_next_one() {
    check(
        "cluster 1x8
         policy fifo admission=caps:tenant=3
         0 submit a gpus=2 work=10s
         0 submit b gpus=3 work=10s
         0 submit c gpus=1 work=10s
         2 cancel b",
        "0 launch a on 0:[0-1]
         2 launch c on 0:[2]
         10 done a
         12 done c",
    );
}
