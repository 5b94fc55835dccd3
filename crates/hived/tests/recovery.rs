//! Groups that run while their virtual cluster does not exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_cells::{Cells, Fate, Layout};
use dovetail_hived::{Answer, GroupScheduler, GroupView, Phase, Place, PodSpec, parse_config};

/// Two machines of two leaf cells; each virtual cluster owns one machine.
fn layout(vcs: &[&str]) -> Layout {
    let mut text = "physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: n1}, {cellAddress: n2}]
virtualClusters:
"
    .to_owned();
    for vc in vcs {
        text += &format!("  {vc}: {{virtualCells: [{{cellType: POOL.NODE, cellNumber: 1}}]}}\n");
    }
    let config = parse_config(&text, "test.yaml").unwrap();
    config.compile().unwrap().layout
}

fn spec(vc: &str, priority: i32) -> PodSpec {
    PodSpec {
        virtual_cluster: vc.to_owned(),
        priority,
        leaf_cell_number: 2,
        ..PodSpec::default()
    }
}

fn place(node: &str, kind: &str) -> Place {
    Place {
        size: 2,
        node: node.to_owned(),
        leaves: vec![0, 1],
        kind: kind.to_owned(),
    }
}

/// Asserts that a group is reported with its own priority and virtual cluster, and as lazily preempted.
fn assert_downgraded(scheduler: &GroupScheduler, view: &GroupView<'_>) {
    assert_eq!((view.vc, view.priority), ("gone", 7));
    assert_eq!((view.group.priority, view.group.effective_priority()), (7, -1));
    let downgrade = view.group.downgraded.unwrap();
    assert_eq!(scheduler.name_of(downgrade.by), "p");
    scheduler.cells().check().unwrap();
}

#[test]
fn a_group_adopted_without_its_virtual_cluster_keeps_its_priority_and_is_lazily_preempted() {
    let mut scheduler = GroupScheduler::new(Cells::new(layout(&["a", "b"])));
    scheduler
        .adopt(
            "p",
            &spec("gone", 7),
            "POOL",
            &[place("n1", "NODE")],
            ("n1", &[0, 1]),
        )
        .unwrap();
    assert_downgraded(&scheduler, &scheduler.view("p").unwrap());
    // It holds no cell of another virtual cluster: both can use all they own.
    let answer = scheduler.schedule("q", &spec("b", 0), Phase::Filtering, None, true);
    assert!(matches!(answer, Ok(Answer::Bind { node, .. }) if node == "n2"));
    let answer = scheduler.schedule("r", &spec("a", 0), Phase::Preempting, None, true);
    assert!(matches!(answer, Ok(Answer::Preempt { victims }) if victims.contains("p")));
}

#[test]
fn a_group_whose_virtual_cluster_is_deleted_gets_its_place_back_when_it_is_added_again() {
    let mut scheduler = GroupScheduler::new(Cells::new(layout(&["a", "gone"])));
    let answer = scheduler.schedule("p", &spec("gone", 7), Phase::Filtering, None, true);
    assert!(matches!(answer, Ok(Answer::Bind { .. })));
    let groups = scheduler.reconfigure(layout(&["a"]));
    assert_eq!(groups[0].1.fate, Fate::Forgotten);
    assert_downgraded(&scheduler, &scheduler.view("p").unwrap());
    let groups = scheduler.reconfigure(layout(&["a", "gone"]));
    assert_eq!(groups[0].1.fate, Fate::Restored);
    let view = scheduler.view("p").unwrap();
    assert_eq!(
        (view.group.effective_priority(), view.group.downgraded),
        (7, None)
    );
    scheduler.cells().check().unwrap();
}

#[test]
fn an_opportunistic_group_without_its_virtual_cluster_is_not_lazily_preempted() {
    let mut scheduler = GroupScheduler::new(Cells::new(layout(&["a"])));
    scheduler
        .adopt(
            "p",
            &spec("gone", -1),
            "POOL",
            &[place("n1", "")],
            ("n1", &[0, 1]),
        )
        .unwrap();
    let view = scheduler.view("p").unwrap();
    assert_eq!((view.group.priority, view.group.downgraded), (-1, None));
}
