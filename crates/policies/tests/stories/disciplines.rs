//! What happens when the next job does not fit.

use dovetail_testkit::check;

#[test]
fn strict_blocks_all_jobs_behind_the_first_that_does_not_fit() {
    check(
        "cluster 1x4
         policy fifo
         0 submit a gpus=3 work=10s
         0 submit b gpus=4 work=10s
         0 submit c gpus=1 work=5s",
        "0 launch a on 0:[0-2]
         10 done a
         10 launch b on 0:[0-3]
         20 done b
         20 launch c on 0:[0]
         25 done c",
    );
}

#[test]
fn backfill_passes_over_jobs_that_do_not_fit() {
    check(
        "cluster 1x4
         policy fifo-backfill
         0 submit a gpus=3 work=10s
         0 submit b gpus=4 work=10s
         0 submit c gpus=1 work=50s",
        "0 launch a on 0:[0-2]
         0 launch c on 0:[3]
         10 done a
         50 done c
         50 launch b on 0:[0-3]
         60 done b",
    );
}

#[test]
fn no_job_passes_the_head_after_the_patience_of_backfill() {
    // Job b has waited 30 s when d is submitted: d may not pass it, although a GPU is free from 35 on.
    check(
        "cluster 1x4
         policy fifo discipline=backfill:patience=30s
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=10s
         5 submit c gpus=1 work=30s
         35 submit d gpus=1 work=1s",
        "0 launch a on 0:[0-2]
         5 launch c on 0:[3]
         35 done c
         100 done a
         100 launch b on 0:[0-3]
         110 done b
         110 launch d on 0:[0]
         111 done d",
    );
}

#[test]
fn easy_starts_jobs_that_end_before_the_head_can_start() {
    // GPUs are reserved for b at 100: c is done by then, d is not.
    check(
        "cluster 1x4
         policy fifo-easy
         0 submit a gpus=3 work=100s
         0 submit b gpus=4 work=10s
         1 submit c gpus=1 work=99s
         2 submit d gpus=1 work=99s",
        "0 launch a on 0:[0-2]
         1 launch c on 0:[3]
         100 done a
         100 done c
         100 launch b on 0:[0-3]
         110 done b
         110 launch d on 0:[0]
         209 done d",
    );
}

#[test]
fn easy_starts_jobs_on_gpus_that_the_head_does_not_need() {
    // At 100 all four GPUs are free and b needs three: one is left for c, none for d.
    check(
        "cluster 1x4
         policy fifo-easy
         0 submit a gpus=3 work=100s
         0 submit b gpus=3 work=10s
         1 submit c gpus=1 work=1000s
         2 submit d gpus=1 work=1000s",
        "0 launch a on 0:[0-2]
         1 launch c on 0:[3]
         100 done a
         100 launch b on 0:[0-2]
         110 done b
         110 launch d on 0:[0]
         1001 done c
         1110 done d",
    );
}

#[test]
fn easy_without_run_times_reserves_gpus_after_its_patience() {
    check(
        "cluster 1x4
         policy fifo-easy discipline=easy:patience=20s
         0 submit a gpus=3 work=100s expect=none
         0 submit b gpus=4 work=10s expect=none
         5 submit c gpus=1 work=10s expect=none
         25 submit d gpus=1 work=10s expect=none",
        "0 launch a on 0:[0-2]
         5 launch c on 0:[3]
         15 done c
         100 done a
         100 launch b on 0:[0-3]
         110 done b
         110 launch d on 0:[0]
         120 done d",
    );
}

#[test]
fn preemption_evicts_as_few_jobs_as_needed_from_the_end_of_the_queue() {
    // Job d needs two GPUs: c, the longest, is preempted; a and b keep running.
    check(
        "cluster 1x6
         policy srtf
         0 submit a gpus=2 work=60s
         0 submit b gpus=2 work=70s
         0 submit c gpus=2 work=80s
         10 submit d gpus=2 work=5s",
        "0 launch a on 0:[0-1]
         0 launch b on 0:[2-3]
         0 launch c on 0:[4-5]
         10 stop c preempted
         10 launch d on 0:[4-5]
         15 done d
         15 launch c on 0:[4-5]
         60 done a
         70 done b
         85 done c",
    );
}

#[test]
fn a_victim_that_still_fits_keeps_its_own_gpus() {
    // Job c needs three GPUs: b is evicted first, then a; b fits again beside c, on its own GPU, and is not interrupted.
    check(
        "cluster 1x4
         policy srtf
         0 submit a gpus=3 work=50s
         0 submit b gpus=1 work=60s
         10 submit c gpus=3 work=5s",
        "0 launch a on 0:[0-2]
         0 launch b on 0:[3]
         10 stop a preempted
         10 launch c on 0:[0-2]
         15 done c
         15 launch a on 0:[0-2]
         55 done a
         60 done b",
    );
}

#[test]
fn preemption_that_would_not_help_is_undone() {
    // Even without b there is no room for c, as a is ahead of it: no job is stopped.
    check(
        "cluster 1x4
         policy srtf
         0 submit a gpus=2 work=10s
         0 submit b gpus=2 work=100s
         1 submit c gpus=4 work=20s",
        "0 launch a on 0:[0-1]
         0 launch b on 0:[2-3]
         10 done a
         10 stop b preempted
         10 launch c on 0:[0-3]
         30 done c
         30 launch b on 0:[0-1]
         120 done b",
    );
}

#[test]
fn blox_leaves_the_victims_of_a_failed_attempt_out() {
    // Job c is ahead of b only; b is evicted for it in vain, and stays out for the round.
    check(
        "cluster 1x4
         policy srtf discipline=blox placement=blox-scatter
         rounds 10s
         0 submit a gpus=2 work=15s
         0 submit b gpus=2 work=100s
         1 submit c gpus=4 work=20s",
        "0 launch a on 0:[0-1]
         0 launch b on 0:[2-3]
         10 stop b preempted
         15 done a
         20 launch c on 0:[0-3]
         40 done c
         40 launch b on 0:[0-1]
         130 done b",
    );
}

#[test]
fn replan_keeps_unchanged_jobs_in_place() {
    check(
        "cluster 2x4
         policy srtf discipline=replan
         0 submit a gpus=4 work=50s
         0 submit b gpus=4 work=100s
         10 submit c gpus=4 work=10s",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         10 stop b preempted
         10 launch c on 1:[0-3]
         20 done c
         20 launch b on 1:[0-3]
         50 done a
         110 done b",
    );
}
