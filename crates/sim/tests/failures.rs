//! Node failures in a simulation: when nodes are down, and that the run still ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_model::{Event, NodeId, Time};
use dovetail_sim::{Failures, Journal, Outage, SimConfig, simulate_with};
use dovetail_testkit::Scenario;

/// Runs a scenario under these failures; returns the finish of each job, and when nodes went down and came up.
fn run(story: &str, failures: Failures) -> (Vec<Option<f64>>, Vec<String>) {
    let scenario: Scenario = story.parse().unwrap();
    let mut config = SimConfig::new(scenario.cluster.clone());
    (config.check, config.failures) = (true, failures);
    let (policy, needs) = scenario.policy.build();
    let mut journal = Journal::default();
    let workload = scenario.workload();
    let record = simulate_with(&workload, policy, needs, &config, Some(&mut journal), &mut |_| {}).unwrap();
    let finishes = record.rows.iter().map(|r| r.finish.map(Time::as_secs_f64));
    let nodes = journal.events.iter().filter_map(|(at, event)| match event {
        Event::NodeDown { node } => Some(format!("{} node {node} down", at.as_secs_f64())),
        Event::NodeUp { node, .. } if *at > Time::ZERO => {
            Some(format!("{} node {node} up", at.as_secs_f64()))
        }
        _ => None,
    });
    (finishes.collect(), nodes.collect())
}

fn outage(node: u32, down: i64, up: Option<i64>) -> Outage {
    Outage {
        node: NodeId(node),
        down: Time::from_secs(down),
        up: up.map(Time::from_secs),
    }
}

#[test]
fn a_node_with_overlapping_outages_is_down_until_the_last_one_ends() {
    let outages = vec![
        outage(0, 10, Some(20)),
        outage(0, 15, Some(30)),
        outage(0, 30, Some(40)),
        outage(1, 50, None),
        outage(1, 55, Some(60)),
    ];
    let failures = Failures {
        outages,
        ..Failures::default()
    };
    let (finishes, nodes) = run(
        "cluster 2x1\n policy fifo\n 0 submit a gpus=1 work=100s",
        failures,
    );
    assert_eq!(nodes, ["10 node 0 down", "40 node 0 up", "50 node 1 down"]);
    // Node 0 until 10, node 1 until 50, then node 0 again.
    assert_eq!(finishes, [Some(100.0)]);
}

#[test]
fn a_run_ends_when_no_job_can_start_although_nodes_keep_failing() {
    let failures = Failures {
        outages: vec![outage(0, 5, None)],
        mtbf: Some(Time::from_secs(100)),
        repair: Time::from_secs(10),
    };
    let story =
        "cluster 2x1\n policy fifo-backfill\n 0 submit a gpus=1 work=50s\n 0 submit b gpus=2 work=50s";
    let (finishes, _) = run(story, failures);
    assert!(finishes[0].is_some());
    assert_eq!(finishes[1], None);
}
