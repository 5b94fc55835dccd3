//! Changing the file with the cells while jobs run.

use dovetail_engine::Engine;
use dovetail_model::{JobKey, Time};
use dovetail_testkit::{Scenario, World};
use proptest::prelude::*;

use super::{FILE, histories, in_cells_of};
use dovetail_testkit::any::cases;

/// Tenant `x` owns one switch, `y` a rack, and the new tenant `z` a machine.
const LATER: &str = "
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: gpu, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
virtualClusters:
  x: {virtualCells: [{cellType: RACK.NODE.SWITCH, cellNumber: 1}]}
  y: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
  z: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}
";

/// Continues the engine with the cells of another file.
fn change_cells(engine: &mut Engine, scenario: &Scenario, file: &str) {
    let scenario = in_cells_of(file, scenario.clone());
    engine.set_policy(scenario.policy.build().0).unwrap();
}

fn run_until(world: &mut World, at: i64) {
    while world.now() < Time::from_secs(at) && world.step() {}
}

#[test]
fn jobs_whose_cells_are_removed_borrow_until_the_cells_return() {
    let story = "cluster 4x4
         policy fifo discipline=preempt tenancy=cells:FILE
         0 submit a gpus=4 work=100s tenant=x
         0 submit b gpus=4 work=60s tenant=x
         0 submit c gpus=8 work=100s tenant=y
         1 explain a
         20 submit d gpus=4 work=50s tenant=z
         21 explain b
         31 explain d";
    let scenario = in_cells_of(FILE, story.parse().unwrap());
    let mut world = World::new(&scenario);
    run_until(&mut world, 1);
    change_cells(&mut world.engine, &scenario, LATER);
    let downgraded = |world: &World| world.engine.policy().tenancy.downgraded();
    assert_eq!(
        downgraded(&world),
        [JobKey(0), JobKey(1)],
        "x owns only a switch now"
    );
    run_until(&mut world, 21);
    assert_eq!(downgraded(&world), [JobKey(1)], "a was preempted for z");
    change_cells(&mut world.engine, &scenario, FILE);
    assert_eq!(
        downgraded(&world),
        [JobKey(3)],
        "b is guaranteed again, and z owns nothing"
    );
    world.run();
    let expected = "0 launch a on 0:[0-3]
        0 launch b on 1:[0-3]
        0 launch c on 2:[0-3] 3:[0-3]
        1 a: runs since 0 on 4 GPUs, 1 nodes
        20 stop a preempted
        20 launch d on 0:[0-3]
        21 b: runs since 0 on 4 GPUs, 1 nodes
        31 stop d preempted
        31 launch a on 0:[0-3]
        31 d: waits since 31: asks for 4 GPUs; 0 are idle or borrowed in the cells of tenant 3
        60 done b
        100 done c
        111 done a
        never d";
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    let trace = world.trace();
    assert_eq!(trace.trim().lines().collect::<Vec<_>>(), expected, "{trace}");
}

#[test]
fn jobs_of_a_removed_virtual_cluster_continue_as_borrowers() {
    let without_y = FILE
        .lines()
        .filter(|l| !l.starts_with("  y:"))
        .collect::<Vec<_>>()
        .join("\n");
    let story = "cluster 4x4
         policy fifo discipline=preempt tenancy=cells:FILE
         0 submit a gpus=4 work=100s tenant=y
         0 submit b gpus=1 work=1s tenant=x";
    let scenario = in_cells_of(FILE, story.parse().unwrap());
    let mut world = World::new(&scenario);
    run_until(&mut world, 1);
    change_cells(&mut world.engine, &scenario, &without_y);
    assert_eq!(world.engine.policy().tenancy.downgraded(), [JobKey(0)]);
    world.run();
    assert!(
        world.trace().ends_with("100 done a\n") || world.trace().ends_with("100 done a"),
        "{}",
        world.trace()
    );
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn the_ledger_is_consistent_whenever_the_file_changes(history in histories(), changes in prop::collection::vec(1..12_usize, 1..6)) {
        let mut world = World::new(&history);
        for (i, steps) in changes.iter().enumerate() {
            for _ in 0..*steps {
                world.step();
            }
            change_cells(&mut world.engine, &history, if i % 2 == 0 { LATER } else { FILE });
        }
        world.run();
    }
}
