//! Machines that are down or drained: what is left is used as far as every promise can be kept.

use super::check;

#[test]
fn the_healthy_rack_is_not_passed_over_for_half_of_the_sick_one() {
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
fn who_leaves_the_healthy_rack_makes_room_at_once() {
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
