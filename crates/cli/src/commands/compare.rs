//! `dovetail compare`: a grid of policies, loads and seeds over all cores, one workload for all policies.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_experiment::{Axes, Comparison, ComparisonRecord, LoadSummary, Scenario};
use dovetail_model::run::Summary;
use dovetail_report::format::{count, span};

use super::simulate::check_output;
use crate::args::CompareArgs;
use crate::comparison::comparison_table;
use crate::experiment::{failure, print_notice};

/// Runs the grid and shows the table.
///
/// # Errors
/// If the request is invalid, or a run broke an invariant.
pub fn run(args: Box<CompareArgs>) -> Result<(), Failure> {
    let file = args.scenario.as_deref().map(Scenario::read).transpose();
    let file = file
        .map_err(failure)?
        .unwrap_or_default()
        .for_comparison()
        .or_request()?;
    let output = args.results.fill(file.output);
    check_output(&output)?;
    let mut spec = args.run.over(file.run);
    spec.moments = output.emit.is_some();
    let policies = args.policies.or(file.policies);
    let (loads, seeds) = (args.loads.or(file.loads), args.seeds.or(file.seeds));
    let axes = Axes::parse(policies.as_deref(), loads.as_deref(), seeds.as_deref(), &spec);
    let comparison = Comparison::new(spec, axes.map_err(failure)?, &mut |notice| {
        if !output.quiet {
            print_notice(&notice);
        }
    });
    let comparison = comparison.map_err(failure)?;
    let bar = console::progress_bar(
        comparison.jobs(),
        &format!("{} runs", comparison.runs()),
        output.quiet,
    );
    let result = comparison.run(args.threads, &|jobs| bar.inc(jobs));
    bar.finish_and_clear();
    let result = result.map_err(failure)?;
    output.write_comparison(&result.records).or_work()?;
    if output.json {
        let summaries: Vec<&Summary> = result.records.iter().map(|r| &r.summary).collect();
        return console::print(serde_json::to_string_pretty(&summaries).or_work()?);
    }
    show_tables(&result)?;
    if let (Some(dir), false) = (&output.out, output.quiet) {
        console::print(format!("report: {}", dir.join("report.html").display()))?;
    }
    Ok(())
}

/// Prints one table for each load; with several seeds, means with 95 % confidence.
fn show_tables(result: &ComparisonRecord) -> Result<(), Failure> {
    let Some(first) = result.records.first() else {
        return Ok(());
    };
    let (s, seeds) = (&first.summary, result.axes.seeds.len());
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
    let loads = result.by_load();
    for summary in &loads {
        if let (Some(load), true) = (summary.load, loads.len() > 1) {
            console::print(format!("\nload {load}"))?;
        }
        console::print(comparison_table(&summary.policies))?;
        if seeds > 1 {
            console::print(confidence(summary))?;
        }
        console::print(format!(
            "No schedule of rigid jobs with GPUs of their own can have an average JCT below {}.",
            span(summary.lower_bound_avg_jct_s)
        ))?;
    }
    Ok(())
}

/// Returns the half width of the 95 % confidence interval of each average JCT.
fn confidence(summary: &LoadSummary) -> String {
    let parts = summary.policies.iter().map(|row| {
        let half = row.avg_jct_half_width_s.unwrap_or(f64::NAN);
        format!("{} ± {}", row.policy, span(half))
    });
    let parts: Vec<String> = parts.collect();
    format!("avg JCT, 95 % confidence: {}", parts.join(", "))
}
