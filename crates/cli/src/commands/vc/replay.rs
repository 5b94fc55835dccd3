//! `dovetail vc replay`: replays scenarios recorded from HiveD.

use std::path::{Path, PathBuf};

use dovetail_cells::Layout;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_hived::{
    Answer, GroupScheduler, Scenario, ScenarioError, ScenarioReport, Step, UserError, read_config,
};
use serde_json::{Value, json};

use super::explain;

pub(super) fn run(
    files: &[PathBuf],
    configs: Option<&Path>,
    with_explanations: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let mut table = console::table(&[
        "scenario",
        "steps",
        "exact",
        "up to symmetry",
        "intended",
        "differs",
    ]);
    let mut rows: Vec<Value> = Vec::new();
    let mut first = None;
    for file in files {
        let scenario = read_scenario(file)?;
        let folder = match configs {
            Some(folder) => folder.to_owned(),
            None => file.parent().unwrap_or(Path::new(".")).join("../configs"),
        };
        let mut explanations = Vec::new();
        let mut watch =
            |at: usize, extender: &GroupScheduler, step: &Step, ours: Option<&Result<Answer, UserError>>| {
                if with_explanations {
                    explanations.extend(pending_lines(at, extender, step, ours));
                }
            };
        let report = scenario
            .replay(&mut |name| layout(&folder, name), &mut watch)
            .map_err(|error| Failure::request(format!("{}: {error}", file.display())))?;
        if with_explanations && !as_json {
            console::print(format!("{}: {}", scenario.name, scenario.note))?;
            for line in &explanations {
                console::print(format!("  {line}"))?;
            }
        }
        let mismatch = report
            .mismatch
            .as_ref()
            .map(|(at, m)| describe(&scenario, *at, &m.to_string()));
        table.add_row([
            scenario.name.clone(),
            report.steps.to_string(),
            report.exact.to_string(),
            report.symmetric.to_string(),
            report.exceptions.len().to_string(),
            mismatch
                .as_ref()
                .map_or("–".to_owned(), |_| format!("step {}", report.steps - 1)),
        ]);
        rows.push(as_value(&scenario, &report, &explanations, mismatch.as_deref()));
        if first.is_none() {
            first = mismatch;
        }
    }
    if as_json {
        console::print(serde_json::to_string_pretty(&rows).or_work()?)?;
    } else {
        console::align_numbers(&mut table);
        console::print(table)?;
        rows.iter().try_for_each(print_exceptions)?;
    }
    match first {
        Some(what) => Err(Failure::Work(anyhow::anyhow!("first difference: {what}"))),
        None => Ok(()),
    }
}

/// Prints the differences of one scenario that are intended.
fn print_exceptions(row: &Value) -> Result<(), Failure> {
    let exceptions = row["exceptions"].as_array().map(Vec::as_slice);
    for exception in exceptions.unwrap_or_default() {
        let name = row["scenario"].as_str().unwrap_or_default();
        let why = exception["why"].as_str().unwrap_or_default();
        let step = &exception["step"];
        console::print(format!("intended difference: {name} step {step}: {why}"))?;
    }
    Ok(())
}

pub(super) fn read_scenario(file: &Path) -> Result<Scenario, Failure> {
    let shown = file.display();
    let bytes = std::fs::read(file).map_err(|e| Failure::request(format!("cannot read {shown}: {e}")))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Failure::request(format!(
            "{shown}: not a scenario: {e}; expected JSON with name, config and steps"
        ))
    })
}

pub(super) fn layout(folder: &Path, name: &str) -> Result<Layout, ScenarioError> {
    let (_, compiled) = read_config(&folder.join(name))?;
    Ok(compiled.layout)
}

fn describe(scenario: &Scenario, at: usize, what: &str) -> String {
    let step = &scenario.steps[at];
    let subject = if step.pod.is_empty() {
        &step.node
    } else {
        &step.pod
    };
    format!("{}, step {at} ({} {subject}): {what}", scenario.name, step.op)
}

/// Returns why a pod is pending, as lines of text.
fn pending_lines(
    at: usize,
    extender: &GroupScheduler,
    step: &Step,
    ours: Option<&Result<Answer, UserError>>,
) -> Vec<String> {
    let Some(spec) = &step.spec else { return Vec::new() };
    match ours {
        Some(Ok(Answer::Wait { reason: None })) => {
            vec![format!(
                "step {at}: {} is pending: its group is being preempted",
                step.pod
            )]
        }
        Some(Ok(Answer::Wait { reason: Some(_) })) => {
            let Some(explanation) = extender.explain(&step.pod, spec, step.suggested_nodes.as_deref()) else {
                return Vec::new();
            };
            let name = |key: u64| extender.name_of(key).to_owned();
            let lines = explain::lines(&explanation, extender.cells(), &spec.virtual_cluster, &name);
            let head = format!("step {at}: {} is pending", step.pod);
            std::iter::once(head)
                .chain(lines.into_iter().map(|l| format!("  {l}")))
                .collect()
        }
        Some(Err(error)) => vec![format!("step {at}: {} is rejected: {error}", step.pod)],
        Some(Ok(Answer::Bind { .. } | Answer::Preempt { .. })) | None => Vec::new(),
    }
}

fn as_value(
    scenario: &Scenario,
    report: &ScenarioReport,
    explanations: &[String],
    mismatch: Option<&str>,
) -> Value {
    let exceptions: Vec<Value> = report
        .exceptions
        .iter()
        .map(|(step, why)| json!({"step": step, "why": why}))
        .collect();
    let mut row = json!({"scenario": scenario.name, "steps": report.steps, "exact": report.exact,
           "symmetric": report.symmetric, "exceptions": exceptions, "difference": mismatch});
    if !explanations.is_empty() {
        row["explanations"] = json!(explanations);
    }
    row
}
