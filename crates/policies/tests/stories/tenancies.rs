//! What tenants may use.

use dovetail_testkit::check;

#[test]
fn a_quota_is_guaranteed_and_not_exceeded() {
    check(
        "cluster 1x8
         policy fifo-backfill tenancy=quota:x=4,y=4
         0 submit a gpus=4 work=20s tenant=x
         0 submit b gpus=2 work=10s tenant=x
         0 submit c gpus=3 work=10s tenant=y
         0 submit d gpus=5 work=10s tenant=y
         1 explain b",
        "0 reject d: asks for 5 GPUs; tenant 2 is guaranteed 4 and holds 0 of them
         0 launch a on 0:[0-3]
         0 launch c on 0:[4-6]
         1 b: waits since 0: asks for 2 GPUs; tenant 1 is guaranteed 4 and holds 4 of them
         10 done c
         20 done a
         20 launch b on 0:[0-1]
         30 done b",
    );
}

#[test]
fn guaranteed_jobs_preempt_borrowers_submitted_before_them() {
    check(
        "cluster 1x8
         policy fifo discipline=preempt tenancy=quota:x=4,y=4
         0 submit a gpus=8 work=20s tenant=x priority=-1
         5 submit b gpus=4 work=10s tenant=y
         6 submit c gpus=4 work=10s tenant=x priority=-1",
        "0 launch a on 0:[0-7]
         5 stop a preempted
         5 launch b on 0:[0-3]
         6 launch c on 0:[4-7]
         15 done b
         16 done c
         16 launch a on 0:[0-7]
         31 done a",
    );
}

#[test]
fn no_tenant_takes_guaranteed_gpus_of_another() {
    check(
        "cluster 1x8
         policy srtf tenancy=quota:x=4,y=4
         0 submit a gpus=4 work=100s tenant=y
         1 submit b gpus=4 work=20s tenant=x
         2 submit c gpus=2 work=5s tenant=x
         3 submit d gpus=4 work=50s tenant=y",
        "0 launch a on 0:[0-3]
         1 launch b on 0:[4-7]
         2 stop b preempted
         2 launch c on 0:[4-5]
         3 stop a preempted
         3 launch d on 0:[0-3]
         7 done c
         7 launch b on 0:[4-7]
         26 done b
         53 done d
         53 launch a on 0:[0-3]
         150 done a",
    );
}

#[test]
fn borrowing_has_a_limit_of_its_own() {
    check(
        "cluster 1x8
         policy fifo-backfill tenancy=quota:x=4+2,y=4+0
         0 submit a gpus=2 work=20s tenant=x priority=-1
         0 submit b gpus=1 work=10s tenant=x priority=-1
         0 submit c gpus=1 work=10s tenant=y priority=-1
         1 explain b",
        "0 reject c: asks for 1 GPU; tenant 2 may borrow 0 and holds 0 of them
         0 launch a on 0:[0-1]
         1 b: waits since 0: asks for 1 GPU; tenant 1 may borrow 2 and holds 2 of them
         20 done a
         20 launch b on 0:[0]
         30 done b",
    );
}

#[test]
fn a_tenant_at_its_quota_does_not_block_others() {
    check(
        "cluster 1x8
         policy srtf tenancy=quota:x=2,y=6
         0 submit a gpus=2 work=10s tenant=x
         0 submit b gpus=6 work=100s tenant=x priority=-1
         1 submit c gpus=2 work=12s tenant=x
         1 submit d gpus=6 work=50s tenant=y",
        "0 launch a on 0:[0-1]
         0 launch b on 0:[2-7]
         1 stop b preempted
         1 launch d on 0:[2-7]
         10 done a
         10 launch c on 0:[0-1]
         22 done c
         51 done d
         51 launch b on 0:[0-5]
         150 done b",
    );
}

#[test]
fn a_borrower_does_not_protect_jobs_behind_it_from_preemption() {
    check(
        "cluster 1x8
         policy srtf tenancy=quota:x=8,y=0
         0 submit a gpus=4 work=20s tenant=x
         0 submit b gpus=3 work=90s tenant=x
         1 submit d gpus=1 work=100s tenant=y priority=-1
         10 submit e gpus=4 work=15s tenant=x",
        "0 launch a on 0:[0-3]
         0 launch b on 0:[4-6]
         1 launch d on 0:[7]
         10 stop b preempted
         10 stop d preempted
         10 launch e on 0:[4-7]
         20 done a
         20 launch b on 0:[0-2]
         20 launch d on 0:[3]
         25 done e
         100 done b
         111 done d",
    );
}
