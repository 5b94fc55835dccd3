//! Every reason as people read it.

use dovetail_model::{GpuTypeId, JobId, Reason, TenantId, Time, UserId};

#[test]
fn every_reason_reads_as_a_sentence() {
    let at = Some(Time::from_secs(90));
    for (reason, sentence) in [
        (
            Reason::NotEnoughFreeGpus { asked: 4, free: 3 },
            "asks for 4 GPUs, 3 are free",
        ),
        (
            Reason::Fragmented {
                asked: 4,
                free: 6,
                best: 3,
            },
            "asks for 4 GPUs; 6 are free, but at most 3 in one acceptable place",
        ),
        (
            Reason::NotEnoughCpuOrMemory {
                cpu_milli_per_gpu: 2500,
                memory_mib_per_gpu: 64,
            },
            "no node has 2.5 cores and 64 MiB free beside each GPU",
        ),
        (
            Reason::NeverFits {
                asked: 9,
                largest: 8,
                gpu_type: Some(GpuTypeId(1)),
            },
            "asks for 9 GPUs, but the cluster has only 8 it could use",
        ),
        (
            Reason::Malformed { gpus: 0 },
            "asks for 0 GPUs; a job needs at least one",
        ),
        (
            Reason::Malformed { gpus: 2 },
            "asks for 2 GPUs, but its least and most cannot be",
        ),
        (
            Reason::LoadLimit { demand: 9, limit: 8 },
            "held by admission: jobs let in ask for 9 GPUs, the limit is 8",
        ),
        (
            Reason::TenantCap {
                tenant: TenantId(3),
                demand: 9,
                cap: 8,
            },
            "held by admission: tenant 3 asks for 9 GPUs, its cap is 8",
        ),
        (
            Reason::UserCap {
                user: UserId(3),
                demand: 9,
                cap: 8,
            },
            "held by admission: user 3 asks for 9 GPUs, the cap is 8",
        ),
        (
            Reason::BehindInLine {
                head: JobId(7),
                ahead: 3,
            },
            "3 jobs are ahead in line, job 7 first, and it may not pass them",
        ),
        (
            Reason::BehindInLine {
                head: JobId(7),
                ahead: 1,
            },
            "job 7 is ahead in line, and it may not pass it",
        ),
        (
            Reason::ReservedFor {
                job: JobId(7),
                expected_start: at,
            },
            "GPUs are kept for job 7, expected to start at 90 s",
        ),
        (
            Reason::ReservedFor {
                job: JobId(7),
                expected_start: None,
            },
            "GPUs are kept for job 7",
        ),
        (
            Reason::WaitingForGpus { busy: 2 },
            "placed; waits for 2 GPUs to be given up",
        ),
        (Reason::NextRound { at }, "starts with the next round, at 90 s"),
        (Reason::NextRound { at: None }, "starts with the next decision"),
    ] {
        assert_eq!(reason.to_string(), sentence);
    }
}
