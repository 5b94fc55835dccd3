//! Virtual clusters under the engine: the ledger of the cells is consistent, and every guarantee can be met.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alone;
mod borrowers;
mod broken_nodes;
mod changes;
mod together;

use dovetail_engine::job::Stage;
use dovetail_engine::{Ask, Engine, Snapshot};
use dovetail_hived::parse_config;
use dovetail_model::{JobKey, NodeId, Reason};
use dovetail_policies::Overrides;
use dovetail_policies::tenancy::{CellMap, SharedCells};
use dovetail_testkit::any::{Fit, cases, histories_of, orders};
use dovetail_testkit::{PolicyText, Scenario, StoryEvent, World, replay};
use dovetail_workload::cluster::describe_bytes;
use proptest::prelude::*;
use proptest::sample::select;

/// Two racks of two machines of two switches of two GPUs. Tenant `x` owns a rack; `y` a machine and two switches.
const FILE: &str = "
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: gpu, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
virtualClusters:
  x: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
  y: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}, {cellType: RACK.NODE.SWITCH, cellNumber: 2}]}
";

/// Puts a scenario on the machines of a file, with its tenants as virtual clusters.
fn in_cells_of(file: &str, mut scenario: Scenario) -> Scenario {
    scenario.cluster = describe_bytes(file.as_bytes(), "cells.yaml").unwrap().cluster;
    let layout = parse_config(file, "cells.yaml")
        .unwrap()
        .compile()
        .unwrap()
        .layout;
    let tenants: Vec<String> = scenario.names.tenants.values().cloned().collect();
    let users: Vec<String> = scenario.names.users.values().cloned().collect();
    let map = CellMap::new(layout, &scenario.cluster, &tenants).unwrap();
    scenario.policy.overrides.tenants = tenants;
    scenario.policy.overrides.cells = Some(SharedCells::new(map.with_users(&users)));
    scenario
}

/// Checks a story on the cluster in `FILE`.
#[track_caller]
fn check(story: &str, expected: &str) {
    check_in(FILE, story, expected);
}

/// Checks a story on the cluster in a file, which has four machines with four GPUs.
#[track_caller]
fn check_in(file: &str, story: &str, expected: &str) {
    let scenario = in_cells_of(file, format!("cluster 4x4\n{story}").parse().unwrap());
    let mut world = World::new(&scenario);
    world.run();
    let lines = |text: &str| text.lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&world.trace()), lines(expected), "\n{}", world.trace());
}

#[test]
fn a_tenant_gets_the_shape_it_owns_back_from_borrowers() {
    check(
        "policy srsf tenancy=cells:FILE
         0 submit a gpus=16 work=100s tenant=x priority=-1
         10 submit b gpus=4 work=10s tenant=y
         11 submit c gpus=3 work=10s tenant=y",
        "0 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
         10 stop a preempted
         10 launch b on 0:[0-3]
         11 launch c on 1:[0,2-3]
         20 done b
         21 done c
         21 launch a on 0:[0-3] 1:[0-3] 2:[0-3] 3:[0-3]
         111 done a",
    );
}

#[test]
fn the_order_decides_inside_a_virtual_cluster() {
    check(
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=8 work=100s tenant=x
         5 submit b gpus=4 work=10s tenant=x
         6 submit c gpus=4 work=10s tenant=y
         7 submit d gpus=4 work=5s tenant=y
         8 explain a
         8 explain d",
        "0 launch a on 0:[0-3] 1:[0-3]
         5 stop a preempted
         5 launch b on 0:[0-3]
         6 launch c on 2:[0-3]
         7 launch d on 3:[0-3]
         8 a: waits since 5: asks for 8 GPUs; 4 are idle or borrowed in the cells of tenant 1; tenant 1 owns 1 RACK, 0 free; held by \
         job 1 (4 GPUs); could start if job 1 ended
         8 d: runs since 7 on 4 GPUs, 1 nodes
         12 done d
         15 done b
         15 launch a on 0:[0-3] 1:[0-3]
         16 done c
         110 done a",
    );
}

#[test]
fn a_job_that_no_cells_of_its_tenant_could_hold_is_rejected() {
    check(
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=9 work=1s tenant=x
         0 submit b gpus=8 work=1s tenant=y
         0 submit c gpus=1 work=1s
         0 submit d gpus=8 work=1s tenant=x",
        "0 reject a: asks for 9 GPUs; 8 are idle or borrowed in the cells of tenant 1
         0 reject c: asks for 1 GPU; 0 are idle or borrowed in the cells of tenant 0
         0 launch b on 0:[0-3] 1:[0-3]
         0 launch d on 2:[0-3] 3:[0-3]
         1 done b
         1 done d",
    );
}

#[test]
fn a_lost_machine_is_replaced_by_another() {
    check(
        "policy srtf tenancy=cells:FILE
         0 submit a gpus=4 work=50s tenant=y
         5 node-down 0
         30 node-up 0",
        "0 launch a on 0:[0-3]
         5 stop a node-lost 0
         5 launch a on 1:[0-3]
         50 done a",
    );
}

fn policies() -> impl Strategy<Value = PolicyText> {
    let walks = [
        ("preempt", "none"),
        ("preempt", "none"),
        ("preempt:min_run=7s", "none"),
        ("backfill", "none"),
        ("strict", "none"),
        ("replan", "none"),
        ("replan", "muri"),
        ("replan", "muri:size=2"),
    ];
    (orders(), select(walks.to_vec())).prop_map(|(order, (walk, grouping))| PolicyText {
        preset: "fifo".to_owned(),
        overrides: Overrides {
            order: Some(order),
            discipline: Some(walk.to_owned()),
            grouping: Some(grouping.to_owned()),
            tenancy: Some("cells:FILE".to_owned()),
            ..Overrides::default()
        },
    })
}

/// Generates histories on the machines of the file.
fn histories() -> impl Strategy<Value = Scenario> {
    histories_of(policies(), 25, Fit::Any).prop_map(with_borrowers_in_cells)
}

/// Puts a history on the machines of the file: jobs of two virtual clusters and of none, of which every third borrows.
fn with_borrowers_in_cells(mut history: Scenario) -> Scenario {
    for (i, story) in history.jobs.iter_mut().enumerate() {
        let job = &mut story.job;
        (
            job.gpu_type,
            job.cpu_milli_per_gpu,
            job.memory_mib_per_gpu,
            job.gpu_memory_mib,
        ) = (None, 0, 0, 0);
        job.priority = if i % 3 == 2 { -1 } else { 0 };
    }
    for (_, event) in &mut history.events {
        match event {
            StoryEvent::NodeDown(n)
            | StoryEvent::NodeUp(n)
            | StoryEvent::Drain(n)
            | StoryEvent::Resume(n) => n.0 %= 4,
            _ => {}
        }
    }
    let end = history.events.last().unwrap().0;
    history
        .events
        .extend((0..4).map(|n| (end, StoryEvent::NodeUp(NodeId(n)))));
    in_cells_of(FILE, history)
}

fn run(scenario: &Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world
}

/// Returns guaranteed jobs that wait although the cells of their tenants have room for them, free or borrowed.
fn needlessly_waiting(engine: &Engine) -> Vec<JobKey> {
    let has_room = |id: &JobKey| {
        let job = engine.job(*id).unwrap();
        let mut policy = engine.policy().clone();
        let ask = Ask::of(&job.spec);
        let place = policy
            .tenancy
            .place(job, &ask, engine.cluster(), &mut *policy.placement);
        matches!(place, Ok(_) | Err(Reason::CellsInUse { borrowers: 1.., .. }))
    };
    let waiting = engine
        .jobs()
        .filter(|j| j.spec.priority >= 0 && j.stage == Stage::Admitted);
    let waiting = waiting.filter(|j| j.is_queued() && j.allocation.is_none());
    waiting.map(|j| j.spec.id).filter(has_room).collect()
}

fn text(engine: &Engine) -> String {
    serde_json::to_string(engine).unwrap()
}

proptest! {
    #![proptest_config(cases(1200))]

    #[test]
    fn the_ledger_of_the_cells_is_consistent_after_every_step(mut history in histories(), chaos: Option<u64>) {
        history.behaviour.chaos = chaos;
        run(&history);
    }

    #[test]
    fn a_job_never_waits_for_cells_its_virtual_cluster_owns_and_has_free(mut history in histories()) {
        let overrides = &mut history.policy.overrides;
        if overrides.discipline.as_deref() != Some("replan") {
            overrides.discipline = Some("preempt".to_owned());
        }
        history.clock = dovetail_engine::Clock::Events;
        let mut world = World::new(&history);
        let mut decisions = 0;
        while world.step() {
            if std::mem::replace(&mut decisions, world.engine.decisions()) != world.engine.decisions() {
                let waiting = needlessly_waiting(&world.engine);
                prop_assert!(waiting.is_empty(), "{waiting:?} at {:?}\n{}", world.now(), world.trace());
            }
        }
    }

    #[test]
    fn a_snapshot_in_cells_continues_like_the_original(history in histories(), cut: prop::sample::Index) {
        let world = run(&history);
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut])?;
        let snapshot: Snapshot = serde_json::from_str(&text(&original)).unwrap();
        let mut restored = Engine::restore(snapshot, history.policy.build().0).unwrap();
        prop_assert_eq!(restored.check(), Ok(()));
        replay(&mut original, &world.calls()[cut..])?;
        replay(&mut restored, &world.calls()[cut..])?;
        prop_assert_eq!(text(&restored), text(&original));
    }
}
