//! The text of every reason.

use dovetail_model::{Change, GpuTypeId, JobKey, NodeId, Reason, TenantId, Time, UserId};

#[test]
fn every_reason_has_a_text_with_its_numbers() {
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
            "asks for 4 GPUs; 6 are free, but at most 3 in one place that the placement accepts",
        ),
        (
            Reason::NotEnoughCpuOrMemory {
                cpu_milli_per_gpu: 2500,
                memory_mib_per_gpu: 64,
            },
            "no node has 2.5 CPU cores and 64 MiB of memory free for each GPU",
        ),
        (
            Reason::NeverFits {
                asked: 9,
                largest: 8,
                gpu_type: Some(GpuTypeId(1)),
            },
            "asks for 9 GPUs of type 1, but the cluster has only 8 that it could use",
        ),
        (malformed(0, 0, 0), "asks for 0 GPUs; expected at least 1"),
        (
            malformed(2, 3, 2),
            "`min_gpus` (3) must not exceed `max_gpus` (2)",
        ),
        (malformed(2, 0, 2), "`min_gpus` must be at least 1"),
        (
            Reason::NodeConstraint {
                asked: 2,
                nodes: 1,
                free: 1,
            },
            "asks for 2 GPUs; its node constraint allows 1 node, on which 1 GPU is free",
        ),
        (
            Reason::NodeConstraint {
                asked: 2,
                nodes: 0,
                free: 0,
            },
            "asks for 2 GPUs; no node of its node constraint is up",
        ),
        (
            Reason::NotEnoughGpuMemory {
                asked_mib: 9000,
                gpus: 2,
                fitting: 1,
            },
            "uses 9000 MiB on each of 2 GPUs; 1 free GPU has that much memory",
        ),
        (
            Reason::GpuMemoryNeverFits {
                asked_mib: 9000,
                largest_mib: 8000,
                gpus: 1,
                fitting: 0,
            },
            "uses 9000 MiB on each of 1 GPU, but only 0 GPUs have that much memory; the largest has 8000 MiB",
        ),
        (
            Reason::TasksNeverFit {
                tasks: 2,
                gpus_per_task: 4,
                fitting: 1,
                largest_node: 4,
            },
            "asks for 2 tasks with 4 GPUs on one node each, but the cluster has room for 1; the largest node has 4 GPUs \
             that it could use",
        ),
        (
            Reason::LoadLimit { demand: 9, limit: 8 },
            "held by admission: admitted jobs ask for 9 GPUs, the limit is 8",
        ),
        (
            Reason::TenantCap {
                tenant: TenantId(3),
                demand: 9,
                cap: 8,
            },
            "held by admission: tenant 3 asks for 9 GPUs, its limit is 8",
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
            "asks for 4 GPUs; 3 are idle or borrowed in the cells of tenant 3",
        ),
        (
            cells_in_use(false, 5, 0),
            "asks for 4 GPUs; 5 are idle or borrowed in the cells of tenant 3, but not in a shape that it could use",
        ),
        (
            cells_in_use(true, 2, 0),
            "asks for 4 GPUs; 2 are idle in all cells",
        ),
        (
            Reason::NoHealthyCell {
                tenant: TenantId(3),
                kind: "RACK".to_owned(),
                free: 2,
                bad: 1,
            },
            "tenant 3 may use another RACK, but only nodes that are down or excluded could back it (2 free, 1 down)",
        ),
        (
            cells_in_use(false, 0, 2),
            "asks for 4 GPUs; the cells of tenant 3 that have them are borrowed by 2 other jobs",
        ),
        (
            Reason::CellsOwned {
                tenant: TenantId(3),
                kind: "RACK".to_owned(),
                owned: 4,
                free: 2,
                bad: 0,
                doomed: 0,
                left_in_cluster: None,
                bad_in_cluster: 0,
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
                left_in_cluster: Some(3),
                bad_in_cluster: 1,
            },
            "tenant 3 owns 4 RACK, 2 free, 1 with nodes that are down, 2 without a healthy node to back them; 3 left in the \
             cluster, 1 of them with nodes that are down",
        ),
        (
            Reason::CellsHeld {
                holders: vec![(JobKey(1), 8), (JobKey(2), 1)],
                more: 3,
            },
            "held by job 1 (8 GPUs), job 2 (1 GPU), 3 more",
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
            Reason::WouldStart(Change::JobsEnd(vec![JobKey(1), JobKey(4)])),
            "could start if job 1 and job 4 ended",
        ),
        (
            Reason::WouldStart(Change::NodesReturn(vec![NodeId(2)])),
            "could start if node 2 came back",
        ),
        (
            Reason::WouldStart(Change::MoreCells { asked: 9, owned: 8 }),
            "could start if its tenant owned more than 8 GPUs of this type: it asks for 9",
        ),
        (
            Reason::WouldStart(Change::LargerCells { asked: 8, largest: 4 }),
            "could start in larger cells, or with smaller tasks: 8 of its GPUs must be in one cell, and the largest cell has 4",
        ),
        (
            Reason::WouldStart(Change::HigherLimit),
            "could start if the limit of its user were higher, or other jobs of the user ended",
        ),
        (
            Reason::WouldStart(Change::Unknown),
            "no single change was found that would let it start",
        ),
        (
            Reason::UserCap {
                user: UserId(3),
                demand: 9,
                cap: 8,
            },
            "held by admission: user 3 asks for 9 GPUs, the limit is 8",
        ),
        (
            Reason::BehindInQueue {
                head: JobKey(7),
                ahead: 3,
            },
            "3 jobs are ahead of it in the queue and must start first, beginning with job 7",
        ),
        (
            Reason::BehindInQueue {
                head: JobKey(7),
                ahead: 1,
            },
            "job 7 is ahead of it in the queue and must start first",
        ),
        (
            Reason::ReservedFor {
                job: JobKey(7),
                expected_start: at,
            },
            "free GPUs are reserved for job 7, expected to start at 90 s",
        ),
        (
            Reason::ReservedFor {
                job: JobKey(7),
                expected_start: None,
            },
            "free GPUs are reserved for job 7",
        ),
        (
            Reason::WaitingForGpus { busy: 2 },
            "placed; waits for 2 GPUs to be vacated",
        ),
        (Reason::NextRound { at }, "starts with the next round, at 90 s"),
        (Reason::NextRound { at: None }, "starts with the next decision"),
    ] {
        assert_eq!(reason.to_string(), sentence);
    }
}

fn malformed(gpus: u32, min_gpus: u32, max_gpus: u32) -> Reason {
    Reason::Malformed {
        gpus,
        min_gpus,
        max_gpus,
    }
}

fn cells_in_use(borrows: bool, available: u32, borrowers: u32) -> Reason {
    Reason::CellsInUse {
        tenant: TenantId(3),
        borrows,
        asked: 4,
        available,
        unusable: 0,
        borrowers,
    }
}
