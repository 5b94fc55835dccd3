//! Which job is next.

use dovetail_testkit::{check, trace};

#[test]
fn fifo_orders_by_submission_or_priority() {
    let jobs = "0 submit a work=10s
         1 submit b work=10s
         2 submit c work=10s priority=1";
    check(
        &format!("cluster 1x1\n policy fifo\n {jobs}"),
        "0 launch a on 0:[0]
         10 done a
         10 launch b on 0:[0]
         20 done b
         20 launch c on 0:[0]
         30 done c",
    );
    check(
        &format!("cluster 1x1\n policy fifo:priority=true\n {jobs}"),
        "0 launch a on 0:[0]
         10 done a
         10 launch c on 0:[0]
         20 done c
         20 launch b on 0:[0]
         30 done b",
    );
}

#[test]
fn sjf_orders_by_total_run_time_with_unknown_ones_last() {
    check(
        "cluster 1x1
         policy sjf
         0 submit a work=10s
         1 submit b work=1s expect=none
         2 submit c work=9s
         3 submit d work=5s",
        "0 launch a on 0:[0]
         10 done a
         10 launch d on 0:[0]
         15 done d
         15 launch c on 0:[0]
         24 done c
         24 launch b on 0:[0]
         25 done b",
    );
}

#[test]
fn srtf_orders_by_remaining_time() {
    // At 50, a has 50 s left and b 40: b is first. At 60, c has 35 and b 30: c has to wait.
    check(
        "cluster 1x1
         policy srtf
         0 submit a work=100s
         50 submit b work=40s
         60 submit c work=35s",
        "0 launch a on 0:[0]
         50 stop a preempted
         50 launch b on 0:[0]
         90 done b
         90 launch c on 0:[0]
         125 done c
         125 launch a on 0:[0]
         175 done a",
    );
}

#[test]
fn srsf_multiplies_remaining_time_by_gpus() {
    // Two GPUs for 30 s are more service than one for 50 s.
    check(
        "cluster 1x2
         policy srsf
         0 submit a gpus=2 work=100s
         1 submit b gpus=2 work=30s
         1 submit c gpus=1 work=50s",
        "0 launch a on 0:[0-1]
         1 stop a preempted
         1 launch c on 0:[0]
         51 done c
         51 launch b on 0:[0-1]
         81 done b
         81 launch a on 0:[0-1]
         180 done a",
    );
}

#[test]
fn las_alternates_jobs_by_quanta() {
    // One GPU, 10 s at a time; the job that has used less is first, equal ones in order of submission.
    check(
        "cluster 1x1
         policy las:quantum=10s
         0 submit a work=25s
         0 submit b work=15s",
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch b on 0:[0]
         20 stop b preempted
         20 launch a on 0:[0]
         30 stop a preempted
         30 launch b on 0:[0]
         35 done b
         35 launch a on 0:[0]
         40 done a",
    );
}

#[test]
fn las_counts_gpu_time_in_two_dimensions_and_time_in_one() {
    // After 10 s on two GPUs job a has used 20 GPU-seconds, but only 10 s.
    let jobs = "0 submit a gpus=2 work=15s
         0 submit b gpus=2 work=15s";
    check(
        &format!("cluster 1x2\n policy las:quantum=20s\n {jobs}"),
        "0 launch a on 0:[0-1]
         10 stop a preempted
         10 launch b on 0:[0-1]
         20 stop b preempted
         20 launch a on 0:[0-1]
         25 done a
         25 launch b on 0:[0-1]
         30 done b",
    );
    check(
        &format!("cluster 1x2\n policy las:dims=1,quantum=20s\n {jobs}"),
        "0 launch a on 0:[0-1]
         15 done a
         15 launch b on 0:[0-1]
         30 done b",
    );
}

#[test]
fn tiresias_demotes_at_its_limit() {
    // Two GPUs reach 20 GPU-seconds after 10 s: then b, which has used nothing, is first.
    check(
        "cluster 1x2
         policy tiresias:limits=20
         0 submit a gpus=2 work=30s
         1 submit b gpus=2 work=5s
         16 submit c gpus=2 work=5s",
        "0 launch a on 0:[0-1]
         10 stop a preempted
         10 launch b on 0:[0-1]
         15 done b
         15 launch a on 0:[0-1]
         16 stop a preempted
         16 launch c on 0:[0-1]
         21 done c
         21 launch a on 0:[0-1]
         40 done a",
    );
}

#[test]
fn tiresias_promotes_jobs_that_have_waited_long_enough() {
    // Job a was served 10 s and waits from 10 on: after twice that time it is first again and preempts d; at 40 it has
    // used up its fresh start.
    check(
        "cluster 1x1
         policy tiresias:limits=10,promote=2
         0 submit a work=30s
         5 submit b work=8s
         12 submit c work=15s
         13 submit d work=12s",
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch b on 0:[0]
         18 done b
         18 launch c on 0:[0]
         28 stop c preempted
         28 launch d on 0:[0]
         30 stop d preempted
         30 launch a on 0:[0]
         40 stop a preempted
         40 launch d on 0:[0]
         48 stop d preempted
         48 launch c on 0:[0]
         53 done c
         53 launch a on 0:[0]
         63 done a
         63 launch d on 0:[0]
         65 done d",
    );
}

#[test]
fn gittins_learns_that_a_job_that_outlives_short_ones_is_long() {
    // Most jobs took 10 s, a few took 1000 s. When `new` is submitted, `old` has outlived the short ones, so it probably has
    // long to run; `new` is probably short, and preempts it.
    let mut story = "cluster 1x1\n policy gittins:window=60\n".to_owned();
    for i in 0..60 {
        let (at, work) = (i * 2000, if i % 12 == 0 { 1000 } else { 10 });
        story += &format!("{at} submit past{i} work={work}s\n");
    }
    story += "200000 submit old work=900s\n 200500 submit new work=10s\n";
    let trace = trace(&story);
    let end: Vec<&str> = trace
        .lines()
        .filter(|l| l.contains("old") || l.contains("new"))
        .collect();
    assert_eq!(
        end,
        [
            "200000 launch old on 0:[0]",
            "200500 stop old preempted",
            "200500 launch new on 0:[0]",
            "200510 done new",
            "200510 launch old on 0:[0]",
            "200910 done old",
        ]
    );
}

#[test]
fn drf_evens_out_dominant_shares() {
    // The example of the paper with GPUs for its CPUs and CPUs for its memory: 9 and 18 of them. Jobs of x take (1, 4),
    // those of y (3, 1), so three and two of them bring both tenants to two thirds of their dominant resource.
    check(
        "cluster 1x9,cpu=18
         policy drf
         0 submit x1 gpus=1 cpu=4 work=10s tenant=x
         0 submit x2 gpus=1 cpu=4 work=10s tenant=x
         0 submit x3 gpus=1 cpu=4 work=10s tenant=x
         0 submit x4 gpus=1 cpu=4 work=10s tenant=x
         0 submit y1 gpus=3 cpu=0.334 work=10s tenant=y
         0 submit y2 gpus=3 cpu=0.334 work=10s tenant=y
         0 submit y3 gpus=3 cpu=0.334 work=10s tenant=y",
        "0 launch x1 on 0:[0]
         0 launch x2 on 0:[4]
         0 launch x3 on 0:[8]
         0 launch y1 on 0:[1-3]
         0 launch y2 on 0:[5-7]
         10 done x1
         10 done x2
         10 done x3
         10 done y1
         10 done y2
         10 launch x4 on 0:[0]
         10 launch y3 on 0:[1-3]
         20 done x4
         20 done y3",
    );
}

#[test]
fn under_drf_a_job_that_cannot_run_adds_nothing_to_its_tenants_share() {
    // The first job of y asks for all GPUs, of which x has held one for longer: it gets none. So y, which holds
    // nothing, is ahead of the second to fourth job of x with its next one.
    check(
        "cluster 1x4
         policy drf
         0 submit x1 gpus=1 work=100s tenant=x
         1 submit y1 gpus=4 work=10s tenant=y
         1 submit x2 gpus=1 work=100s tenant=x
         1 submit x3 gpus=1 work=100s tenant=x
         1 submit x4 gpus=1 work=100s tenant=x
         2 submit y2 gpus=1 work=10s tenant=y
         5 cancel y1",
        "0 launch x1 on 0:[0]
         1 launch x2 on 0:[1]
         1 launch x3 on 0:[2]
         1 launch x4 on 0:[3]
         2 stop x4 preempted
         2 launch y2 on 0:[3]
         12 done y2
         12 launch x4 on 0:[3]
         100 done x1
         101 done x2
         101 done x3
         111 done x4",
    );
}

#[test]
fn under_drf_a_held_job_adds_nothing_to_its_tenants_share() {
    // Admission holds y2, since its user is at the cap: y has one GPU then, as x has, and both are next.
    check(
        "cluster 1x4
         policy drf admission=caps:user=2
         0 submit y1 gpus=1 work=10s tenant=y user=u
         0 submit y2 gpus=2 work=10s tenant=y user=u
         0 submit x1 gpus=1 work=10s tenant=x user=v
         0 submit y3 gpus=1 work=10s tenant=y user=w
         0 submit x2 gpus=1 work=10s tenant=x user=v
         0 submit x3 gpus=1 work=10s tenant=x user=w",
        "0 launch y1 on 0:[0]
         0 launch x1 on 0:[1]
         0 launch y3 on 0:[2]
         0 launch x2 on 0:[3]
         10 done y1
         10 done x1
         10 done y3
         10 done x2
         10 launch y2 on 0:[0-1]
         10 launch x3 on 0:[2]
         20 done y2
         20 done x3",
    );
}
