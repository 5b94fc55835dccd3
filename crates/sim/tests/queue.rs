//! Queue length and blocking index, compared with a plain sum over all queued jobs.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::run::RunRecord;
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::parse_cluster;

/// Returns the times in seconds at which each job holds GPUs, from the segments of a run without restart costs.
fn held(record: &RunRecord) -> BTreeMap<u32, BTreeSet<(i64, i64)>> {
    let mut held: BTreeMap<u32, BTreeSet<(i64, i64)>> = BTreeMap::new();
    for segment in &record.segments {
        held.entry(segment.job.0)
            .or_default()
            .insert((segment.start.0, segment.end.0));
    }
    held
}

/// Returns the mean and maximum number of queued jobs, and the blocking index.
fn summed(record: &RunRecord) -> (f64, u64, f64) {
    // From, to, time without GPUs at `from`, work left.
    let mut waits: Vec<(i64, i64, f64, f64)> = Vec::new();
    let held = held(record);
    for row in &record.rows {
        let (mut at, mut waited, mut left) = (row.submit.0, 0.0, row.work.0 as f64);
        for (start, end) in held.get(&row.job.0).into_iter().flatten() {
            waits.push((at, *start, waited, left));
            waited += (start - at) as f64;
            left -= (end - start) as f64;
            at = *end;
        }
    }
    waits.retain(|(from, to, ..)| to > from);
    let first_submit = record
        .rows
        .iter()
        .map(|r| r.submit.0)
        .min()
        .expect("there are jobs");
    let last_finish = record
        .rows
        .iter()
        .filter_map(|r| r.finish)
        .max()
        .expect("some jobs finish")
        .0;
    let mut times: BTreeSet<i64> = BTreeSet::from([first_submit, last_finish]);
    times.extend(waits.iter().flat_map(|w| [w.0, w.1]));
    let times: Vec<i64> = times.into_iter().collect();
    let (mut length, mut most, mut index) = (0.0, 0, 0.0);
    for pair in times.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let (middle, span) = ((from + to) as f64 / 2.0, (to - from) as f64);
        let ratios: Vec<f64> = waits
            .iter()
            .filter(|w| w.0 <= from && to <= w.1)
            .map(|w| (w.2 + middle - w.0 as f64) / w.3)
            .collect();
        length += ratios.len() as f64 * span;
        most = most.max(ratios.len() as u64);
        index += ratios.iter().sum::<f64>() / ratios.len().max(1) as f64 * span;
    }
    let span = (last_finish - first_submit) as f64;
    (length / span, most, index / span)
}

#[test]
fn queue_length_and_blocking_index_equal_a_sum_over_queued_jobs() {
    for (policy, seed) in [
        ("fifo", 1),
        ("fifo-backfill", 2),
        ("srtf", 3),
        ("las:quantum=10m", 4),
    ] {
        let mut spec = GenerateSpec::preset("philly-like").unwrap();
        (spec.jobs, spec.seed) = (300, seed);
        (spec.load, spec.cluster_gpus) = (Some(4.0), Some(32));
        let mut config = SimConfig::new(parse_cluster("4x8").unwrap());
        config.moments = true;
        let (built, needs) = build(policy, &Overrides::default()).unwrap();
        let record = simulate(&generate(&spec).unwrap(), built, needs, &config).unwrap();
        let (length, most, index) = summed(&record);
        let s = &record.summary;
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
        assert!(
            near(s.avg_queue_length, length),
            "{policy}: {} {length}",
            s.avg_queue_length
        );
        assert_eq!(s.max_queue_length, most, "{policy}");
        assert!(
            near(s.blocking_index, index),
            "{policy}: {} {index}",
            s.blocking_index
        );
        assert!(
            index > 0.0 && s.preemptions > 0 || policy.starts_with("fifo"),
            "{policy}"
        );

        let moments = &record.moments;
        assert!(moments.windows(2).all(|p| p[0].at < p[1].at));
        for m in moments {
            assert_eq!(m.idle_nodes + m.busy_nodes + m.full_nodes, 4);
            assert_eq!(m.idle_gpus + m.busy_gpus, 32);
        }
        let last = moments.last().unwrap();
        assert_eq!(
            (last.idle_nodes, last.waiting, last.running, last.finished),
            (4, 0, 0, 300)
        );
    }
}
