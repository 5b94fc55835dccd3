//! Machines that are down or draining: the others are used as far as every guarantee can be met.

use super::check;

#[test]
fn the_healthy_rack_is_preferred_to_half_of_the_broken_one() {
    for order in ["fifo", "srtf"] {
        check(
            &format!(
                "policy {order} discipline=preempt tenancy=cells:FILE
                 0 node-down 0
                 1 submit a gpus=8 work=10s tenant=y"
            ),
            "1 launch a on 2:[0-3] 3:[0-3]
             11 done a",
        );
    }
}

#[test]
fn a_job_that_leaves_the_healthy_rack_makes_room_in_the_same_decision() {
    check(
        "policy srtf tenancy=cells:FILE
         0 node-down 1
         1 submit a gpus=7 work=60s tenant=x
         2 submit b gpus=8 work=3s tenant=y
         5 submit c gpus=4 work=5s tenant=x",
        "1 launch a on 2:[0-2] 3:[0-3]
         5 stop a preempted
         5 launch c on 0:[0-3]
         5 launch b on 2:[0-3] 3:[0-3]
         8 done b
         10 done c
         10 launch a on 2:[0-2] 3:[0-3]
         66 done a",
    );
}

#[test]
fn a_borrower_that_started_in_the_first_walk_is_evicted_by_the_retry() {
    // At 5, c finds no healthy rack; then d preempts a, and b starts where a was. The second walk evicts b for c.
    check(
        "policy srtf tenancy=cells:FILE
         0 node-down 0
         1 submit a gpus=8 work=60s tenant=y
         2 submit b gpus=7 work=20s tenant=x priority=-1
         3 submit c gpus=7 work=10s tenant=x
         5 submit d gpus=1 work=20s tenant=y",
        "1 launch a on 2:[0-3] 3:[0-3]
         5 stop a preempted
         5 launch d on 1:[0]
         5 launch c on 2:[0-2] 3:[0-3]
         15 done c
         15 launch b on 2:[0-2] 3:[0-3]
         25 done d
         25 stop b preempted
         25 launch a on 2:[0-3] 3:[0-3]
         81 done a
         81 launch b on 1:[0-2] 2:[0-3]
         91 done b",
    );
}

#[test]
fn a_job_whose_healthy_cells_are_borrowed_is_told_which_node_is_down() {
    check(
        "policy fifo-backfill tenancy=cells:FILE
         0 submit a gpus=8 work=5s tenant=y priority=-1
         0 submit b gpus=8 work=100s tenant=y priority=-1
         6 node-down 0
         7 submit c gpus=8 work=10s tenant=x
         8 explain c
         9 node-up 0",
        "0 launch a on 0:[0-3] 1:[0-3]
         0 launch b on 2:[0-3] 3:[0-3]
         5 done a
         8 c: waits since 7: asks for 8 GPUs; the cells of tenant 2 that have them are borrowed by 1 other job; could start if \
         node 0 came back
         9 launch c on 0:[0-3] 1:[0-3]
         19 done c
         100 done b",
    );
}

#[test]
fn a_job_without_healthy_cells_is_told_which_node_is_down() {
    check(
        "policy srtf tenancy=cells:FILE
         0 node-down 0
         0 node-down 2
         1 submit a gpus=8 work=10s tenant=x
         2 explain a
         3 node-up 2",
        "2 a: waits since 1: asks for 8 GPUs; 8 are idle or borrowed in the cells of tenant 1, 4 of them on nodes that are down or \
         excluded, but not in a shape that it could use; tenant 1 owns 1 RACK, 1 free, 1 with nodes that are down, 1 without a \
         healthy node to back them; could start if node 2 came back
         3 launch a on 2:[0-3] 3:[0-3]
         13 done a",
    );
}
