//! `reproduce synergy-tune`: every sizing with every order on all of Synergy's workloads, and how far `tune` is from the
//! upper bound.

use comfy_table::Table;
use dovetail_console as console;
use dovetail_sim::Speeds;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::POLICIES;
use super::runs::{cluster, exact_with_speeds, read_jobs};
use crate::data::data_folder;
use crate::report::exceptions;
use crate::{Options, Report, ReproduceError, Statement};

/// The traces in Synergy's repository, and jobs that its generator made: with one GPU each, and with 1 to 16.
const WORKLOADS: [(&str, &str); 5] = [
    ("static", "inputs/static_100job.csv"),
    ("dynamic", "inputs/dynamic_srtf.csv"),
    ("phS32", "outputs/phS32_SRTF_greedy.jobs.csv"),
    ("phM32", "outputs/phM32_FIFO_greedy.jobs.csv"),
    ("phM32lo", "outputs/phM32lo_LAS_greedy.jobs.csv"),
];
const SIZINGS: [&str; 4] = ["proportional", "greedy", "tune", "opt"];
const TUNE: usize = 2;
/// Largest distance of the speeds under `tune` from the bound.
const TOLERANCE: f64 = 0.05;

/// One policy on one workload.
struct TuneRow {
    workload: &'static str,
    policy: &'static str,
    /// Average JCT of all jobs with every sizing, in hours.
    jct_h: [f64; 4],
    speeds: [Speeds; 4],
}

impl TuneRow {
    /// Returns by how much longer `tune` takes than the better of `proportional` and `greedy`; negative if it is ahead.
    fn behind(&self) -> f64 {
        self.jct_h[TUNE] / self.jct_h[0].min(self.jct_h[1]) - 1.0
    }
}

/// Compares `tune` with the other sizings and with the upper bound.
pub(crate) fn tune(options: &Options) -> Result<Report, ReproduceError> {
    let folder = data_folder(options, "synergy")?;
    let cluster = cluster(4, 3);
    let mut grid = Vec::new();
    for (name, file) in WORKLOADS {
        let workload = read_jobs(&folder.join(file), &cluster)?;
        grid.extend(POLICIES.map(|policy| (name, workload.clone(), policy)));
    }
    let rows = grid
        .par_iter()
        .map(|(name, workload, policy)| {
            let mut row = TuneRow {
                workload: name,
                policy,
                jct_h: [0.0; 4],
                speeds: [Speeds::default(); 4],
            };
            for (i, sizing) in SIZINGS.into_iter().enumerate() {
                let (record, speeds) = exact_with_speeds(workload, &cluster, policy, sizing)?;
                (row.jct_h[i], row.speeds[i]) = (record.summary.avg_jct_s / 3600.0, speeds);
            }
            Ok(row)
        })
        .collect::<Result<Vec<TuneRow>, ReproduceError>>()?;
    Ok(Report {
        table: table(&rows),
        statements: vec![never_behind(&rows), near_the_bound(&rows)],
        notes: vec![
            "average JCT of all jobs on 32 GPUs; static and dynamic are in Synergy's repository, the others are jobs that \
             its generator made, phS32 with one GPU each, phM32 and phM32lo with 1 to 16"
                .to_owned(),
            "the bound: the CPU and memory of all nodes, as if they were one machine, divided among the running jobs such \
             that the sum of their speeds, each times its GPUs, is largest; over the whole run. Which jobs run is not part \
             of it: greedy is close to it with fewer jobs"
                .to_owned(),
        ],
        figures: Vec::new(),
        data: rows.iter().map(row_json).collect(),
    })
}

fn never_behind(rows: &[TuneRow]) -> Statement {
    let behind: Vec<String> = rows
        .iter()
        .filter(|row| row.behind() > 0.0)
        .map(|row| format!("{} {} by {:.2} %", row.workload, row.policy, row.behind() * 100.0))
        .collect();
    let text = format!(
        "tune is never behind proportional or greedy, in {} combinations{}",
        rows.len(),
        exceptions(&behind)
    );
    Statement::new(text, behind.is_empty())
}

fn near_the_bound(rows: &[TuneRow]) -> Statement {
    let missing = |row: &TuneRow| row.speeds[TUNE].missing();
    let Some(worst) = rows.iter().max_by(|a, b| missing(a).total_cmp(&missing(b))) else {
        return Statement::new("no workload was run", false);
    };
    let text = format!(
        "the speeds under tune are at most 5 % below the bound, in {} combinations; furthest below is {} {}, by {:.2} %",
        rows.len(),
        worst.workload,
        worst.policy,
        missing(worst) * 100.0
    );
    Statement::new(text, missing(worst) <= TOLERANCE)
}

fn table(rows: &[TuneRow]) -> Table {
    let mut table = console::table(&[
        "workload",
        "policy",
        "JCT, h: proportional",
        "greedy",
        "tune",
        "opt",
        "below the bound, %: greedy",
        "tune",
        "opt",
    ]);
    for row in rows {
        let mut cells = vec![row.workload.to_owned(), row.policy.to_owned()];
        cells.extend(row.jct_h.map(|hours| format!("{hours:.3}")));
        cells.extend(
            row.speeds[1..]
                .iter()
                .map(|speeds| format!("{:.2}", speeds.missing() * 100.0)),
        );
        table.add_row(cells);
    }
    console::align_numbers(&mut table);
    table
}

fn row_json(row: &TuneRow) -> Value {
    let sizings: serde_json::Map<String, Value> = SIZINGS
        .iter()
        .zip(row.jct_h.iter().zip(&row.speeds))
        .map(|(sizing, (jct, speeds))| {
            let value =
                json!({ "avg_jct_h": jct, "speed_gpu_h": speeds.achieved, "bound_gpu_h": speeds.bound });
            ((*sizing).to_owned(), value)
        })
        .collect();
    json!({ "workload": row.workload, "policy": row.policy, "sizings": sizings })
}
