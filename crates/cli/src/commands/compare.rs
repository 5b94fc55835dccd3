//! `dovetail compare`: a grid of policies, loads and seeds over all cores, one workload for all policies.

use std::collections::BTreeMap;

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::ClusterSpec;
use dovetail_model::run::{RunRecord, Summary};
use dovetail_report::format::{count, span};
use dovetail_sim::simulate_with;
use dovetail_workload::Workload;
use rayon::prelude::*;

use crate::args::{CompareArgs, RunArgs};
use crate::comparison::comparison_table;
use crate::{scenario, setup};

/// Policies if none are given.
const DEFAULT_POLICIES: &str = "fifo,fifo-backfill,fifo-easy,sjf,srtf,srsf,las,tiresias,gittins";

/// One run of the grid.
struct Cell {
    policy: String,
    load: Option<f64>,
    seed: u64,
}

/// Runs the grid and shows the table.
///
/// # Errors
/// If the request is invalid, or a run broke an invariant.
pub fn run(args: Box<CompareArgs>) -> Result<(), Failure> {
    let CompareArgs {
        scenario,
        policies,
        loads,
        seeds,
        threads,
        run,
    } = *args;
    let file = scenario
        .map(|path| scenario::read(&path))
        .transpose()?
        .unwrap_or_default();
    let file = file.without("policy", |s| &s.policy, "simulate")?;
    let args = run.over(file.run);
    let policies = setup::split_policies(policies.or(file.policies).as_deref().unwrap_or(DEFAULT_POLICIES));
    let loads = match loads.or(file.loads) {
        Some(text) => setup::loads(&text)?.into_iter().map(Some).collect(),
        None => vec![args.load],
    };
    let seeds = match seeds.or(file.seeds) {
        Some(text) => setup::seeds(&text)?,
        None => vec![args.seed.unwrap_or(1)],
    };
    if policies.is_empty() {
        return Err(Failure::request("--policies: expected at least one policy"));
    }
    if let Some(threads) = threads {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global();
        pool.or_request()?;
    }
    let records = run_grid(&args, &policies, &loads, &seeds)?;
    if let Some(dir) = &args.out {
        dovetail_report::write_comparison(dir, &records).or_work()?;
        for (record, name) in records.iter().zip(dovetail_report::run_directories(&records)) {
            super::simulate::emit(&dir.join(name), args.emit, record)?;
        }
    }
    if args.json {
        let summaries: Vec<&Summary> = records.iter().map(|r| &r.summary).collect();
        return console::print(serde_json::to_string_pretty(&summaries).or_work()?);
    }
    show_tables(&records, &loads, seeds.len(), policies.len())?;
    if let (Some(dir), false) = (&args.out, args.quiet) {
        console::print(format!("report: {}", dir.join("report.html").display()))?;
    }
    Ok(())
}

/// Builds every policy, so that errors are found before the first run starts, and prints warnings.
fn check_policies(
    args: &RunArgs,
    policies: &[String],
    cluster: &ClusterSpec,
    workload: &Workload,
) -> Result<(), Failure> {
    for policy in policies {
        let mut config = setup::config(args, cluster.clone(), 1)?;
        let (policy, _) = setup::policy(policy, args, workload, &mut config)?;
        if let (Some(warning), false) = (setup::short_time_slices(&policy, workload, &config), args.quiet) {
            eprintln!("warning: {warning}");
        }
    }
    if !args.quiet {
        workload.notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
    Ok(())
}

/// Runs all combinations, in the order load, seed, policy.
fn run_grid(
    args: &RunArgs,
    policies: &[String],
    loads: &[Option<f64>],
    seeds: &[u64],
) -> Result<Vec<RunRecord>, Failure> {
    let cluster = setup::cluster(args)?;
    let mut workloads: BTreeMap<(usize, u64), Workload> = BTreeMap::new();
    for (i, load) in loads.iter().enumerate() {
        for seed in seeds {
            workloads.insert((i, *seed), setup::workload(args, &cluster, *load, *seed)?);
        }
    }
    let any = workloads
        .values()
        .next()
        .ok_or_else(|| Failure::request("--seeds: expected at least one seed"))?;
    check_policies(args, policies, &cluster, any)?;
    let mut cells = Vec::new();
    for (i, load) in loads.iter().enumerate() {
        for seed in seeds {
            cells.extend(policies.iter().map(|p| {
                (
                    i,
                    Cell {
                        policy: p.clone(),
                        load: *load,
                        seed: *seed,
                    },
                )
            }));
        }
    }
    let total: u64 = cells
        .iter()
        .map(|(i, c)| workloads[&(*i, c.seed)].jobs.len() as u64)
        .sum();
    let bar = console::progress_bar(total, &format!("{} runs", cells.len()), args.quiet);
    let results: Vec<Result<RunRecord, Failure>> = cells
        .par_iter()
        .map(|(i, cell)| {
            let workload = &workloads[&(*i, cell.seed)];
            let mut config = setup::config(args, cluster.clone(), cell.seed)?;
            setup::speeds(args, workload, &mut config)?;
            let (policy, needs) = setup::policy(&cell.policy, args, workload, &mut config)?;
            let mut seen = 0;
            let result = simulate_with(workload, policy, needs, &config, None, &mut |done| {
                bar.inc(done - seen);
                seen = done;
            });
            let mut record = result.map_err(super::simulate::run_failure)?;
            if loads.len() > 1 {
                record.summary.policy = format!(
                    "{} at load {}",
                    record.summary.policy,
                    cell.load.unwrap_or_default()
                );
            }
            Ok(record)
        })
        .collect();
    bar.finish_and_clear();
    results.into_iter().collect()
}

/// Prints one table for each load; with several seeds, means with 95 % confidence.
fn show_tables(
    records: &[RunRecord],
    loads: &[Option<f64>],
    seeds: usize,
    policies: usize,
) -> Result<(), Failure> {
    let Some(first) = records.first() else {
        return Ok(());
    };
    let s = &first.summary;
    console::print(format!(
        "{}: {} jobs on {} nodes with {} GPUs{}",
        s.trace,
        count(s.jobs),
        count(s.cluster.nodes.into()),
        count(s.cluster.gpus.into()),
        if seeds > 1 {
            format!(", {seeds} seeds")
        } else {
            String::new()
        },
    ))?;
    for (i, load) in loads.iter().enumerate() {
        let block = &records[i * seeds * policies..(i + 1) * seeds * policies];
        if let (Some(load), true) = (load, loads.len() > 1) {
            console::print(format!("\nload {load}"))?;
        }
        let rows: Vec<(String, Summary)> = (0..policies)
            .map(|p| {
                let runs: Vec<&Summary> = block
                    .iter()
                    .skip(p)
                    .step_by(policies)
                    .map(|r| &r.summary)
                    .collect();
                let name = runs[0]
                    .policy
                    .split(" at load ")
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                (name, mean(&runs))
            })
            .collect();
        console::print(comparison_table(&rows))?;
        if seeds > 1 {
            console::print(confidence(&rows, block, policies))?;
        }
        let bound = mean(&block.iter().map(|r| &r.summary).collect::<Vec<_>>()).lower_bound_avg_jct_s;
        console::print(format!(
            "No schedule of rigid jobs with GPUs of their own can have an average JCT below {}.",
            span(bound)
        ))?;
    }
    Ok(())
}

/// Returns the mean of each metric over runs with different seeds.
fn mean(runs: &[&Summary]) -> Summary {
    let avg =
        |value: fn(&Summary) -> f64| runs.iter().map(|s| value(s)).sum::<f64>() / runs.len().max(1) as f64;
    Summary {
        avg_jct_s: avg(|s| s.avg_jct_s),
        median_jct_s: avg(|s| s.median_jct_s),
        p99_jct_s: avg(|s| s.p99_jct_s),
        avg_wait_s: avg(|s| s.avg_wait_s),
        avg_slowdown: avg(|s| s.avg_slowdown),
        makespan_s: avg(|s| s.makespan_s),
        gpu_utilization: avg(|s| s.gpu_utilization),
        preemptions: avg(|s| s.preemptions as f64) as u64,
        avg_queue_length: avg(|s| s.avg_queue_length),
        blocking_index: avg(|s| s.blocking_index),
        worst_ftf: avg(|s| s.worst_ftf),
        p95_ftf: avg(|s| s.p95_ftf),
        avg_ftf: avg(|s| s.avg_ftf),
        unfair_share: avg(|s| s.unfair_share),
        lower_bound_avg_jct_s: avg(|s| s.lower_bound_avg_jct_s),
        ..runs.first().map(|s| (*s).clone()).unwrap_or_default()
    }
}

/// Returns the half width of the 95 % confidence interval of each average JCT.
fn confidence(rows: &[(String, Summary)], block: &[RunRecord], policies: usize) -> String {
    let half = |p: usize| {
        let values: Vec<f64> = block
            .iter()
            .skip(p)
            .step_by(policies)
            .map(|r| r.summary.avg_jct_s)
            .collect();
        let mean = rows[p].1.avg_jct_s;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
        student(values.len() - 1) * (variance / values.len() as f64).sqrt()
    };
    let parts: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(p, (name, _))| format!("{name} ± {}", span(half(p))))
        .collect();
    format!("avg JCT, 95 % confidence: {}", parts.join(", "))
}

/// Two-sided 97.5 % quantile of Student's t.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match freedom {
        0 => f64::NAN,
        1..=10 => TABLE[freedom - 1],
        11..=30 => 2.1,
        _ => 1.96,
    }
}
