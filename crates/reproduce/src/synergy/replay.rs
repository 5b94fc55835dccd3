//! `reproduce synergy-static` and `synergy-dynamic`: the traces that Synergy's repository includes, on 4 nodes.

use comfy_table::Table;
use dovetail_console as console;
use dovetail_model::run::RunRecord;
use dovetail_report::Figure;
use dovetail_report::figures::{BarSeries, grouped_bars};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::runs::{cluster, exact, read_jobs, reference};
use super::{POLICIES, SIZINGS, is_behind, percent_longer};
use crate::data::data_folder;
use crate::report::exceptions;
use crate::{Options, Report, ReproduceError, Statement};

/// Output of Synergy's simulator, run unchanged.
const MEASURED: &str = include_str!("measured.csv");
/// Digits of the JCTs in that file, in hours.
const MEASURED_DIGIT: f64 = 1e-4;

/// Average JCT and makespan, in hours.
#[derive(Debug, Clone, Copy)]
struct Hours {
    jct: f64,
    makespan: f64,
}

impl From<RunRecord> for Hours {
    fn from(record: RunRecord) -> Self {
        Self {
            jct: record.summary.avg_jct_s / 3600.0,
            makespan: record.summary.makespan_s / 3600.0,
        }
    }
}

/// One policy with one sizing.
struct ReplayRow {
    policy: &'static str,
    sizing: &'static str,
    /// Result of Synergy's simulator.
    published: Hours,
    /// Ours with its time model.
    reference: Hours,
    /// Ours with our own time model.
    exact: Hours,
}

/// All policies with all sizings over one trace.
struct Replay {
    trace: &'static str,
    rows: Vec<ReplayRow>,
}

/// All jobs are submitted at once.
pub(crate) fn static_trace(options: &Options) -> Result<Report, ReproduceError> {
    let replay = Replay::run(options, "static", "static_100job.csv")?;
    let ours = replay.row("fifo", "proportional").exact.makespan / replay.row("fifo", "tune").exact.makespan;
    let headline = Statement::new(
        format!(
            "published: tune shortens the makespan of FIFO by a factor of 1.4 (on the test bed); exact: {ours:.2}"
        ),
        ours >= 1.4,
    );
    Ok(replay.report(headline))
}

/// Jobs arrive within 3.3 hours.
pub(crate) fn dynamic_trace(options: &Options) -> Result<Report, ReproduceError> {
    let replay = Replay::run(options, "dynamic", "dynamic_srtf.csv")?;
    let gain = |jct: fn(&ReplayRow) -> f64| {
        jct(replay.row("srtf", "proportional")) / jct(replay.row("srtf", "tune"))
    };
    let (published, ours) = (gain(|row| row.published.jct), gain(|row| row.exact.jct));
    let headline = Statement::new(
        format!(
            "its simulator: tune shortens the average JCT of SRTF by a factor of {published:.2}; exact: {ours:.2}"
        ),
        ours >= published,
    );
    let mut report = replay.report(headline);
    let note = "published: a factor of 1.5 on the test bed; neither its simulator nor ours gives that on the trace in its \
                repository";
    report.notes.insert(0, note.to_owned());
    Ok(report)
}

impl Replay {
    fn run(options: &Options, trace: &'static str, file: &str) -> Result<Self, ReproduceError> {
        let cluster = cluster(4, 3);
        let path = data_folder(options, "synergy")?.join("inputs").join(file);
        let workload = read_jobs(&path, &cluster)?;
        let grid: Vec<_> = POLICIES.iter().flat_map(|p| SIZINGS.map(|s| (*p, s))).collect();
        let rows = grid
            .par_iter()
            .map(|(policy, sizing)| {
                Ok(ReplayRow {
                    policy,
                    sizing,
                    published: published(trace, policy, sizing),
                    reference: reference(&workload, &cluster, policy, sizing)?.into(),
                    exact: exact(&workload, &cluster, policy, sizing, None)?.into(),
                })
            })
            .collect::<Result<Vec<ReplayRow>, ReproduceError>>()?;
        Ok(Self { trace, rows })
    }

    fn row(&self, policy: &str, sizing: &str) -> &ReplayRow {
        self.rows
            .iter()
            .find(|row| row.policy == policy && row.sizing == sizing)
            .expect("every policy was run with every sizing")
    }

    fn report(&self, headline: Statement) -> Report {
        Report {
            table: self.table(),
            statements: vec![headline, self.equals_measured(), self.tune_is_never_behind()],
            notes: vec![
                "ftf, drf and tetris are other policies under exact than in the reference: its FTF prefers the job that is \
                 least behind, its DRF and TETRIS consider each job alone; there is one tenant, so drf is FIFO with \
                 preemption"
                    .to_owned(),
            ],
            figures: vec![self.figure()],
            data: self.rows.iter().map(row_json).collect(),
        }
    }

    /// States that our run with the reference's time model gives its numbers, to the recorded digits.
    fn equals_measured(&self) -> Statement {
        let is_equal =
            |row: &&ReplayRow| (row.reference.jct - row.published.jct).abs() <= 0.51 * MEASURED_DIGIT;
        let equal = self.rows.iter().filter(is_equal).count();
        Statement::new(
            format!(
                "as Synergy's simulator: {equal} of {} average JCTs are reproduced to a ten-thousandth of an hour",
                self.rows.len()
            ),
            equal == self.rows.len(),
        )
    }

    /// States that `tune` is never behind the other sizings with our own time model.
    fn tune_is_never_behind(&self) -> Statement {
        let mut behind = Vec::new();
        for policy in POLICIES {
            let jct = |sizing| self.row(policy, sizing).exact.jct;
            let best = jct("proportional").min(jct("greedy"));
            if is_behind(jct("tune"), best) {
                behind.push(format!("{policy} by {:.1} %", percent_longer(jct("tune"), best)));
            }
        }
        let text = format!(
            "exact: the average JCT of tune is at most that of proportional and greedy{}",
            exceptions(&behind)
        );
        Statement::new(text, behind.is_empty())
    }

    fn table(&self) -> Table {
        let mut table = console::table(&[
            "policy",
            "sizing",
            "JCT, h: reference",
            "as reference",
            "exact",
            "makespan, h: reference",
            "as reference",
            "exact",
        ]);
        for row in &self.rows {
            let columns = [row.published, row.reference, row.exact];
            let mut cells = vec![row.policy.to_owned(), row.sizing.to_owned()];
            cells.extend(columns.map(|hours| format!("{:.4}", hours.jct)));
            cells.extend(columns.map(|hours| format!("{:.3}", hours.makespan)));
            table.add_row(cells);
        }
        console::align_numbers(&mut table);
        table
    }

    /// Draws the JCT of each policy with every sizing, of the reference and ours.
    fn figure(&self) -> Figure {
        let jcts = |sizing: &'static str, jct: fn(&ReplayRow) -> f64| {
            POLICIES.map(|policy| Some(jct(self.row(policy, sizing))))
        };
        let mut series: Vec<BarSeries> = Vec::new();
        for sizing in SIZINGS {
            series.push(BarSeries::published(
                format!("{sizing}, reference"),
                jcts(sizing, |row| row.published.jct),
            ));
            series.push(BarSeries::ours(
                format!("{sizing}, exact"),
                jcts(sizing, |row| row.exact.jct),
            ));
        }
        let title = format!("Synergy's {} trace, 32 GPUs", self.trace);
        let mut figure = grouped_bars(&title, "average JCT, h", &POLICIES, &series);
        figure.name = format!("synergy-{}", self.trace);
        figure
    }
}

/// Returns the result of Synergy's simulator.
fn published(trace: &str, policy: &str, sizing: &str) -> Hours {
    let parse = || -> Option<Hours> {
        let fields = MEASURED
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .find(|fields| fields[..3] == [trace, policy, sizing])?;
        Some(Hours {
            jct: fields[3].parse().ok()?,
            makespan: fields[4].parse().ok()?,
        })
    };
    parse().unwrap_or(Hours {
        jct: f64::NAN,
        makespan: f64::NAN,
    })
}

fn row_json(row: &ReplayRow) -> Value {
    let hours = |hours: Hours| json!({ "avg_jct_h": hours.jct, "makespan_h": hours.makespan });
    json!({
        "policy": row.policy, "sizing": row.sizing, "reference": hours(row.published),
        "as_reference": hours(row.reference), "exact": hours(row.exact),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_of_the_reference_was_measured() {
        for trace in ["static", "dynamic"] {
            for (policy, sizing) in POLICIES.iter().flat_map(|p| SIZINGS.map(|s| (p, s))) {
                let hours = published(trace, policy, sizing);
                assert!(
                    hours.jct > 0.0 && hours.makespan > 0.0,
                    "{trace} {policy} {sizing}: {hours:?}"
                );
            }
        }
    }
}
