//! Blox's simulated experiments on 32 nodes with 4 GPUs each, in its own rounds and with its own quirks.
//!
//! The paper's numbers are in figures only; what is published in words stands below each table with whether it holds.
//! Jobs 3000 to 4000 are tracked and others keep coming until all of those are done, as in the reference.

use dovetail_model::run::Summary;
use dovetail_model::{ClusterSpec, Time, Work};
use dovetail_policies::Overrides;
use dovetail_report::format::span;
use dovetail_report::{AxisKind, BarSeries, Figure, LineChart, Series, grouped_bars};
use dovetail_sim::{SimConfig, compat, simulate};
use dovetail_workload::generate::{Durations, GenerateSpec, generate};
use dovetail_workload::{JobLabel, Workload};
use rayon::prelude::*;
use serde_json::json;

use super::{Claim, Outcome};
use crate::args::ReproduceArgs;
use crate::failure::{Blame, Failure};
use crate::{progress, show};

/// Jobs that count.
const TRACKED: (u32, u32) = (3000, 4000);
/// Enough jobs that arrivals never run out before the tracked jobs are done.
const JOBS: u64 = 40_000;

/// One run: a policy with an admission, at so many jobs an hour.
struct Setting {
    policy: &'static str,
    admission: &'static str,
    load: u32,
}

pub(super) fn figure_6(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let policies = ["fifo", "tiresias", "optimus"];
    let loads: Vec<u32> = (1..=9).collect();
    let settings: Vec<Setting> = loads
        .iter()
        .flat_map(|load| {
            policies.map(|policy| Setting {
                policy,
                admission: "accept-all",
                load: *load,
            })
        })
        .collect();
    let runs = run_all("blox-fig6", args, &settings, &|load| steady(load, args.seed))?;
    let at = |policy: usize, load: usize| &runs[load * policies.len() + policy];
    let mut table = show::table(&[
        "jobs/h",
        "fifo",
        "tiresias",
        "optimus",
        "first GPU: fifo",
        "tiresias",
        "optimus",
    ]);
    for (l, load) in loads.iter().enumerate() {
        let jct = (0..3).map(|p| span(at(p, l).avg_jct_s));
        let first = (0..3).map(|p| span(at(p, l).avg_first_start_s));
        table.add_row(std::iter::once(load.to_string()).chain(jct).chain(first));
    }
    show::align_numbers(&mut table);
    let best = |l: usize, value: fn(&Summary) -> f64| {
        (0..3)
            .min_by(|a, b| value(at(*a, l)).total_cmp(&value(at(*b, l))))
            .unwrap_or(0)
    };
    let claims = vec![
        Claim::new(
            "published: Optimus has the lowest JCT at low load",
            (0..4).all(|l| best(l, |s| s.avg_jct_s) == 2),
        ),
        Claim::new(
            "published: above 7 jobs an hour (the cluster holds 7.6) the JCT of Tiresias is above that of FIFO",
            (7..9).all(|l| at(1, l).avg_jct_s > at(0, l).avg_jct_s),
        ),
        Claim::new(
            "published: there Tiresias gives the first GPU soonest",
            (7..9).all(|l| best(l, |s| s.avg_first_start_s) == 1),
        ),
    ];
    let chart = |name: &str, title: &str, value: fn(&Summary) -> f64| {
        let series: Vec<Series> = policies
            .iter()
            .enumerate()
            .map(|(p, policy)| {
                Series::new(
                    *policy,
                    loads
                        .iter()
                        .enumerate()
                        .map(|(l, x)| (f64::from(*x), value(at(p, l)))),
                )
            })
            .collect();
        LineChart {
            name,
            title,
            caption: "Blox's own rounds, progress, placement and policies; 128 GPUs, jobs 3000 to 4000.",
            x_label: "jobs an hour",
            y_label: title,
            x: AxisKind::Linear,
            y: AxisKind::Time,
        }
        .draw(&series)
    };
    Ok(Outcome {
        table,
        claims,
        notes: Vec::new(),
        figures: vec![
            chart("avg-jct", "Average JCT", |s| s.avg_jct_s),
            chart("responsiveness", "Average time to the first GPU", |s| {
                s.avg_first_start_s
            }),
        ],
        data: rows(&settings, &runs),
    })
}

pub(super) fn figure_12(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let admissions = ["accept-all", "load:1.0", "load:1.2", "load:1.5"];
    let settings: Vec<Setting> = admissions
        .map(|admission| Setting {
            policy: "las",
            admission,
            load: 8,
        })
        .into_iter()
        .collect();
    let runs = run_all("blox-fig12", args, &settings, &|load| steady(load, args.seed))?;
    let mut outcome = admission_outcome(&settings, &runs, &["las"], &admissions, "LAS at 8 jobs an hour");
    let gain = 1.0 - runs[2].avg_jct_s / runs[0].avg_jct_s;
    let text = format!(
        "published: admission at 1.2 times the cluster lowers JCT, by 15 %; here by {:.0} %",
        gain * 100.0
    );
    outcome.claims.push(Claim::new(text, gain > 0.0));
    Ok(outcome)
}

pub(super) fn figure_13(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let policies = ["fifo", "srtf", "las"];
    let admissions = ["accept-all", "load:1.2", "load:1.4"];
    let settings: Vec<Setting> = policies
        .iter()
        .flat_map(|policy| {
            admissions.map(|admission| Setting {
                policy,
                admission,
                load: 9,
            })
        })
        .collect();
    let runs = run_all("blox-fig13", args, &settings, &|load| bursty(load, args.seed))?;
    let mut outcome = admission_outcome(
        &settings,
        &runs,
        &policies,
        &admissions,
        "Bursts at 9 jobs an hour",
    );
    let best = runs[6..9]
        .iter()
        .map(|s| s.avg_jct_s)
        .fold(f64::INFINITY, f64::min);
    let gain = 1.0 - best / runs[6].avg_jct_s;
    let text = format!(
        "published: admission lowers the JCT of LAS under bursts, by up to 27.3 %; here by {:.1} %",
        gain * 100.0
    );
    outcome.claims.push(Claim::new(text, gain > 0.0));
    Ok(outcome)
}

/// Table and figure of policies × admissions.
fn admission_outcome(
    settings: &[Setting],
    runs: &[Summary],
    policies: &[&str],
    admissions: &[&str],
    title: &str,
) -> Outcome {
    let mut table = show::table(&[
        "policy, admission",
        "avg JCT",
        "median",
        "p99",
        "first GPU",
        "stops",
    ]);
    for (setting, s) in settings.iter().zip(runs) {
        table.add_row([
            format!("{}, {}", setting.policy, setting.admission),
            span(s.avg_jct_s),
            span(s.median_jct_s),
            span(s.p99_jct_s),
            span(s.avg_first_start_s),
            dovetail_report::format::count(s.preemptions),
        ]);
    }
    show::align_numbers(&mut table);
    let series: Vec<BarSeries> = policies
        .iter()
        .enumerate()
        .map(|(p, policy)| {
            let runs = &runs[p * admissions.len()..(p + 1) * admissions.len()];
            BarSeries::ours(*policy, runs.iter().map(|s| Some(s.avg_jct_s / 3600.0)))
        })
        .collect();
    let figure: Figure = grouped_bars(title, "average JCT, hours", admissions, &series);
    Outcome {
        table,
        claims: Vec::new(),
        notes: Vec::new(),
        figures: vec![figure],
        data: rows(settings, runs),
    }
}

fn rows(settings: &[Setting], runs: &[Summary]) -> serde_json::Value {
    let rows: Vec<_> = settings
        .iter()
        .zip(runs)
        .map(|(s, run)| {
            json!({
                "policy": s.policy, "admission": s.admission, "jobs_per_hour": s.load, "avg_jct_s": run.avg_jct_s,
                "p99_jct_s": run.p99_jct_s, "avg_first_start_s": run.avg_first_start_s,
                "preemptions": run.preemptions, "rounds": run.rounds,
            })
        })
        .collect();
    json!({ "runs": rows })
}

/// All runs over all cores, in the order of the settings.
fn run_all(
    name: &str,
    args: &ReproduceArgs,
    settings: &[Setting],
    workload: &(dyn Fn(u32) -> Result<Workload, Failure> + Sync),
) -> Result<Vec<Summary>, Failure> {
    let bar = progress::bar(settings.len() as u64, name, args.quiet || args.json);
    let runs = settings
        .par_iter()
        .map(|setting| {
            let workload = workload(setting.load)?;
            let mut config = SimConfig::new(ClusterSpec::uniform(32, 4));
            config.track = Some(TRACKED);
            config.stop_after_tracked = true;
            config.segments = 0;
            config.seed = args.seed;
            let overrides = Overrides {
                admission: Some(setting.admission.to_owned()),
                ..Overrides::default()
            };
            let rate = Some(f64::from(setting.load));
            let (policy, needs) =
                compat::blox(setting.policy, &overrides, &workload, rate, &mut config).or_request()?;
            let record = simulate(&workload, policy, needs, &config).or_work()?;
            bar.inc(1);
            Ok(record.summary)
        })
        .collect();
    bar.finish_and_clear();
    runs
}

/// One-GPU jobs with Blox's default run times (mean 16.8 h) from a Poisson process.
fn steady(load: u32, seed: u64) -> Result<Workload, Failure> {
    generate(&GenerateSpec {
        jobs: JOBS,
        seed,
        jobs_per_hour: Some(f64::from(load)),
        gpus: "1:1".parse().or_work()?,
        ..GenerateSpec::preset("blox").or_work()?
    })
    .or_work()
}

/// What the reference means by bursts: jobs of 10 to 24 h from a Poisson process, and for two hours in every four,
/// short jobs (10 to 60 min) at four times that rate.
fn bursty(load: u32, seed: u64) -> Result<Workload, Failure> {
    let stream = |jobs: u64, seed: u64, rate: f64, low: f64, high: f64| -> Result<Workload, Failure> {
        let mut workload = generate(&GenerateSpec {
            jobs,
            seed,
            jobs_per_hour: Some(rate),
            gpus: "1:1".parse().or_work()?,
            durations: Durations::Exponential { mean_s: 1.0 },
            ..GenerateSpec::preset("blox").or_work()?
        })
        .or_work()?;
        // The exponential's own distribution function turns its draws into uniform ones.
        for job in &mut workload.jobs {
            let uniform = 1.0 - (-job.work.as_secs_f64()).exp();
            job.work = Work::from_secs_f64((low + uniform * (high - low)).round());
        }
        Ok(workload)
    };
    let mut base = stream(JOBS / 2, seed, f64::from(load), 36_000.0, 86_400.0)?;
    let burst = stream(JOBS * 2, seed + 1_000_003, 4.0 * f64::from(load), 600.0, 3600.0)?;
    let end = base.jobs.last().map_or(Time::ZERO, |j| j.submit);
    let in_burst = |t: Time| t.0.rem_euclid(Time::from_secs(14_400).0) < Time::from_secs(7200).0;
    base.jobs.extend(
        burst
            .jobs
            .into_iter()
            .filter(|j| in_burst(j.submit) && j.submit <= end),
    );
    base.jobs.sort_by_key(|j| j.submit);
    for (i, job) in base.jobs.iter_mut().enumerate() {
        job.label = JobLabel::Number(i as u64);
    }
    base.source = format!("bursts at {load} jobs an hour, seed {seed}");
    Ok(base)
}
