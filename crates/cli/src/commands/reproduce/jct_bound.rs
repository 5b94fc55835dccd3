//! Average JCT on one pool of GPUs, and the lower bound, on six public traces: no placement limits, no restart cost.

use std::path::Path;

use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_report::{BarSeries, grouped_bars};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::{Format, Workload, parse_cluster, read};
use rayon::prelude::*;
use serde::Serialize;

use super::{Claim, Outcome, data};
use crate::args::ReproduceArgs;
use crate::failure::{Blame, Failure};
use crate::{progress, show};

/// Policies, and the column of the table that has their average JCT.
const POLICIES: [(&str, &str); 3] = [("srsf", "srsf"), ("sjf", "sjf"), ("fifo-backfill", "fifobf")];

/// One line of the table: a trace on so many GPUs.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    trace: String,
    gpus: u32,
    bound_published_s: f64,
    bound_s: f64,
    policies: Vec<PolicyCell>,
}

#[derive(Debug, Clone, Serialize)]
struct PolicyCell {
    policy: String,
    published_s: f64,
    ours_s: f64,
}

pub(super) fn run(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let folder = data(args, "jct-bound")?;
    let expected = table(&folder.join("expected.csv"))?;
    let bar = progress::bar(expected.len() as u64, "jct-bound", args.quiet || args.json);
    let cells: Vec<Cell> = expected
        .into_par_iter()
        .map(|cell| {
            let done = measure(&folder, cell);
            bar.inc(1);
            done
        })
        .collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    Ok(outcome(&cells))
}

/// Reads the published table.
fn table(path: &Path) -> Result<Vec<Cell>, Failure> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow::anyhow!("cannot read {file}: {e}"))
        .or_request()?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let found = header.iter().position(|h| *h == name);
        found.ok_or_else(|| {
            Failure::request(format!(
                "{file}: column {name} is missing; found {}",
                header.join(", ")
            ))
        })
    };
    let (trace, gpus, bound) = (column("trace")?, column("gpus")?, column("bound")?);
    let policies = POLICIES
        .iter()
        .map(|(_, c)| column(c))
        .collect::<Result<Vec<usize>, Failure>>()?;
    let parse = |(i, line): (usize, &str)| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |c: usize| {
            let text = cells.get(c).copied().unwrap_or_default();
            text.parse::<f64>().map_err(|_| {
                Failure::request(format!(
                    "{file}:{}: field {}: found `{text}`, expected a number",
                    i + 2,
                    header[c]
                ))
            })
        };
        Ok(Cell {
            trace: cells.get(trace).copied().unwrap_or_default().to_owned(),
            gpus: number(gpus)? as u32,
            bound_published_s: number(bound)?,
            bound_s: 0.0,
            policies: POLICIES
                .iter()
                .zip(&policies)
                .map(|((policy, _), c)| {
                    Ok(PolicyCell {
                        policy: (*policy).to_owned(),
                        published_s: number(*c)?,
                        ours_s: 0.0,
                    })
                })
                .collect::<Result<_, Failure>>()?,
        })
    };
    lines
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
        .map(parse)
        .collect()
}

fn measure(folder: &Path, mut cell: Cell) -> Result<Cell, Failure> {
    let workload = trace(folder, &cell.trace)?;
    let mut config = SimConfig::new(parse_cluster(&format!("pool:{}", cell.gpus)).or_request()?);
    config.segments = 0;
    for policy in &mut cell.policies {
        let (built, needs) = build(&policy.policy, &Overrides::default()).or_work()?;
        let record = simulate(&workload, built, needs, &config).or_work()?;
        policy.ours_s = record.summary.avg_jct_s;
        cell.bound_s = record.summary.lower_bound_avg_jct_s;
    }
    Ok(cell)
}

fn trace(folder: &Path, name: &str) -> Result<Workload, Failure> {
    let plain = folder.join(format!("{name}.csv"));
    let path = if plain.is_file() {
        plain
    } else {
        folder.join(format!("{name}.csv.gz"))
    };
    read(path, Some(Format::Native)).or_request()
}

fn outcome(cells: &[Cell]) -> Outcome {
    let mut table = show::table(&[
        "trace, GPUs",
        "bound",
        "ours",
        "srsf",
        "ours",
        "sjf",
        "ours",
        "fifo-backfill",
        "ours",
    ]);
    let mut worst: f64 = 0.0;
    for cell in cells {
        let mut row = vec![
            format!("{} {}", cell.trace, cell.gpus),
            seconds(cell.bound_published_s),
        ];
        row.push(seconds(cell.bound_s));
        worst = worst.max(off(cell.bound_published_s, cell.bound_s));
        for p in &cell.policies {
            row.extend([seconds(p.published_s), seconds(p.ours_s)]);
            worst = worst.max(off(p.published_s, p.ours_s));
        }
        table.add_row(row);
    }
    show::align_numbers(&mut table);
    let names: Vec<String> = cells.iter().map(|c| format!("{} {}", c.trace, c.gpus)).collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    let of = |f: &dyn Fn(&Cell) -> f64| {
        cells
            .iter()
            .map(|c| Some(f(c) / c.bound_published_s))
            .collect::<Vec<_>>()
    };
    let figure = grouped_bars(
        "Average JCT of srsf over the lower bound",
        "times the bound",
        &groups,
        &[
            BarSeries::published("reference", of(&|c| c.policies[0].published_s)),
            BarSeries::ours("dovetail", of(&|c| c.policies[0].ours_s)),
        ],
    );
    let claim = format!(
        "every figure is within 1 % of the reference (worst: {:.3} %)",
        worst * 100.0
    );
    Outcome {
        table,
        claims: vec![Claim::new(claim, worst < 0.01)],
        notes: Vec::new(),
        figures: vec![figure],
        data: serde_json::json!({ "cells": cells, "worst_relative_difference": worst }),
    }
}

fn seconds(value: f64) -> String {
    format!("{} s", count(value.round() as u64))
}

fn off(published: f64, ours: f64) -> f64 {
    (ours / published - 1.0).abs()
}
