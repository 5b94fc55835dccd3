//! `--compat muri` gives the finish times of Muri's own simulator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Clock, Engine};
use dovetail_model::run::RunRecord;
use dovetail_model::stages::{Contention, Ordering, efficiency};
use dovetail_model::{ClusterSpec, Event, JobKey, JobSpec, Time};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_testkit::shared;
use dovetail_workload::stage_table::StageTable;
use dovetail_workload::{Format, read};

/// Returns the name of the reference run for one of our policies.
fn run_name(trace: &str, policy: &str) -> String {
    let (name, knobs) = policy.split_once(':').unwrap_or((policy, ""));
    let mut schedule = match name {
        "srtf" => "shortest",
        "srsf" => "shortest-gpu",
        "tiresias" => "dlas-gpu",
        "antman" => "antman",
        "muri-s" => "multi-resource-blossom-same-gpu",
        "muri-l" if knobs.contains("matching=false") => "multi-resource-gpu-unaware",
        "muri-l" => "multi-resource-blossom-same-gpu-unaware",
        other => panic!("no run of {other}"),
    }
    .to_owned();
    if knobs.contains("ordering=worst") {
        schedule.push_str("-worstordering");
    }
    if knobs.contains("autopack=false") {
        schedule.push_str("__noautopack");
    }
    format!("{trace}__{schedule}")
}

/// Returns our run, and the end of every job in the reference's; `None` where the data is absent.
fn both(trace: &str, policy: &str) -> Option<(RunRecord, BTreeMap<String, f64>)> {
    let folder = shared(env!("CARGO_MANIFEST_DIR"), "muri")?;
    let path = folder.join("runs").join(run_name(trace, policy)).join("job.csv");
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let workload = read(folder.join(format!("trace-data/{trace}.csv")), Some(Format::Muri)).unwrap();
    let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
    let (built, needs) = compat::muri(policy, &Overrides::default(), &workload, &mut config).unwrap();
    let record = simulate(&workload, built, needs, &config).unwrap();
    let ends = golden
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .map(|cells| (cells[1].to_owned(), cells[5].parse().unwrap()))
        .collect();
    Some((record, ends))
}

/// Checks that every job ends when it does in the reference; the message names the first that does not, in the order of
/// the reference's ends.
fn every_job(trace: &str, policy: &str) {
    let Some((record, ends)) = both(trace, policy) else {
        return;
    };
    assert_eq!(record.rows.len(), ends.len(), "{trace} {policy}: jobs");
    let mut differ: Vec<(f64, String)> = Vec::new();
    for (row, name) in record.rows.iter().zip(&record.job_names) {
        let (ours, theirs) = (row.finish.map_or(f64::NAN, |t| t.as_secs_f64()), ends[name]);
        let near = (ours - theirs).abs() <= 1e-6 * theirs.abs();
        if !near {
            differ.push((
                theirs,
                format!("job {name} ends at {ours} s, in the reference at {theirs} s"),
            ));
        }
    }
    differ.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(
        differ.is_empty(),
        "{trace} {policy}: {} of {} jobs differ; the first: {}",
        differ.len(),
        ends.len(),
        differ[0].1
    );
}

#[test]
fn srtf_ends_every_job_when_the_reference_does() {
    for trace in [
        "trace1",
        "trace3",
        "trace1_pr",
        "trace3_pr",
        "job_type_1",
        "job_type_2",
    ] {
        every_job(trace, "srtf");
    }
}

#[test]
fn srsf_ends_every_job_when_the_reference_does() {
    for trace in ["trace1", "trace3", "trace1_pr", "trace3_pr"] {
        every_job(trace, "srsf");
    }
}

#[test]
fn antman_ends_every_job_when_the_reference_does() {
    for trace in ["trace1", "trace3"] {
        every_job(trace, "antman");
    }
}

#[test]
fn tiresias_ends_every_job_when_the_reference_does() {
    for trace in [
        "trace1",
        "trace3",
        "trace1_pr",
        "trace3_pr",
        "job_type_1",
        "job_type_2",
    ] {
        every_job(trace, "tiresias");
    }
}

#[test]
fn ablations_end_every_job_when_the_reference_does() {
    for policy in [
        "muri-l:matching=false",
        "muri-l:matching=false,autopack=false",
        "muri-l:ordering=worst,autopack=false",
    ] {
        every_job("trace1", policy);
        every_job("trace3", policy);
    }
    every_job("trace3", "muri-l:ordering=worst");
}

#[test]
fn muri_ends_every_job_when_the_reference_does() {
    for trace in ["trace1", "trace3", "job_type_1", "job_type_2"] {
        for policy in [
            "muri-s",
            "muri-s:autopack=false",
            "muri-l",
            "muri-l:autopack=false",
        ] {
            every_job(trace, policy);
        }
    }
}

/// Guaranteed and opportunistic jobs share some of their GPUs, which violates no invariant of the engine.
#[test]
fn antman_keeps_every_invariant() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "muri") else {
        return;
    };
    let workload = read(folder.join("trace-data/trace3.csv"), Some(Format::Muri)).unwrap();
    let mut config = SimConfig::new(ClusterSpec::uniform(8, 8));
    config.check = true;
    let (built, needs) = compat::muri("antman", &Overrides::default(), &workload, &mut config).unwrap();
    let record = simulate(&workload, built, needs, &config).unwrap();
    assert!(record.summary.gpu_utilization <= 1.0);
}

/// One grouping of the reference: jobs of one width, in queue order, and which of them share.
#[derive(serde::Deserialize)]
struct GoldenGrouping {
    num_gpu: u32,
    models: Vec<String>,
    cluster_gpu: u32,
    groups: Vec<Vec<u32>>,
}

#[test]
fn groupings_are_as_good_as_those_the_reference_finds() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "muri/golden") else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("blossom_same_grouping.json")).unwrap();
    let golden: Vec<GoldenGrouping> = serde_json::from_str(&text).unwrap();
    let profiles = StageTable::default();
    assert_eq!(golden.len(), 120);
    let mut pairs = 0;
    for (number, case) in golden.into_iter().enumerate() {
        let parts = Overrides {
            discipline: Some("afresh".to_owned()),
            grouping: Some("muri-sim:nodes=1x1000000,autopack=false".to_owned()),
            ..Overrides::default()
        };
        let (policy, _) = build("fifo", &parts).unwrap();
        let mut grouping = policy.grouping.clone();
        let mut engine = Engine::new(policy, Clock::Events);
        for (i, model) in (0..).zip(&case.models) {
            let mut spec = JobSpec::new(JobKey(i), case.num_gpu);
            spec.stages = Some(profiles.find(model, case.num_gpu).unwrap().stages);
            engine.handle(Time::ZERO, Event::Submitted(spec));
        }
        let queue: Vec<_> = engine.jobs().map(|job| (job, case.num_gpu)).collect();
        let claims = grouping.group(&queue, case.cluster_gpu, Time::ZERO);
        let ours: Vec<Vec<u32>> = claims
            .into_iter()
            .map(|c| c.members.iter().map(|m| m.0).collect())
            .collect();
        let stages = |i: &u32| {
            profiles
                .find(&case.models[*i as usize], case.num_gpu)
                .unwrap()
                .stages
        };
        let worth = |groups: &[Vec<u32>]| -> f64 {
            let shared = groups.iter().filter(|g| g.len() > 1);
            let members = shared.map(|g| g.iter().map(stages).collect::<Vec<_>>());
            members
                .map(|m| efficiency(&m, Ordering::Best, &Contention::default()))
                .sum()
        };
        assert_eq!(
            ours.len(),
            case.groups.len(),
            "grouping {number}: {:?}",
            case.models
        );
        // Pairs come from one matching, which is optimal. Larger groups come from several, and which of equally good ones
        // the first of them takes determines what the next can do.
        if ours.iter().chain(&case.groups).all(|g| g.len() <= 2) {
            let (ours, theirs) = (worth(&ours), worth(&case.groups));
            assert!(
                (ours - theirs).abs() < 1e-9,
                "grouping {number}: {ours}, in the reference {theirs}"
            );
            pairs += 1;
        }
    }
    assert!(pairs > 40, "{pairs} groupings are of pairs");
}
