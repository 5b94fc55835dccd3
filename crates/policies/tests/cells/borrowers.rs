//! Those who borrow give way to owners, and not to one another.

use super::{check, check_in};

/// Two pools of two machines. Tenant `x` owns one, `y` the other.
const POOLS: &str = "
physicalCluster:
  cellTypes:
    OLD: {childCellType: gpu, childCellNumber: 4, isNodeLevel: true}
    NEW: {childCellType: gpu, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: OLD, cellAddress: n0}
  - {cellType: OLD, cellAddress: n1}
  - {cellType: NEW, cellAddress: n2}
  - {cellType: NEW, cellAddress: n3}
virtualClusters:
  x: {virtualCells: [{cellType: OLD, cellNumber: 2}]}
  y: {virtualCells: [{cellType: NEW, cellNumber: 2}]}
";

#[test]
fn who_makes_room_for_an_owner_does_not_drive_out_the_next() {
    check_in(
        POOLS,
        "policy fifo discipline=preempt tenancy=cells:FILE
         0 submit a gpus=8 work=100s tenant=y priority=-1
         0 submit b gpus=8 work=100s tenant=x priority=-1
         10 submit c gpus=8 work=10s tenant=x",
        "0 launch a on 2:[0-3] 3:[0-3]
         0 launch b on 0:[0-3] 1:[0-3]
         10 stop a preempted
         10 launch c on 2:[0-3] 3:[0-3]
         20 done c
         20 launch a on 2:[0-3] 3:[0-3]
         100 done b
         110 done a",
    );
}

#[test]
fn a_borrower_in_line_waits_for_those_who_run() {
    check(
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=16 work=100s tenant=y priority=-1
         10 submit b gpus=4 work=10s tenant=x priority=-1",
        "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
         100 done a
         100 launch b on 0:[0-3]
         110 done b",
    );
}

#[test]
fn a_higher_priority_counts_among_borrowers_if_the_order_looks_at_it() {
    for (order, b_starts) in [("fifo:priority=true", true), ("fifo", false)] {
        let expected = match b_starts {
            true => {
                "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
                     10 stop a preempted
                     10 launch b on 0:[0-3]
                     20 done b
                     20 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
                     110 done a"
            }
            false => {
                "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
                      100 done a
                      100 launch b on 0:[0-3]
                      110 done b"
            }
        };
        check(
            &format!(
                "policy fifo order={order} discipline=preempt tenancy=cells:FILE
                 0 submit a gpus=16 work=100s tenant=y priority=-2
                 10 submit b gpus=4 work=10s tenant=x priority=-1"
            ),
            expected,
        );
    }
}

#[test]
fn who_gave_way_to_an_owner_comes_back_when_there_is_room() {
    check(
        "policy fifo discipline=preempt tenancy=cells:FILE
         0 submit a gpus=4 work=100s tenant=x priority=-1
         0 submit b gpus=4 work=100s tenant=x priority=-1
         0 submit c gpus=4 work=100s tenant=y priority=-1
         0 submit d gpus=4 work=100s tenant=y priority=-1
         10 submit e gpus=2 work=10s tenant=y
         11 explain a",
        "0 launch a on 0:[0-3]
         0 launch b on 1:[0-3]
         0 launch c on 2:[0-3]
         0 launch d on 3:[0-3]
         10 stop a preempted
         10 launch e on 0:[0-1]
         11 a: waits since 10: asks for 4 GPUs; 2 are idle in all cells; held by job 1 (4 GPUs), job 2 (4 GPUs), job 3 (4 GPUs), \
         job 4 (2 GPUs); could start if job 1 ended
         20 done e
         20 launch a on 0:[0-3]
         100 done b
         100 done c
         100 done d
         110 done a",
    );
}
