//! `dovetail simulate`: one run.

use std::path::Path;

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::run::{RunRecord, SolverStats, Summary};
use dovetail_report::format::{count, significant, span};
use dovetail_sim::{Journal, simulate_with};
use dovetail_workload::Format;

use super::trace;
use crate::args::{EmitArg, SimulateArgs};
use crate::{explain, scenario, setup};

/// Policy if none is given.
const DEFAULT_POLICY: &str = "fifo-backfill";

/// Runs the workload and shows the result.
///
/// # Errors
/// If the request is invalid, or the run broke an invariant.
pub fn run(args: Box<SimulateArgs>) -> Result<(), Failure> {
    let SimulateArgs {
        scenario,
        policy,
        record,
        explain: explained_jobs,
        run,
    } = *args;
    let file = scenario
        .map(|path| scenario::read(&path))
        .transpose()?
        .unwrap_or_default();
    let file = file.without("policies", |s| &s.policies, "compare")?;
    let file = file
        .without("loads", |s| &s.loads, "compare")?
        .without("seeds", |s| &s.seeds, "compare")?;
    let args = run.over(file.run);
    let name = policy
        .or(file.policy)
        .unwrap_or_else(|| DEFAULT_POLICY.to_owned());
    let seed = args.seed.unwrap_or(1);
    let cluster = setup::cluster(&args)?;
    let workload = setup::workload(&args, &cluster, args.load, seed)?;
    let mut config = setup::config(&args, cluster, seed)?;
    setup::speeds(&args, &workload, &mut config)?;
    let (policy, needs) = setup::policy(&name, &args, &workload, &mut config)?;
    if !args.quiet {
        workload.notes.iter().for_each(|note| eprintln!("note: {note}"));
        if let Some(warning) = setup::short_time_slices(&policy, &workload, &config) {
            eprintln!("warning: {warning}");
        }
    }
    if let Some(path) = &record {
        let lost = trace::save_as(&workload, path, Format::Synergy)?;
        if !args.quiet {
            lost.iter()
                .for_each(|what| eprintln!("note: {} cannot represent: {what}", path.display()));
        }
    }
    let bar = console::progress_bar(workload.jobs.len() as u64, &policy.name, args.quiet);
    let mut journal = Journal {
        followed: explain::jobs(&explained_jobs, &workload)?,
        ..Journal::default()
    };
    let recorded = (!explained_jobs.is_empty()).then_some(&mut journal);
    let result = simulate_with(&workload, policy, needs, &config, recorded, &mut |done| {
        bar.set_position(done)
    });
    bar.finish_and_clear();
    let record = result.map_err(run_failure)?;
    if let Some(dir) = &args.out {
        dovetail_report::write_run(dir, &record).or_work()?;
        emit(dir, args.emit, &record)?;
    }
    if args.json {
        return console::print(serde_json::to_string_pretty(&record.summary).or_work()?);
    }
    console::print(summary_table(&record))?;
    if !explained_jobs.is_empty() {
        console::print(explain::table(&journal, &workload, &config))?;
    }
    if let (Some(dir), false) = (&args.out, args.quiet) {
        console::print(format!("report: {}", dir.join("report.html").display()))?;
    }
    Ok(())
}

/// Writes the files of another system, if requested.
///
/// # Errors
/// If a file is not writable.
pub fn emit(dir: &Path, system: Option<EmitArg>, record: &RunRecord) -> Result<(), Failure> {
    match system {
        None => Ok(()),
        Some(EmitArg::Muri) => dovetail_report::write_muri(dir, record).map(|_| ()).or_work(),
    }
}

/// Returns the failure of the request or of the work, depending on what caused the error.
pub fn run_failure(error: dovetail_sim::SimError) -> Failure {
    use dovetail_sim::SimError;
    match error {
        SimError::Invariant { .. } | SimError::Stuck { .. } => Failure::Work(error.into()),
        SimError::NotEnoughKnowledge { .. } | SimError::Empty(_) | SimError::Unsupported(_) => {
            Failure::Request(error.into())
        }
    }
}

/// Returns the number of integer programs, and how far the results are from the optimum.
fn solver_text(solved: &SolverStats) -> String {
    let open = solved.programs - solved.exact;
    if open == 0 {
        return format!("{}, all results proven optimal", count(solved.programs));
    }
    format!(
        "{}, {} results not proven optimal: at most {} ppm below the bound, {} ppm on average over all",
        count(solved.programs),
        count(open),
        count(solved.worst_gap_ppm),
        significant(solved.mean_gap_ppm)
    )
}

/// Returns the metrics of one run, one per line.
fn summary_table(record: &RunRecord) -> comfy_table::Table {
    let s: &Summary = &record.summary;
    let mut table = console::table(&[&s.policy, &s.trace]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    let (nodes, gpus) = (count(s.cluster.nodes.into()), count(s.cluster.gpus.into()));
    row("cluster", format!("{nodes} nodes, {gpus} GPUs"));
    let rejected = match s.rejected {
        0 => String::new(),
        n => format!(", {} rejected", count(n)),
    };
    let (finished, jobs) = (count(s.finished), count(s.jobs));
    row("jobs", format!("{finished} of {jobs} finished{rejected}"));
    row("average JCT", span(s.avg_jct_s));
    if s.lower_bound_avg_jct_s > 0.0 {
        let over = s.avg_jct_s / s.lower_bound_avg_jct_s;
        let bound = span(s.lower_bound_avg_jct_s);
        row("lower bound", format!("{bound} (this run: {over:.2} times that)"));
    }
    row(
        "median, p95, p99 JCT",
        [s.median_jct_s, s.p95_jct_s, s.p99_jct_s].map(span).join(", "),
    );
    row("average wait", span(s.avg_wait_s));
    row(
        "median, p95, p99 wait",
        [s.median_wait_s, s.p95_wait_s, s.p99_wait_s].map(span).join(", "),
    );
    row("average slowdown", format!("{:.2}", s.avg_slowdown));
    row("makespan", span(s.makespan_s));
    row("GPUs in use", format!("{:.1} %", s.gpu_utilization * 100.0));
    row("fragmentation", format!("{:.1} %", s.fragmentation * 100.0));
    let (mean, most) = (significant(s.avg_queue_length), count(s.max_queue_length));
    row("queued jobs", format!("{mean} on average, {most} at most"));
    row("blocking index", significant(s.blocking_index));
    row("stops of running jobs", count(s.preemptions));
    row(
        "worst, p95, average ρ",
        format!(
            "{:.2}, {:.2}, {:.2} ({:.1} % of jobs above 1)",
            s.worst_ftf,
            s.p95_ftf,
            s.avg_ftf,
            s.unfair_share * 100.0
        ),
    );
    row("Jain index", format!("{:.3}", s.jain_index));
    if !s.solved.is_empty() {
        row("integer programs", solver_text(&s.solved));
    }
    let (events, decisions) = (count(s.events), count(s.rounds));
    row(
        "simulated",
        format!("{events} events, {decisions} decisions in {:.0} ms", s.wall_ms),
    );
    table
}
