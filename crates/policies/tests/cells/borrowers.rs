//! Borrowers are preempted for guaranteed jobs, and not for one another.

use dovetail_model::ClusterSpec;
use dovetail_policies::build;
use dovetail_testkit::any::{Fit, cases, histories_of, presets};
use dovetail_testkit::{PolicyText, Scenario, World, find_needless_preemption};
use proptest::prelude::*;

use super::{FILE, check, check_in, in_cells_of, with_borrowers_in_cells};

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
fn a_preempted_borrower_does_not_preempt_another() {
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
fn a_queued_borrower_waits_for_running_ones() {
    for discipline in ["preempt", "replan"] {
        check(
            &format!(
                "policy srtf discipline={discipline} tenancy=cells:FILE
                 0 submit a gpus=16 work=100s tenant=y priority=-1
                 10 submit b gpus=4 work=10s tenant=x priority=-1"
            ),
            "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
             100 done a
             100 launch b on 0:[0-3]
             110 done b",
        );
    }
}

#[test]
fn borrowers_preempt_others_of_lower_priority_if_the_order_considers_it() {
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
fn a_preempted_borrower_starts_again_when_there_is_room() {
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

/// Generates every preset that works with cells.
fn presets_in_cells() -> impl Strategy<Value = PolicyText> {
    presets().prop_filter_map("the preset does not work with cells", |mut policy| {
        policy.overrides.tenancy = Some("cells:FILE".to_owned());
        let empty = in_cells_of(
            FILE,
            Scenario::plain(ClusterSpec::bare("gpu"), policy.clone(), Vec::new()),
        );
        let policy_in_cells = &empty.policy;
        let works = build(&policy_in_cells.preset, &policy_in_cells.overrides).is_ok();
        works.then_some(policy)
    })
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn under_every_preset_borrowers_are_preempted_only_for_guaranteed_jobs(
        history in histories_of(presets_in_cells(), 25, Fit::Any).prop_map(with_borrowers_in_cells),
    ) {
        let mut world = World::new(&history);
        let preempted = find_needless_preemption(&mut world);
        prop_assert_eq!(preempted, None, "at {:?}\n{}", world.now(), world.trace());
    }
}
