//! Finish-time fairness, leases and auctions.

use dovetail_testkit::check;

#[test]
fn themis_serves_the_job_that_is_worst_off_against_an_equal_share() {
    // At 20, b would take 39 s against 49 on its share, ρ = 0.79; c 23 against 13.9, ρ = 1.65.
    check(
        "cluster 1x1
         policy fifo order=themis
         0 submit a work=20s
         1 submit b work=20s
         2 submit c work=5s",
        "0 launch a on 0:[0]
         20 done a
         20 launch c on 0:[0]
         25 done c
         25 launch b on 0:[0]
         45 done b",
    );
}

#[test]
fn a_holder_keeps_its_gpus_until_its_lease_ends_and_longer_if_no_job_waits() {
    // At 25 the lease of a ends, and no job waits: it keeps running without one, and c, which values the GPU more,
    // replaces it as soon as it is submitted.
    check(
        "cluster 1x1
         policy themis:lease=10s,f=0
         0 submit a work=40s
         1 submit b work=5s
         30 submit c work=5s",
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch b on 0:[0]
         15 done b
         15 launch a on 0:[0]
         30 stop a preempted
         30 launch c on 0:[0]
         35 done c
         35 launch a on 0:[0]
         50 done a",
    );
}

#[test]
fn a_holder_that_wins_again_keeps_its_gpus() {
    // A lease is worth more to jobs with a shorter total run time: a and b win at 10 and at 20.
    check(
        "cluster 1x2
         policy themis:lease=10s,f=0
         0 submit a work=25s
         0 submit b work=25s
         1 submit c work=100s",
        "0 launch a on 0:[0]
         0 launch b on 0:[1]
         25 done a
         25 done b
         25 launch c on 0:[0]
         125 done c",
    );
}

#[test]
fn a_winner_pays_with_a_part_of_its_lease() {
    // Without a, b would have won: a keeps 30/40 of its lease. Without payments c would wait until 10.
    let jobs = "0 submit a work=20s
         0 submit b work=30s
         1 submit c work=1s";
    check(
        &format!("cluster 1x1\n policy themis:lease=10s,f=0\n {jobs}"),
        "0 launch a on 0:[0]
         7.5 stop a preempted
         7.5 launch c on 0:[0]
         8.5 done c
         8.5 launch a on 0:[0]
         21 done a
         21 launch b on 0:[0]
         51 done b",
    );
    check(
        &format!("cluster 1x1\n policy themis:lease=10s,f=0,min_lease=1\n {jobs}"),
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch c on 0:[0]
         11 done c
         11 launch a on 0:[0]
         21 done a
         21 launch b on 0:[0]
         51 done b",
    );
}

const WIDE: &str = "0 submit a work=100s
         0 submit b work=100s
         3 submit c gpus=2 work=40s
         4 submit d gpus=4 work=8s
         5 submit e work=4s";

#[test]
fn gpus_are_gathered_for_a_gang_wider_than_what_is_on_offer() {
    // Leases end at 20, 23 and 24 once d is at the head of the queue: all leases given from then on end with them.
    check(
        &format!("cluster 1x4\n policy themis:lease=10s\n {WIDE}"),
        "0 launch a on 0:[0]
         0 launch b on 0:[1]
         3 launch c on 0:[2-3]
         10 stop b preempted
         10 launch e on 0:[1]
         13 stop c preempted
         13 launch b on 0:[2]
         14 done e
         14 launch c on 0:[1,3]
         23 stop b preempted
         23 stop a preempted
         23 stop c preempted
         23 launch d on 0:[0-3]
         31 done d
         31 launch a on 0:[1]
         31 launch b on 0:[0]
         31 launch c on 0:[2-3]
         52 done c
         108 done a
         111 done b",
    );
    check(
        &format!("cluster 1x4\n policy themis:lease=10s,gather=false\n {WIDE}"),
        "0 launch a on 0:[0]
         0 launch b on 0:[1]
         3 launch c on 0:[2-3]
         10 stop b preempted
         10 launch e on 0:[1]
         13 stop c preempted
         13 launch b on 0:[2]
         14 done e
         14 launch c on 0:[1,3]
         44 done c
         100 done a
         103 done b
         103 launch d on 0:[0-3]
         111 done d",
    );
}

#[test]
fn a_job_of_unknown_length_is_last() {
    check(
        "cluster 1x1
         policy themis:lease=10s
         0 submit a work=20s expect=none
         1 submit b work=20s
         2 submit c work=5s",
        "0 launch a on 0:[0]
         10 stop a preempted
         10 launch c on 0:[0]
         15 done c
         15 launch b on 0:[0]
         35 done b
         35 launch a on 0:[0]
         45 done a",
    );
}
