//! CPU and memory by need: invariants over random workloads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::Clock;
use dovetail_model::{Allocation, ClusterSpec, Command, JobKey, NodeId, Rate, Share, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{Journal, SimConfig, simulate_with};
use dovetail_workload::{JobLabel, SensitivityTable, TraceJob, Workload};
use proptest::prelude::*;

/// Nodes of 24 CPUs and 500 GB for 8 GPUs; every third one has half as much again.
fn cluster(nodes: u32, mixed: bool) -> ClusterSpec {
    let mut cluster = ClusterSpec::uniform(nodes, 8);
    for (i, node) in cluster.nodes.values_mut().enumerate() {
        let more = mixed && i % 3 == 2;
        node.cpu_milli = if more { 36_000 } else { 24_000 };
        node.memory_mib = if more { 750 } else { 500 } * 1024;
    }
    cluster
}

/// A job: its model, GPUs, seconds after the one before it, and seconds of work.
type JobDraw = (usize, u32, u32, u32);

fn workload(jobs: &[JobDraw]) -> Workload {
    let table = SensitivityTable::builtin("synergy-3").unwrap();
    let mut workload = Workload::default();
    let mut submit = Time::ZERO;
    for (i, (model, gpus, gap, work)) in jobs.iter().enumerate() {
        submit += Time::from_secs(i64::from(*gap));
        let work = Work(u64::from(*work) * 1_000_000);
        let mut job = TraceJob::new(JobLabel::Number(i as u64), submit, work, *gpus);
        // Some models were never measured.
        let row = table.rows.get(*model);
        job.sensitivity = row.map(|row| row.sensitivity.clone());
        workload.jobs.push(job);
    }
    workload
}

fn jobs() -> impl Strategy<Value = Vec<JobDraw>> {
    let gpus = prop_oneof![4 => Just(1_u32), 2 => Just(2), 2 => Just(4), 1 => Just(8), 1 => Just(12)];
    prop::collection::vec((0_usize..13, gpus, 0_u32..400, 1_u32..4000), 1..50)
}

/// Runs with all checks after every step, and returns the journal.
fn journal(jobs: &[JobDraw], preset: &str, sizing: &str, cluster: &ClusterSpec, clock: Clock) -> Journal {
    let overrides = Overrides {
        sizing: Some(sizing.to_owned()),
        ..Overrides::default()
    };
    let (policy, needs) = build(preset, &overrides).unwrap();
    let mut config = SimConfig::new(cluster.clone());
    (config.check, config.clock) = (true, clock);
    let mut journal = Journal::default();
    let record = simulate_with(
        &workload(jobs),
        policy,
        needs,
        &config,
        Some(&mut journal),
        &mut |_| {},
    );
    record.unwrap_or_else(|e| panic!("{preset} {sizing}: {e}"));
    journal
}

/// Calls `check` with all allocations after the commands of each moment.
fn moments(journal: &Journal, mut check: impl FnMut(Time, &BTreeMap<JobKey, Allocation>)) {
    let mut held: BTreeMap<JobKey, Allocation> = BTreeMap::new();
    let ended: BTreeMap<JobKey, Time> = journal
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            dovetail_model::Event::Exited { job, .. } => Some((*job, *at)),
            _ => None,
        })
        .collect();
    for (i, (now, command)) in journal.commands.iter().enumerate() {
        match command {
            Command::Launch { job, allocation, .. } | Command::Resize { job, allocation, .. } => {
                held.insert(*job, allocation.clone());
            }
            Command::Stop { job, .. } => drop(held.remove(job)),
            Command::Reject { .. } => {}
        }
        if journal.commands.get(i + 1).is_none_or(|(next, _)| next > now) {
            held.retain(|job, _| ended.get(job).is_none_or(|at| at > now));
            check(*now, &held);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_node_is_overallocated(
        jobs in jobs(), nodes in 2_u32..5, mixed: bool, sizing in 0_usize..3, preset in 0_usize..4, rounds: bool
    ) {
        let cluster = cluster(nodes, mixed);
        let sizing = ["proportional", "greedy", "tune"][sizing];
        let preset = ["fifo-backfill", "srtf", "las", "fifo-easy"][preset];
        let clock = if rounds { Clock::rounds(Time::from_secs(300)) } else { Clock::Events };
        let journal = journal(&jobs, preset, sizing, &cluster, clock);
        moments(&journal, |now, held| {
            let mut used: BTreeMap<NodeId, (u32, Share)> = BTreeMap::new();
            for part in held.values().flat_map(|a| &a.shares) {
                let used = used.entry(part.node).or_default();
                used.0 += part.gpus.count();
                used.1 = used.1.plus(Share::new(part.cpu_milli, part.memory_mib));
            }
            for (node, (gpus, share)) in used {
                let node_spec = &cluster.nodes[node];
                let all = Share::new(node_spec.cpu_milli, node_spec.memory_mib);
                assert!(gpus <= node_spec.gpus && all.covers(share), "node {node} at {now:?}: {gpus} GPUs, {share:?}");
            }
        });
    }

    #[test]
    fn under_tune_no_job_is_slower_than_with_its_proportional_share(
        jobs in jobs(), nodes in 2_u32..5, mixed: bool, preset in 0_usize..3
    ) {
        let cluster = cluster(nodes, mixed);
        let preset = ["fifo-backfill", "srtf", "las"][preset];
        let all = workload(&jobs);
        let journal = journal(&jobs, preset, "tune", &cluster, Clock::Events);
        moments(&journal, |now, held| {
            for (id, allocation) in held {
                let Some(curve) = &all.jobs[id.0 as usize].sensitivity else { continue };
                let fair = |node: NodeId| cluster.nodes[node].proportional();
                let least = allocation.shares.iter().map(|s| curve.rate(fair(s.node))).min().unwrap();
                let rate = curve.rate_on(allocation, fair);
                assert!(rate >= least, "job {id} at {now:?} runs at {rate:?}, in proportion at {least:?}");
            }
        });
    }

    #[test]
    fn under_tune_no_resource_is_left_unused_that_would_speed_up_a_job(
        jobs in jobs(), nodes in 1_u32..4, preset in 0_usize..3
    ) {
        let cluster = cluster(nodes, false);
        let preset = ["fifo-backfill", "srtf", "las"][preset];
        let all = workload(&jobs);
        let journal = journal(&jobs, preset, "tune", &cluster, Clock::Events);
        moments(&journal, |now, held| {
            let mut left: BTreeMap<NodeId, Share> = cluster
                .nodes
                .iter()
                .map(|(id, n)| (id, Share::new(n.cpu_milli, n.memory_mib)))
                .collect();
            for part in held.values().flat_map(|a| &a.shares) {
                let left = left.get_mut(&part.node).unwrap();
                *left = left.minus(Share::new(part.cpu_milli, part.memory_mib));
            }
            for (id, allocation) in held {
                let (Some(curve), [part]) = (&all.jobs[id.0 as usize].sensitivity, &allocation.shares[..]) else {
                    continue;
                };
                let gpus = part.gpus.count();
                let has = Share::new(part.cpu_milli, part.memory_mib).over(gpus);
                let reach = has.plus(left[&part.node].over(gpus));
                let (rate, could) = (curve.rate(has), curve.rate(reach));
                assert!(could.0 < rate.0 + 1000, "job {id} at {now:?} runs at {rate:?} and could at {could:?}");
            }
        });
    }

    #[test]
    fn the_same_workload_gives_the_same_journal(jobs in jobs(), preset in 0_usize..3) {
        let preset = ["fifo-backfill", "srtf", "las"][preset];
        let once = || journal(&jobs, preset, "tune", &cluster(3, false), Clock::Events);
        prop_assert_eq!(once(), once());
    }
}

#[test]
fn a_running_job_gets_more_and_less_cpu_without_being_stopped() {
    // AlexNet alone has all it can use; seven jobs of the same model make it share, and give back when they end.
    let alexnet = 0;
    let mut jobs = vec![(alexnet, 1, 0, 4000)];
    jobs.extend([(alexnet, 1, 1, 200); 7]);
    let journal = journal(&jobs, "fifo-backfill", "tune", &cluster(1, false), Clock::Events);
    let shares: Vec<u32> = journal
        .commands
        .iter()
        .filter_map(|(_, command)| match command {
            Command::Launch { job, allocation, .. } | Command::Resize { job, allocation, .. }
                if job.0 == 0 =>
            {
                Some(allocation.shares[0].cpu_milli)
            }
            _ => None,
        })
        .collect();
    assert_eq!(shares.first(), Some(&12_000));
    assert_eq!(shares.last(), Some(&12_000));
    assert!(shares.iter().min().unwrap() < &12_000, "{shares:?}");
    let stops = journal
        .commands
        .iter()
        .filter(|(_, c)| matches!(c, Command::Stop { .. }));
    assert_eq!(stops.count(), 0);
    let reported = journal.events.iter().any(|(_, event)| {
        matches!(event, dovetail_model::Event::Progressed { job: JobKey(0), rate, .. } if *rate != Rate::FULL)
    });
    assert!(reported, "the new speed is reported to the engine");
}
