//! A tenant that owns machines of a shared cluster is served as in a cluster of its own.

use dovetail_policies::Overrides;
use dovetail_testkit::any::{cases, plain, pools};
use dovetail_testkit::{PolicyText, Scenario, StoryEvent, World};
use proptest::prelude::*;
use proptest::sample::select;

use super::in_cells_of;

/// Five machines with four GPUs; `x` owns two of them, `y` three.
const SHARED: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: gpu, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
  - {cellType: NODE, cellAddress: n3}
  - {cellType: NODE, cellAddress: n4}
virtualClusters:
  x: {virtualCells: [{cellType: NODE, cellNumber: 2}]}
  y: {virtualCells: [{cellType: NODE, cellNumber: 3}]}
";

/// The two machines of `x` alone.
const PRIVATE: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: gpu, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
virtualClusters:
  x: {virtualCells: [{cellType: NODE, cellNumber: 2}]}
";

/// Generates orders whose keys depend on the job alone.
fn policies() -> impl Strategy<Value = PolicyText> {
    let orders = select(&["fifo", "sjf", "srtf", "srsf", "tiresias:limits=20/60"][..]);
    orders.prop_map(|order| PolicyText {
        preset: "fifo".to_owned(),
        overrides: Overrides {
            order: Some(order.to_owned()),
            discipline: Some("preempt".to_owned()),
            tenancy: Some("cells:FILE".to_owned()),
            ..Overrides::default()
        },
    })
}

/// Returns when the guaranteed jobs of `x` end if only the jobs are submitted that `is_submitted` accepts by tenant and
/// priority.
fn ends(file: &str, scenario: &Scenario, is_submitted: impl Fn(&str, i32) -> bool) -> Vec<String> {
    let mut scenario = scenario.clone();
    let tenant = |s: &Scenario, i: usize| s.names.tenants[s.jobs[i].job.tenant].clone();
    let all: Vec<(String, i32)> = (0..scenario.jobs.len())
        .map(|i| (tenant(&scenario, i), scenario.jobs[i].job.priority))
        .collect();
    scenario.events.retain(|(_, event)| match event {
        StoryEvent::Submit(job) => {
            let (tenant, priority) = &all[job.0 as usize];
            is_submitted(tenant, *priority)
        }
        _ => true,
    });
    let mut world = World::new(&in_cells_of(file, scenario.clone()));
    world.run();
    let trace = world.trace();
    let is_end = |line: &&str| {
        let name = line.split(' ').nth(2).unwrap_or_default();
        let job = scenario.jobs.iter().position(|j| j.job.label.to_string() == name);
        line.contains(" done ") && job.is_some_and(|i| all[i].0 == "x" && all[i].1 >= 0)
    };
    let mut ends: Vec<String> = trace.lines().filter(is_end).map(str::to_owned).collect();
    ends.sort();
    ends
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn jobs_of_other_tenants_do_not_delay_guaranteed_jobs(mut scenario in plain(pools(), policies(), 40, false)) {
        for (i, story) in scenario.jobs.iter_mut().enumerate() {
            let job = &mut story.job;
            (job.gpu_type, job.cpu_milli_per_gpu, job.memory_mib_per_gpu, job.gpu_memory_mib) = (None, 0, 0, 0);
            job.priority = if i % 4 == 3 { -1 } else { 0 };
        }
        let shared = ends(SHARED, &scenario, |tenant, _| tenant != "default");
        let alone = ends(PRIVATE, &scenario, |tenant, priority| tenant == "x" && priority >= 0);
        prop_assert_eq!(shared, alone);
    }
}
