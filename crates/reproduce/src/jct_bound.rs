//! Average JCT on one pool of GPUs, and its lower bound, on six public traces: no placement limits, no restart cost.

use std::path::Path;

use comfy_table::Table;
use dovetail_console as console;
use dovetail_policies::{Overrides, build};
use dovetail_report::format::count;
use dovetail_report::{BarSeries, Figure, grouped_bars};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::{Format, parse_cluster};
use rayon::prelude::*;
use serde::Serialize;

use crate::data::{data_folder, read_trace};
use crate::{Options, Report, ReproduceError, Statement};

/// Policies, each with the column of the published table that has its average JCT.
const POLICIES: [(&str, &str); 3] = [("srsf", "srsf"), ("sjf", "sjf"), ("fifo-backfill", "fifobf")];
/// Largest relative difference from the published numbers.
const TOLERANCE: f64 = 0.01;

/// One row of the table: a trace on a number of GPUs.
#[derive(Debug, Clone, Serialize)]
struct TraceRow {
    trace: String,
    gpus: u32,
    bound_published_s: f64,
    bound_s: f64,
    policies: Vec<PolicyJct>,
}

/// Average JCT of one policy, published and ours.
#[derive(Debug, Clone, Serialize)]
struct PolicyJct {
    policy: String,
    published_s: f64,
    ours_s: f64,
}

impl TraceRow {
    fn name(&self) -> String {
        format!("{} {}", self.trace, self.gpus)
    }

    /// Returns the largest relative difference of our numbers from the published ones.
    fn worst_difference(&self) -> f64 {
        let policies = self.policies.iter().map(|p| (p.published_s, p.ours_s));
        policies
            .chain([(self.bound_published_s, self.bound_s)])
            .map(|(published, ours)| (ours / published - 1.0).abs())
            .fold(0.0, f64::max)
    }
}

/// Compares our average JCT and lower bound with the published ones.
pub(crate) fn run(options: &Options) -> Result<Report, ReproduceError> {
    let folder = data_folder(options, "jct-bound")?;
    let published = PublishedTable::read(&folder.join("expected.csv"))?.rows()?;
    let bar = options.progress_bar(published.len(), "jct-bound");
    let rows: Vec<TraceRow> = published
        .into_par_iter()
        .map(|row| {
            let measured = measure(&folder, row);
            bar.inc(1);
            measured
        })
        .collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    Ok(report(&rows))
}

/// The published table, as text.
struct PublishedTable<'a> {
    path: &'a Path,
    header: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl<'a> PublishedTable<'a> {
    fn read(path: &'a Path) -> Result<Self, ReproduceError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReproduceError::ReadTable {
            path: path.to_owned(),
            source,
        })?;
        let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let mut lines = text.lines();
        Ok(Self {
            path,
            header: fields(lines.next().unwrap_or_default()),
            lines: lines.map(fields).collect(),
        })
    }

    fn column(&self, name: &'static str) -> Result<usize, ReproduceError> {
        let found = self.header.iter().position(|heading| heading == name);
        found.ok_or_else(|| ReproduceError::MissingColumn {
            path: self.path.to_owned(),
            column: name,
            found: self.header.join(", "),
        })
    }

    fn number(&self, line: usize, column: usize) -> Result<f64, ReproduceError> {
        let text = self.lines[line].get(column).map_or("", String::as_str);
        text.parse().map_err(|_| ReproduceError::InvalidNumber {
            path: self.path.to_owned(),
            // The header is line 1.
            line: line + 2,
            column: self.header[column].clone(),
            found: text.to_owned(),
        })
    }

    /// Returns the published numbers; ours are still zero.
    fn rows(&self) -> Result<Vec<TraceRow>, ReproduceError> {
        let (trace, gpus, bound) = (self.column("trace")?, self.column("gpus")?, self.column("bound")?);
        for (_, column) in POLICIES {
            self.column(column)?;
        }
        let is_empty = |line: &usize| self.lines[*line].iter().all(|field| field.trim().is_empty());
        let parse = |line: usize| {
            let policies = POLICIES.iter().map(|(policy, column)| {
                Ok(PolicyJct {
                    policy: (*policy).to_owned(),
                    published_s: self.number(line, self.column(column)?)?,
                    ours_s: 0.0,
                })
            });
            Ok(TraceRow {
                trace: self.lines[line].get(trace).cloned().unwrap_or_default(),
                gpus: self.number(line, gpus)? as u32,
                bound_published_s: self.number(line, bound)?,
                bound_s: 0.0,
                policies: policies.collect::<Result<_, ReproduceError>>()?,
            })
        };
        (0..self.lines.len())
            .filter(|line| !is_empty(line))
            .map(parse)
            .collect()
    }
}

/// Fills in our numbers of one row.
fn measure(folder: &Path, mut row: TraceRow) -> Result<TraceRow, ReproduceError> {
    let workload = read_trace(folder, &row.trace, Format::Native)?;
    let mut config = SimConfig::new(parse_cluster(&format!("pool:{}", row.gpus))?);
    config.segments = 0;
    for policy in &mut row.policies {
        let (built, needs) = build(&policy.policy, &Overrides::default())?;
        let record = simulate(&workload, built, needs, &config)?;
        policy.ours_s = record.summary.avg_jct_s;
        row.bound_s = record.summary.lower_bound_avg_jct_s;
    }
    Ok(row)
}

fn report(rows: &[TraceRow]) -> Report {
    let worst = rows.iter().map(TraceRow::worst_difference).fold(0.0, f64::max);
    let statement = format!(
        "every number is within 1 % of the reference (worst: {:.3} %)",
        worst * 100.0
    );
    Report {
        table: table(rows),
        statements: vec![Statement::new(statement, worst < TOLERANCE)],
        notes: Vec::new(),
        figures: vec![figure(rows)],
        data: serde_json::json!({ "cells": rows, "worst_relative_difference": worst }),
    }
}

fn table(rows: &[TraceRow]) -> Table {
    let seconds = |value: f64| format!("{} s", count(value.round() as u64));
    let mut table = console::table(&[
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
    for row in rows {
        let mut cells = vec![row.name(), seconds(row.bound_published_s), seconds(row.bound_s)];
        for policy in &row.policies {
            cells.extend([seconds(policy.published_s), seconds(policy.ours_s)]);
        }
        table.add_row(cells);
    }
    console::align_numbers(&mut table);
    table
}

fn figure(rows: &[TraceRow]) -> Figure {
    let names: Vec<String> = rows.iter().map(TraceRow::name).collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    let over_bound = |srsf_s: fn(&PolicyJct) -> f64| {
        rows.iter()
            .map(|row| Some(srsf_s(&row.policies[0]) / row.bound_published_s))
            .collect::<Vec<_>>()
    };
    grouped_bars(
        "Average JCT of srsf over the lower bound",
        "times the bound",
        &groups,
        &[
            BarSeries::published("reference", over_bound(|policy| policy.published_s)),
            BarSeries::ours("dovetail", over_bound(|policy| policy.ours_s)),
        ],
    )
}
