//! Cells together with other features: discipline `replan`, shared GPUs, pinned cells, limits of users.

use super::{check, check_in};

#[test]
fn replan_plans_each_virtual_cluster_separately() {
    check(
        "policy srsf discipline=replan tenancy=cells:FILE
         0 submit a gpus=16 work=100s tenant=x priority=-1
         10 submit b gpus=8 work=50s tenant=x
         20 submit c gpus=4 work=10s tenant=x
         20 submit d gpus=8 work=20s tenant=y",
        "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
         10 stop a preempted
         10 launch b on 0:[0-3] 1:[0-3]
         20 stop b preempted
         20 launch d on 2:[0-3] 3:[0-3]
         20 launch c on 0:[0-3]
         30 done c
         30 launch b on 0:[0-3] 1:[0-3]
         40 done d
         70 done b
         70 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
         160 done a",
    );
}

#[test]
fn only_jobs_of_one_tenant_share_gpus() {
    check(
        "policy muri-l tenancy=cells:FILE
         0 submit a gpus=4 work=10s tenant=y stages=10/30/10
         0 submit b gpus=4 work=10s tenant=y stages=30/10/10
         0 submit c gpus=4 work=10s tenant=y stages=10/10/30
         0 submit d gpus=8 work=10s tenant=x stages=10/30/10
         0 submit e gpus=8 work=10s tenant=x stages=30/10/10",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         0 launch c on 1:[0-3]
         0 launch d on 2:[0-3] 3:[0-3]
         0 launch e on 2:[0-3] 3:[0-3]
         10 done a
         10 done b
         10 done c
         10 done d
         10 done e",
    );
}

const PINNED: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: gpu, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2, pinnedCellId: bench}
  - {cellType: NODE, cellAddress: n3}
virtualClusters:
  x: {virtualCells: [{cellType: NODE, cellNumber: 1}], pinnedCells: [{pinnedCellId: bench}]}
  y: {virtualCells: [{cellType: NODE, cellNumber: 2}], leafCellsPerUser: 3, userLimits: {ann: 5}}
";

#[test]
fn a_tenant_uses_its_pinned_cell_when_the_others_are_full() {
    check_in(
        PINNED,
        "policy fifo-backfill tenancy=cells:FILE
         0 submit a gpus=3 work=10s tenant=x
         0 submit b gpus=4 work=10s tenant=x
         0 submit c gpus=2 work=10s tenant=x
         0 submit d gpus=4 work=10s tenant=y user=ann
         1 explain c",
        "0 launch a on 0:[0-2]
         0 launch b on 2:[0-3]
         0 launch d on 1:[0-3]
         1 c: waits since 0: asks for 2 GPUs; 1 is idle or borrowed in the cells of tenant 1; tenant 1 owns 1 NODE, 0 free; \
                  held by job 0 (3 GPUs); could start if job 0 ended
         10 done a
         10 done b
         10 done d
         10 launch c on 0:[0-1]
         20 done c",
    );
}

#[test]
fn a_user_holds_no_more_than_its_limit() {
    check_in(
        PINNED,
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=2 work=20s tenant=y user=bob
         0 submit b gpus=2 work=30s tenant=y user=bob
         0 submit c gpus=4 work=40s tenant=y user=ann
         0 submit d gpus=4 work=1s tenant=y user=bob
         1 explain b
         5 submit e gpus=3 work=5s tenant=y user=bob",
        "0 reject d: asks for 4 GPUs; user 1 may hold 3 and holds 0
         0 launch a on 0:[0-1]
         0 launch c on 1:[0-3]
         1 b: waits since 0: asks for 2 GPUs; user 1 may hold 3 and holds 2; could start if the limit of its user were higher, or other jobs of the user ended
         5 stop a preempted
         5 launch e on 0:[0-2]
         10 done e
         10 launch a on 0:[0-1]
         25 done a
         25 launch b on 0:[0-1]
         40 done c
         55 done b",
    );
}

#[test]
fn a_borrower_does_not_protect_the_gpus_of_a_job_beside_it() {
    check(
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=4 work=20s tenant=x
         0 submit b gpus=3 work=90s tenant=x
         0 submit c gpus=8 work=100s tenant=y priority=-1
         1 submit d gpus=1 work=100s tenant=y priority=-1
         10 submit e gpus=4 work=15s tenant=x",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-2]
         0 launch c on 2:[0-3] 3:[0-3]
         1 launch d on 1:[3]
         10 stop b preempted
         10 stop d preempted
         10 launch e on 1:[0-3]
         20 done a
         20 launch b on 0:[0-2]
         20 launch d on 0:[3]
         25 done e
         100 done c
         100 done b
         111 done d",
    );
}
