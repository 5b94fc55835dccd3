//! Every reason as people read it.

use dovetail_model::{Change, GpuTypeId, JobId, NodeId, Reason, TenantId, Time, UserId};

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
            Reason::TenantQuota {
                tenant: TenantId(3),
                borrows: false,
                asked: 4,
                held: 6,
                most: 8,
            },
            "asks for 4 GPUs; tenant 3 is guaranteed 8 and holds 6 of them",
        ),
        (
            Reason::TenantQuota {
                tenant: TenantId(3),
                borrows: true,
                asked: 4,
                held: 1,
                most: 2,
            },
            "asks for 4 GPUs; tenant 3 may borrow 2 and holds 1 of them",
        ),
        (
            cells_in_use(false, 3, 0),
            "asks for 4 GPUs; 3 are idle or lent in the cells of tenant 3",
        ),
        (
            cells_in_use(false, 5, 0),
            "asks for 4 GPUs; 5 are idle or lent in the cells of tenant 3, but not in one shape it could use",
        ),
        (
            cells_in_use(true, 2, 0),
            "asks for 4 GPUs; 2 are idle in all cells",
        ),
        (
            cells_in_use(false, 0, 2),
            "asks for 4 GPUs; the cells of tenant 3 that have them are lent to 2 other jobs",
        ),
        (
            Reason::CellsOwned {
                tenant: TenantId(3),
                kind: "RACK".to_owned(),
                owned: 4,
                free: 2,
                bad: 0,
                doomed: 0,
            },
            "tenant 3 owns 4 RACK, 2 free",
        ),
        (
            Reason::CellsOwned {
                tenant: TenantId(3),
                kind: "RACK".to_owned(),
                owned: 4,
                free: 2,
                bad: 1,
                doomed: 2,
            },
            "tenant 3 owns 4 RACK, 2 free, 1 with machines that are down, 2 with no machine left for them",
        ),
        (
            Reason::CellsHeld {
                holders: vec![(JobId(1), 8), (JobId(2), 1)],
                more: 3,
            },
            "held by job 1 (8 GPUs), job 2 (1 GPUs), 3 more",
        ),
        (
            Reason::UserCells {
                user: UserId(3),
                asked: 4,
                held: 6,
                most: 8,
            },
            "asks for 4 GPUs; user 3 may hold 8 and holds 6",
        ),
        (
            Reason::WouldStart(Change::JobsEnd(vec![JobId(1), JobId(4)])),
            "could start if job 1 and job 4 ended",
        ),
        (
            Reason::WouldStart(Change::NodesReturn(vec![NodeId(2)])),
            "could start if node 2 came back",
        ),
        (
            Reason::WouldStart(Change::MoreCells { asked: 9, owned: 8 }),
            "could start if its tenant owned more than 8 GPUs of the kind: it asks for 9",
        ),
        (
            Reason::WouldStart(Change::LargerCells { asked: 8, largest: 4 }),
            "could start in larger cells: 8 of its GPUs belong together, the largest cell has 4",
        ),
        (
            Reason::WouldStart(Change::HigherLimit),
            "could start if its user might hold more, or held less",
        ),
        (
            Reason::WouldStart(Change::Unknown),
            "no single kind of change was found that lets it start",
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

fn cells_in_use(borrows: bool, available: u32, lent_to: u32) -> Reason {
    Reason::CellsInUse {
        tenant: TenantId(3),
        borrows,
        asked: 4,
        available,
        lent_to,
    }
}
