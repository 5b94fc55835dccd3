//! `dovetail simulate`: one run.

use std::sync::Arc;

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_experiment::{DEFAULT_POLICY, OutputSpec, Run, Scenario, find_jobs};
use dovetail_model::run::{RunRecord, SolverStats, Summary};
use dovetail_report::format::{count, counted, significant, span};
use dovetail_sim::{Journal, Observer};
use dovetail_workload::{Format, Workload};

use super::trace;
use crate::args::SimulateArgs;
use crate::experiment::{failure, print_notice};
use crate::explain;

/// Runs the workload and shows the result.
///
/// # Errors
/// If the request is invalid, or the run broke an invariant.
pub fn run(args: Box<SimulateArgs>) -> Result<(), Failure> {
    let file = args.scenario.as_deref().map(Scenario::read).transpose();
    let file = file
        .map_err(failure)?
        .unwrap_or_default()
        .for_one_run()
        .or_request()?;
    let output = args.results.fill(file.output);
    check_output(&output)?;
    let mut spec = args.run.over(file.run);
    spec.moments = output.emit.is_some();
    let policy = args.policy.or(file.policy);
    let run = Run::new(
        policy.as_deref().unwrap_or(DEFAULT_POLICY),
        &spec,
        &mut |notice| {
            if !output.quiet {
                print_notice(&notice);
            }
        },
    );
    let run = run.map_err(failure)?;
    if let Some(path) = &args.record {
        let lost = trace::save_as(&run.workload, path, Format::Synergy)?;
        if !output.quiet {
            lost.iter()
                .for_each(|what| eprintln!("note: {} cannot represent: {what}", path.display()));
        }
    }
    let bar = console::progress_bar(run.workload.jobs.len() as u64, &run.policy.name, output.quiet);
    let mut journal = Journal {
        followed: find_jobs(&args.explain, &run.workload).map_err(failure)?,
        ..Journal::default()
    };
    let workload = Arc::clone(&run.workload);
    let nodes: Vec<String> = run
        .config
        .cluster
        .nodes
        .values()
        .map(|n| n.name.clone())
        .collect();
    let recorded = (!args.explain.is_empty()).then_some(&mut journal as &mut dyn Observer);
    let result = run.simulate(recorded, &mut |done| bar.set_position(done));
    bar.finish_and_clear();
    let record = result.map_err(failure)?;
    output.write_run(&record).or_work()?;
    let explanations = (!args.explain.is_empty()).then_some((&journal, &*workload, &nodes[..]));
    show(&record, &output, explanations)
}

/// Rejects result files of another system without a directory to write them to.
pub(super) fn check_output(output: &OutputSpec) -> Result<(), Failure> {
    match (output.emit, &output.out) {
        (Some(_), None) => Err(Failure::request(
            "--emit requires --out DIR, the directory to write to",
        )),
        _ => Ok(()),
    }
}

/// Prints the result, and the explanations of jobs with the names of the workload and the nodes.
fn show(
    record: &RunRecord,
    output: &OutputSpec,
    explanations: Option<(&Journal, &Workload, &[String])>,
) -> Result<(), Failure> {
    if output.json {
        return console::print(serde_json::to_string_pretty(&record.summary).or_work()?);
    }
    console::print(summary_table(record))?;
    if let Some((journal, workload, nodes)) = explanations {
        console::print(explain::table(journal, workload, nodes))?;
    }
    if let (Some(dir), false) = (&output.out, output.quiet) {
        console::print(format!("report: {}", dir.join("report.html").display()))?;
    }
    Ok(())
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
    let (nodes, gpus) = (
        counted(s.cluster.nodes.into(), "node"),
        counted(s.cluster.gpus.into(), "GPU"),
    );
    row("cluster", format!("{nodes}, {gpus}"));
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
