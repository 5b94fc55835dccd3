//! `dovetail trace from-journal`: the history of a live cluster as a workload, and the simulator compared with it.

use std::path::Path;

use anyhow::Context;
use dovetail_cluster::history::{self, History, PastJob};
use dovetail_console::{self as console, Failure, OrFailure, ScratchFolder};
use dovetail_engine::Clock;
use dovetail_experiment::{Run, RunSpec};
use dovetail_model::Time;
use dovetail_report::format::{count, span};
use serde::Serialize;

use crate::args::FromJournalArgs;
use crate::experiment::failure;

/// Difference between simulated and live completion times.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fidelity {
    policy: String,
    jobs: usize,
    live_avg_jct_s: f64,
    simulated_avg_jct_s: f64,
    mean_error: f64,
    median_error: f64,
    p95_error: f64,
    worst_error: f64,
    worst_job: u64,
}

/// Writes the trace, or compares.
///
/// # Errors
/// If the journal is not readable, or contains no job that ran.
pub fn run(args: &FromJournalArgs) -> Result<(), Failure> {
    let copy = ScratchFolder::new("journal").or_work()?;
    let history = history::read(&args.folder, copy.path()).or_request()?;
    if history.jobs.is_empty() {
        return Err(Failure::request(format!(
            "{}: contains no finished job",
            args.folder.display()
        )));
    }
    let text = native(&history);
    if let Some(out) = &args.out {
        if out.as_os_str() == "-" {
            return console::print(text.trim_end());
        }
        std::fs::write(out, &text)
            .with_context(|| format!("{}", out.display()))
            .or_work()?;
        let skipped = match history.others {
            0 => String::new(),
            n => format!(
                "; {} skipped that never ran or have not finished",
                count(n as u64)
            ),
        };
        console::print(format!(
            "{}: {} jobs{skipped}",
            out.display(),
            count(history.jobs.len() as u64)
        ))?;
    }
    if !args.fidelity {
        return Ok(());
    }
    let fidelity = compare(&history, &text, copy.path())?;
    if args.json {
        return console::print(serde_json::to_string_pretty(&fidelity).or_work()?);
    }
    console::print(table(&fidelity))
}

/// Returns the history as a native trace; times count from its first job.
fn native(history: &History) -> String {
    let start = history
        .jobs
        .iter()
        .map(|j| j.submitted)
        .min()
        .unwrap_or(Time::ZERO);
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut lines = vec![
        "job_id,submit_s,duration_s,gpus,name,tenant,user,priority,gpu_type,iterations,iteration_s,cpus_per_gpu,\
         memory_gb_per_gpu,min_gpus,max_gpus"
            .to_owned(),
    ];
    for job in &history.jobs {
        let PastJob { request, .. } = job;
        let or_empty = |value: Option<String>| value.unwrap_or_default();
        lines.push(
            [
                job.id.to_string(),
                format!("{:.6}", job.submitted.since(start).as_secs_f64()),
                format!("{:.6}", job.held.as_secs_f64()),
                request.gpus.to_string(),
                quoted(&request.name),
                quoted(&request.tenant),
                quoted(&job.user),
                request.priority.to_string(),
                quoted(request.gpu_type.as_deref().unwrap_or_default()),
                or_empty(job.steps.map(|(total, _)| total.to_string())),
                or_empty(job.steps.map(|(_, time)| format!("{:.6}", time.as_secs_f64()))),
                request.cpus_per_gpu.to_string(),
                (request.memory_mib_per_gpu as f64 / 1024.0).to_string(),
                request.min_gpus.unwrap_or(request.gpus).to_string(),
                request.max_gpus.unwrap_or(request.gpus).to_string(),
            ]
            .join(","),
        );
    }
    lines.join("\n") + "\n"
}

/// Returns the nodes as a native cluster file.
fn cluster_file(history: &History) -> String {
    let mut text = "nodes:\n".to_owned();
    for node in &history.nodes {
        text += &format!(
            "  - {{name: {:?}, gpu_type: {:?}, gpus: {}, cpus: {}, memory_gb: {}}}\n",
            node.spec.name,
            node.gpu_type,
            node.spec.gpus,
            f64::from(node.spec.cpu_milli) / 1000.0,
            node.spec.memory_mib as f64 / 1024.0
        );
    }
    text
}

/// Replays the trace and compares completion times with the live ones.
fn compare(history: &History, text: &str, folder: &Path) -> Result<Fidelity, Failure> {
    let (trace, nodes) = (folder.join("past.csv"), folder.join("nodes.yaml"));
    std::fs::write(&trace, text).or_work()?;
    std::fs::write(&nodes, cluster_file(history)).or_work()?;
    let part = |kind: &str| history.policy.parts.get(kind).cloned();
    let spec = RunSpec {
        trace: Some(trace),
        trace_format: Some("native".to_owned()),
        cluster: Some(nodes.display().to_string()),
        admission: part("admission"),
        order: part("order"),
        discipline: part("discipline"),
        sizing: part("sizing"),
        grouping: part("grouping"),
        placement: part("placement"),
        tenancy: part("tenancy"),
        clock: match history.clock {
            Clock::Events => None,
            Clock::Rounds { period, .. } => Some(format!("rounds:{}s", period.as_secs_f64())),
        },
        sensitivity: Some("none".to_owned()),
        ..RunSpec::default()
    };
    let run = Run::new(&history.policy.policy, &spec, &mut |_| {}).map_err(failure)?;
    let name = run.policy.name.clone();
    let record = run.simulate(None, &mut |_| {}).map_err(failure)?;
    let mut errors: Vec<(f64, u64)> = Vec::new();
    let (mut live_sum, mut simulated_sum) = (0.0, 0.0);
    for (row, label) in record.rows.iter().zip(&record.job_names) {
        let job = history.jobs.iter().find(|j| j.id.to_string() == *label);
        let (Some(job), Some(jct)) = (job, row.jct()) else {
            continue;
        };
        let (live, simulated) = (job.ended.since(job.submitted).as_secs_f64(), jct.as_secs_f64());
        live_sum += live;
        simulated_sum += simulated;
        errors.push(((simulated - live).abs() / live.max(1e-6), job.id));
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(worst) = errors.last().copied() else {
        return Err(Failure::request("no job finished in the simulator"));
    };
    let n = errors.len();
    let at = |share: f64| errors[((n - 1) as f64 * share).round() as usize].0;
    Ok(Fidelity {
        policy: name,
        jobs: n,
        live_avg_jct_s: live_sum / n as f64,
        simulated_avg_jct_s: simulated_sum / n as f64,
        mean_error: errors.iter().map(|e| e.0).sum::<f64>() / n as f64,
        median_error: at(0.5),
        p95_error: at(0.95),
        worst_error: worst.0,
        worst_job: worst.1,
    })
}

fn table(f: &Fidelity) -> comfy_table::Table {
    let mut table = console::table(&["Live against simulated", &f.policy]);
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    for (name, value) in [
        ("jobs", count(f.jobs as u64)),
        ("avg JCT, live", span(f.live_avg_jct_s)),
        ("avg JCT, simulated", span(f.simulated_avg_jct_s)),
        ("error of a job's JCT, mean", percent(f.mean_error)),
        ("median", percent(f.median_error)),
        ("95th percentile", percent(f.p95_error)),
        (
            "worst",
            format!("{} (job {})", percent(f.worst_error), f.worst_job),
        ),
    ] {
        table.add_row([name.to_owned(), value]);
    }
    console::align_numbers(&mut table);
    table
}
