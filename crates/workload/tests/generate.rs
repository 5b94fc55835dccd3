//! Generated workloads have the documented statistics, and the same seed gives the same jobs.

mod shared;

use dovetail_workload::generate::{Arrivals, Durations, GpuMix, Tenants};
use dovetail_workload::{GenerateSpec, Workload, WorkloadStats, generate, read};

fn philly_like(seed: u64) -> Workload {
    generate(&GenerateSpec {
        jobs: 82_247,
        seed,
        ..GenerateSpec::default()
    })
    .expect("the spec is valid")
}

#[track_caller]
fn near(name: &str, found: f64, expected: f64, tolerance: f64) {
    let off = found / expected - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{name}: found {found}, expected {expected} ± {} %",
        tolerance * 100.0
    );
}

#[test]
fn philly_like_has_the_documented_statistics() {
    let mut demand = Vec::new();
    for seed in 1..=8 {
        let stats = WorkloadStats::of(&philly_like(seed));
        near("1-GPU share", stats.by_gpus[0].share, 0.9317, 0.005);
        near("median", stats.duration_s.p50, 1_144.0, 0.05);
        near("p90", stats.duration_s.p90, 11_265.0, 0.10);
        near("p99", stats.duration_s.p99, 254_884.0, 0.10);
        near("days", stats.span_s / 86_400.0, 108.9, 0.02);
        near("busiest hour", stats.arrivals_by_hour[7], 2.089, 0.06);
        near("quietest hour", stats.arrivals_by_hour[14], 0.638, 0.08);
        near(
            "share of 8-GPU jobs in GPU time",
            stats.by_gpus[3].gpu_time_share,
            0.484,
            0.15,
        );
        assert!(
            (11..=15).contains(&stats.tenants),
            "four of fifteen have only a few jobs"
        );
        demand.push(stats.mean_demand_gpus);
    }
    demand.iter().for_each(|d| near("mean demand", *d, 374.0, 0.12));
    near(
        "mean demand over seeds",
        demand.iter().sum::<f64>() / 8.0,
        374.0,
        0.04,
    );
}

#[test]
fn philly_like_matches_the_philly_trace() {
    let Some(path) = shared::data("traces/philly-pollux/philly.csv.gz") else {
        return;
    };
    let (trace, made) = (
        WorkloadStats::of(&read(path, None).unwrap()),
        WorkloadStats::of(&philly_like(1)),
    );
    near("jobs per hour", made.jobs_per_hour, trace.jobs_per_hour, 0.02);
    near("mean demand", made.mean_demand_gpus, trace.mean_demand_gpus, 0.10);
    near("p10", made.duration_s.p10, trace.duration_s.p10, 0.05);
    near("p25", made.duration_s.p25, trace.duration_s.p25, 0.08);
    near("p50", made.duration_s.p50, trace.duration_s.p50, 0.05);
    near("p75", made.duration_s.p75, trace.duration_s.p75, 0.08);
    near("p90", made.duration_s.p90, trace.duration_s.p90, 0.08);
    near("p95", made.duration_s.p95, trace.duration_s.p95, 0.10);
    near("p99", made.duration_s.p99, trace.duration_s.p99, 0.08);
    for (ours, theirs) in made.by_gpus.iter().zip(&trace.by_gpus).take(4) {
        assert_eq!(ours.gpus, theirs.gpus);
        near("share by GPUs", ours.share, theirs.share, 0.06);
        near(
            "GPU time by GPUs",
            ours.gpu_time_share,
            theirs.gpu_time_share,
            0.25,
        );
    }
    // The trace's clock starts at its first job, at 10:30:41.
    let shifted: Vec<f64> = (0..24)
        .map(|h| (trace.arrivals_by_hour[(h + 13) % 24] + trace.arrivals_by_hour[(h + 14) % 24]) / 2.0)
        .collect();
    let far = (0..24)
        .filter(|h| (made.arrivals_by_hour[*h] - shifted[*h]).abs() > 0.35)
        .count();
    assert!(far <= 3, "{far} hours are far from the trace");
    near(
        "tenants",
        made.top_tenants[0].gpu_time_share,
        trace.top_tenants[0].gpu_time_share,
        0.35,
    );
}

#[test]
fn the_same_seed_gives_the_same_jobs_and_another_one_different_jobs() {
    assert_eq!(philly_like(7), philly_like(7));
    assert_ne!(philly_like(7).jobs, philly_like(8).jobs);
    let spec = GenerateSpec {
        jobs: 5,
        users_per_tenant: 3,
        models: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    let jobs: Vec<String> = generate(&spec)
        .unwrap()
        .jobs
        .iter()
        .map(|j| {
            format!(
                "{} {} {} {} {} {:?}",
                j.submit.0, j.work.0, j.gpus, j.tenant, j.user, j.model
            )
        })
        .collect();
    insta::assert_snapshot!(jobs.join("\n"), @r"
    46230000 6831000000 1 2 5 Some(ModelId(0))
    53752000 2314000000 1 2 4 Some(ModelId(1))
    135239000 330000000 1 1 1 Some(ModelId(0))
    157466000 1187000000 1 1 2 Some(ModelId(0))
    187417000 367054000000 4 3 8 Some(ModelId(0))
    ");
}

#[test]
fn another_rate_does_not_change_the_jobs() {
    let at = |jobs_per_hour| {
        let spec = GenerateSpec {
            jobs: 20_000,
            jobs_per_hour: Some(jobs_per_hour),
            ..Default::default()
        };
        generate(&spec).unwrap()
    };
    let (slow, fast) = (at(1.0), at(100.0));
    assert!(slow.jobs.iter().zip(&fast.jobs).all(|(a, b)| a.submit > b.submit));
    assert!(
        slow.jobs
            .iter()
            .zip(&fast.jobs)
            .all(|(a, b)| (a.work, a.gpus, a.tenant) == (b.work, b.gpus, b.tenant))
    );
    near("rate", WorkloadStats::of(&fast).jobs_per_hour, 100.0, 0.05);
}

#[test]
fn every_kind_of_arrival_reaches_the_requested_load() {
    for arrivals in [
        "poisson",
        "diurnal:amplitude=0.8",
        "bursty:on_hours=3,off_hours=9,factor=8",
        "philly",
    ] {
        let arrivals: Arrivals = arrivals.parse().unwrap();
        let spec = GenerateSpec {
            jobs: 20_000,
            load: Some(0.9),
            cluster_gpus: Some(256),
            arrivals,
            ..Default::default()
        };
        near(
            &spec.arrivals.to_string(),
            WorkloadStats::of(&generate(&spec).unwrap()).mean_demand_gpus,
            0.9 * 256.0,
            0.01,
        );
    }
}

#[test]
fn arrivals_follow_their_pattern() {
    let spec = |arrivals: &str| GenerateSpec {
        jobs: 50_000,
        jobs_per_hour: Some(60.0),
        arrivals: arrivals.parse().unwrap(),
        ..Default::default()
    };
    let poisson = generate(&spec("poisson")).unwrap();
    near(
        "poisson rate",
        WorkloadStats::of(&poisson).jobs_per_hour,
        60.0,
        0.02,
    );
    assert!(
        WorkloadStats::of(&poisson)
            .arrivals_by_hour
            .iter()
            .all(|h| (0.9..1.1).contains(h))
    );
    let diurnal = generate(&spec("diurnal:amplitude=0.8,peak_hour=12")).unwrap();
    near(
        "diurnal rate",
        WorkloadStats::of(&diurnal).jobs_per_hour,
        60.0,
        0.02,
    );
    near(
        "noon",
        WorkloadStats::of(&diurnal).arrivals_by_hour[12],
        1.8,
        0.05,
    );
    near(
        "midnight",
        WorkloadStats::of(&diurnal).arrivals_by_hour[0],
        0.2,
        0.15,
    );
    let bursty = generate(&spec("bursty:on_hours=2,off_hours=6,factor=10")).unwrap();
    near(
        "bursty rate",
        WorkloadStats::of(&bursty).jobs_per_hour,
        60.0,
        0.15,
    );
    assert!(
        dispersion(&bursty) > 10.0 * dispersion(&poisson),
        "bursts make hours unequal"
    );
    let at_once = generate(&spec("at-once")).unwrap();
    assert_eq!(at_once.span().0, 0);
}

/// Variance over mean of the arrivals in an hour; 1 for a Poisson process.
fn dispersion(workload: &Workload) -> f64 {
    let mut hours = vec![0.0; workload.span().0 as usize / 3_600_000_000 + 1];
    workload
        .jobs
        .iter()
        .for_each(|j| hours[(j.submit - workload.jobs[0].submit).0 as usize / 3_600_000_000] += 1.0);
    let mean = hours.iter().sum::<f64>() / hours.len() as f64;
    hours.iter().map(|h| (h - mean) * (h - mean)).sum::<f64>() / hours.len() as f64 / mean
}

#[test]
fn durations_have_the_published_means() {
    let stats = |durations: &str| {
        let durations: Durations = durations.parse().unwrap();
        let spec = GenerateSpec {
            jobs: 200_000,
            durations,
            ..GenerateSpec::preset("blox").unwrap()
        };
        WorkloadStats::of(&generate(&spec).unwrap())
    };
    let blox = stats("blox");
    near("blox mean", blox.duration_s.mean, 60_360.0, 0.01);
    assert!(blox.duration_s.min >= 1897.0 && blox.duration_s.max <= 600_000.0);
    near("small mean", stats("blox-small").duration_s.mean, 10_750.0, 0.01);
    near(
        "exponential mean",
        stats("exponential:3600").duration_s.mean,
        3600.0,
        0.01,
    );
    near(
        "lognormal median",
        stats("lognormal:1200").duration_s.p50,
        1200.0,
        0.02,
    );
    assert_eq!(stats("fixed:90").duration_s.max, 90.0);
    let shares: Vec<f64> = blox.by_gpus.iter().map(|g| g.share).collect();
    for (found, expected) in shares.iter().zip([0.70, 0.10, 0.15, 0.05]) {
        near("share", *found, expected, 0.02);
    }
}

#[test]
fn tenants_and_users_are_skewed() {
    let spec = GenerateSpec {
        jobs: 10_000,
        tenants: "4:skew=1".parse().unwrap(),
        users_per_tenant: 5,
        ..Default::default()
    };
    let made = generate(&spec).unwrap();
    let stats = WorkloadStats::of(&made);
    assert_eq!((stats.tenants, stats.users), (4, 20));
    let of = |tenant: &str| stats.top_tenants.iter().find(|t| t.name == tenant).unwrap().jobs as f64;
    near("first over second", of("vc-0") / of("vc-1"), 2.0, 0.1);
    assert!(
        made.jobs
            .iter()
            .all(|j| made.names.users[j.user].starts_with(&made.names.tenants[j.tenant]))
    );
}

#[test]
fn parts_are_formatted_and_parsed_back() {
    let spec = GenerateSpec {
        arrivals: "bursty:factor=3".parse().unwrap(),
        durations: "lognormal:median_s=60,sigma=1.5".parse().unwrap(),
        gpus: "1:3,4:1".parse().unwrap(),
        tenants: "8".parse().unwrap(),
        ..Default::default()
    };
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<GenerateSpec>(&json).unwrap(), spec);
    assert_eq!(
        serde_json::from_str::<GenerateSpec>("{\"jobs\": 3}")
            .unwrap()
            .jobs,
        3
    );
    let hourly = format!("hourly:{}", ["1"; 24].join("/"));
    assert_eq!(hourly.parse::<Arrivals>().unwrap().to_string(), hourly);
    assert_eq!(
        "1:0.7,2:0.1,4:0.15,8:0.05".parse::<GpuMix>().unwrap(),
        GpuMix::default()
    );
    assert_eq!("philly".parse::<Tenants>().unwrap(), Tenants::Philly);
}

#[test]
fn errors_name_the_setting_and_accepted_values() {
    let mut errors = vec![
        "poison".parse::<Arrivals>().unwrap_err(),
        "diurnal:amplitude=2".parse::<Arrivals>().unwrap_err(),
        "bursty:on=2".parse::<Arrivals>().unwrap_err(),
        "hourly:1/2/3".parse::<Arrivals>().unwrap_err(),
        "fixed".parse::<Durations>().unwrap_err(),
        "philly:3".parse::<Durations>().unwrap_err(),
        "1:x".parse::<GpuMix>().unwrap_err(),
        "0:1".parse::<GpuMix>().unwrap_err(),
        "many".parse::<Tenants>().unwrap_err(),
        GenerateSpec::preset("phily-like").unwrap_err(),
    ];
    let base = GenerateSpec::default();
    for spec in [
        GenerateSpec {
            jobs: 0,
            ..base.clone()
        },
        GenerateSpec {
            jobs_per_hour: Some(-1.0),
            ..base.clone()
        },
        GenerateSpec {
            jobs_per_hour: Some(f64::NAN),
            ..base.clone()
        },
        GenerateSpec {
            jobs_per_hour: Some(1e-8),
            ..base.clone()
        },
        GenerateSpec {
            load: Some(0.8),
            ..base.clone()
        },
        GenerateSpec {
            load: Some(0.8),
            jobs_per_hour: Some(1.0),
            cluster_gpus: Some(8),
            ..base.clone()
        },
        GenerateSpec {
            user_skew: f64::INFINITY,
            ..base.clone()
        },
        GenerateSpec {
            models: vec![String::new()],
            ..base
        },
    ] {
        errors.push(generate(&spec).unwrap_err());
    }
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    arrivals: found "poison", expected one of poisson, diurnal, hourly, bursty, at-once, philly (did you mean poisson?)
    arrivals: found "diurnal:amplitude=2", expected amplitude to be a number from 0 to 1
    arrivals: found "bursty:on=2", expected only these keys: on_hours, off_hours, factor
    arrivals: found "1/2/3", expected 24 numbers of at least 0, not all 0, separated by slashes
    durations: found "fixed", expected seconds to be a number from 0.001 to 1000000000
    durations: found "philly:3", expected no settings of philly
    gpus: found "1:x", expected philly, default, or widths and weights such as 1:0.7,2:0.1,4:0.15,8:0.05
    gpus: found "0:1", expected philly, default, or widths and weights such as 1:0.7,2:0.1,4:0.15,8:0.05
    tenants: found "many", expected one of philly, a number from 1 to 1000000 such as 8 or 8:skew=1
    generator: found "phily-like", expected one of philly-like, blox, blox-small (did you mean philly-like?)
    jobs: found 0, expected a whole number from 1 to 50000000
    jobs_per_hour: found -1, expected a number above 0 and at most 1000000000
    jobs_per_hour: found NaN, expected a number above 0 and at most 1000000000
    jobs_per_hour: found 1e-8, expected a rate at which 1000 jobs arrive within 10000000000 seconds
    cluster_gpus: found nothing, expected the number of GPUs the load refers to
    load: found a load and jobs_per_hour, expected one of the two
    user_skew: found inf, expected a number from 0 to 20
    models: found an empty name, expected names
    "#);
}

#[test]
fn rescaling_reaches_its_target_and_keeps_the_first_job() {
    let mut made = philly_like(1);
    let first = made.jobs[0].submit;
    made.rescale_load(0.7, 512).unwrap();
    near(
        "load",
        WorkloadStats::of(&made).mean_demand_gpus,
        0.7 * 512.0,
        1e-6,
    );
    made.rescale_rate(10.0).unwrap();
    near("rate", WorkloadStats::of(&made).jobs_per_hour, 10.0, 1e-4);
    assert_eq!(made.jobs[0].submit, first);
    assert!(made.jobs.is_sorted_by_key(|j| j.submit));
    made.truncate(10);
    assert_eq!((made.jobs.len(), made.notes.len()), (10, 1));
    let mut at_once = generate(&GenerateSpec {
        arrivals: Arrivals::AtOnce,
        ..Default::default()
    })
    .unwrap();
    let errors = [
        at_once.rescale_rate(1.0).unwrap_err(),
        made.rescale_load(0.0, 8).unwrap_err(),
        made.rescale_load(1.0, 0).unwrap_err(),
        made.rescale_rate(1e-12).unwrap_err(),
    ];
    insta::assert_snapshot!(errors.map(|e| e.to_string()).join("\n"), @r"
    philly-like, seed 1: cannot rescale arrivals: all 1000 jobs arrive at the same time
    load: found 0, expected a number above 0
    GPUs of the cluster: found 0, expected a number above 0
    philly-like, seed 1: stretched by 1.6653426087838375e13, submit times are out of range
    ");
}
