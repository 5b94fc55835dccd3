//! Which jobs share GPUs.

use dovetail_testkit::check;

#[test]
fn a_job_that_gains_starts_beside_others_on_some_of_their_gpus() {
    // b and c load data while a computes. d needs four GPUs with one job on each, and waits until both have finished.
    check(
        "cluster 1x4
         policy sjf-bsbf-no-preempt
         0 submit a gpus=4 work=100s stages=10/80/10
         1 submit b gpus=2 work=20s stages=80/10/10
         2 submit c gpus=1 work=10s stages=80/10/10
         3 submit d gpus=4 work=10s stages=80/10/10",
        "0 launch a on 0:[0-3]
         1 launch b on 0:[0-1]
         2 launch c on 0:[2]
         12 done c
         21 done b
         21 launch d on 0:[0-3]
         31 done d
         100 done a",
    );
}

#[test]
fn a_job_that_would_only_slow_others_down_waits() {
    // Both compute all the time: side by side neither would finish sooner.
    check(
        "cluster 1x1
         policy sjf-bsbf-no-preempt
         0 submit a gpus=1 work=10s stages=1/80/1
         1 submit b gpus=1 work=10s stages=1/80/1",
        "0 launch a on 0:[0]
         10 done a
         10 launch b on 0:[0]
         20 done b",
    );
    check(
        "cluster 1x1
         policy sjf-ffs-no-preempt
         0 submit a gpus=1 work=10s stages=1/80/1
         1 submit b gpus=1 work=10s stages=1/80/1",
        "0 launch a on 0:[0]
         1 launch b on 0:[0]
         10 done a
         11 done b",
    );
}

#[test]
fn jobs_on_one_gpu_do_not_exceed_its_memory() {
    // b does not fit beside a, c does; d fits nowhere and is rejected.
    check(
        "cluster 1x2,gpumem=16000
         policy sjf-ffs-no-preempt
         0 submit a gpus=2 work=100s gpumem=10000
         1 submit b gpus=1 work=20s gpumem=7000
         2 submit c gpus=1 work=10s gpumem=6000
         3 submit d gpus=1 work=10s gpumem=17000",
        "0 launch a on 0:[0-1]
         2 launch c on 0:[0]
         3 reject d: uses 17000 MiB on each of 1 GPU, but only 0 GPUs have that much memory; the largest has 16000 MiB
         12 done c
         100 done a
         100 launch b on 0:[0]
         120 done b",
    );
    // The two do not fit on one GPU together, so they do not form a group.
    check(
        "cluster 1x1,gpumem=16000
         policy muri-s
         0 submit a gpus=1 work=10s stages=10/80/10 gpumem=9000
         0 submit b gpus=1 work=10s stages=80/10/10 gpumem=9000",
        "0 launch a on 0:[0]
         10 done a
         10 launch b on 0:[0]
         20 done b",
    );
}

#[test]
fn jobs_run_beside_a_wider_group_where_all_gain() {
    // The narrow jobs load data while the wide one computes; e, which computes too, waits.
    let jobs = "0 submit wide gpus=2 work=10s stages=10/80/0
         1 submit b gpus=1 work=120s stages=80/10/0
         1 submit c gpus=1 work=120s stages=80/10/0
         2 submit e gpus=1 work=300s stages=10/80/0";
    check(
        &format!("cluster 1x2\n policy muri-s:size=2\n {jobs}"),
        "0 launch wide on 0:[0-1]
         10 done wide
         10 launch b on 0:[0]
         10 launch c on 0:[1]
         10 launch e on 0:[0]
         130 done b
         130 done c
         310 done e",
    );
    check(
        &format!("cluster 1x2\n policy muri-s:size=2,unequal=true\n {jobs}"),
        "0 launch wide on 0:[0-1]
         1 launch b on 0:[0]
         1 launch c on 0:[1]
         10 done wide
         10 launch e on 0:[0]
         121 done b
         121 done c
         310 done e",
    );
}

#[test]
fn jobs_are_placed_on_gpus_with_enough_memory() {
    check(
        "cluster 1x1,gpumem=8000 1x1,gpumem=16000
         policy fifo
         0 submit a gpus=1 work=10s gpumem=12000
         0 submit b gpus=1 work=20s gpumem=12000
         1 explain b",
        "0 launch a on 1:[0]
         1 b: waits since 0: uses 12000 MiB on each of 1 GPU; 0 free GPUs have that much memory
         10 done a
         10 launch b on 1:[0]
         30 done b",
    );
}

#[test]
fn guaranteed_jobs_share_only_with_opportunistic_ones() {
    // o is opportunistic and starts beside g; h takes the GPU that only o is on; every GPU has a
    // guaranteed job when i is submitted.
    check(
        "cluster 1x2
         policy antman
         0 submit g gpus=1 work=100s
         1 submit o gpus=2 work=50s priority=-1
         2 submit h gpus=1 work=20s
         3 submit i gpus=1 work=20s",
        "0 launch g on 0:[0]
         1 launch o on 0:[0-1]
         2 launch h on 0:[1]
         22 done h
         22 launch i on 0:[1]
         42 done i
         51 done o
         100 done g",
    );
}

#[test]
fn long_jobs_are_preempted_unless_they_are_almost_done() {
    check(
        "cluster 1x2
         policy sjf-bsbf
         0 submit long gpus=2 work=1000s stages=10/80/10
         1 submit short gpus=1 work=100s stages=10/80/10
         2 submit other gpus=1 work=500s stages=80/10/10",
        "0 launch long on 0:[0-1]
         1 stop long preempted
         1 launch short on 0:[0]
         2 launch other on 0:[1]
         101 done short
         101 launch long on 0:[0-1]
         502 done other
         1100 done long",
    );
    // No job with less than an hour left is preempted, so the short one starts beside the long one.
    check(
        "cluster 1x1
         policy sjf-bsbf:min_left=1h
         0 submit long gpus=1 work=1000s stages=10/80/10
         1 submit short gpus=1 work=100s stages=10/80/10",
        "0 launch long on 0:[0]
         1 launch short on 0:[0]
         101 done short
         1000 done long",
    );
}
