//! `dovetail vc replay`: replays scenarios recorded from HiveD.

use std::path::{Path, PathBuf};

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_hived::{Replay, Scenario, ScenarioFile};
use serde_json::{Value, json};

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
        let file = ScenarioFile::read(file).map_err(Failure::request)?;
        let mut replay = file.replay(configs).map_err(Failure::request)?;
        let scenario = &file.scenario;
        if !with_explanations {
            replay.explanations.clear();
        } else if !as_json {
            console::print(format!("{}: {}", scenario.name, scenario.note))?;
            for line in &replay.explanations {
                console::print(format!("  {line}"))?;
            }
        }
        let report = &replay.report;
        table.add_row([
            scenario.name.clone(),
            report.steps.to_string(),
            report.exact.to_string(),
            report.symmetric.to_string(),
            report.exceptions.len().to_string(),
            match replay.difference {
                Some(_) => format!("step {}", report.steps - 1),
                None => "–".to_owned(),
            },
        ]);
        rows.push(as_value(scenario, &replay));
        first = first.or(replay.difference);
    }
    if as_json {
        console::print(serde_json::to_string_pretty(&rows).or_work()?)?;
    } else {
        console::align_numbers(&mut table);
        console::print(table)?;
        rows.iter().try_for_each(print_exceptions)?;
    }
    match first {
        Some(difference) => Err(Failure::work(format!("first difference: {difference}"))),
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

fn as_value(scenario: &Scenario, replay: &Replay) -> Value {
    let report = &replay.report;
    let exceptions: Vec<Value> = report
        .exceptions
        .iter()
        .map(|(step, why)| json!({"step": step, "why": why}))
        .collect();
    let mut row = json!({"scenario": scenario.name, "steps": report.steps, "exact": report.exact,
           "symmetric": report.symmetric, "exceptions": exceptions, "difference": replay.difference});
    if !replay.explanations.is_empty() {
        row["explanations"] = json!(replay.explanations);
    }
    row
}
