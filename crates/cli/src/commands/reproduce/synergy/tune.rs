//! `reproduce synergy-tune`: every sizing with every order over all of Synergy's workloads, and how far `tune` is from what
//! there is to have.

use dovetail_sim::Speeds;
use rayon::prelude::*;
use serde_json::json;

use super::runs::{cluster, exact_with_speeds, jobs};
use super::{Claim, Outcome, POLICIES, data};
use crate::args::ReproduceArgs;
use crate::failure::Failure;
use crate::show;

/// The traces that come with Synergy, and jobs that its generator made: on one GPU each, and on 1 to 16.
const WORKLOADS: [(&str, &str); 5] = [
    ("static", "inputs/static_100job.csv"),
    ("dynamic", "inputs/dynamic_srtf.csv"),
    ("phS32", "outputs/phS32_SRTF_greedy.jobs.csv"),
    ("phM32", "outputs/phM32_FIFO_greedy.jobs.csv"),
    ("phM32lo", "outputs/phM32lo_LAS_greedy.jobs.csv"),
];
const SIZINGS: [&str; 4] = ["proportional", "greedy", "tune", "opt"];

struct Row {
    workload: &'static str,
    policy: &'static str,
    /// Average JCT of all jobs in hours, with every sizing.
    jct_h: [f64; 4],
    speeds: [Speeds; 4],
}

impl Row {
    /// How much longer `tune` takes than the better of `proportional` and `greedy`; below zero where it is ahead.
    fn behind(&self) -> f64 {
        self.jct_h[2] / self.jct_h[0].min(self.jct_h[1]) - 1.0
    }
}

pub(in crate::commands::reproduce) fn tune(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let folder = data(args, "synergy")?;
    let cluster = cluster(4, 3);
    let mut grid = Vec::new();
    for (name, file) in WORKLOADS {
        let workload = jobs(&folder.join(file), &cluster)?;
        grid.extend(POLICIES.map(|policy| (name, workload.clone(), policy)));
    }
    let rows = grid
        .par_iter()
        .map(|(name, workload, policy)| {
            let mut row = Row {
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
        .collect::<Result<Vec<Row>, Failure>>()?;
    Ok(Outcome {
        table: table(&rows),
        claims: vec![never_behind(&rows), near_the_bound(&rows)],
        notes: vec![
            "average JCT of all jobs on 32 GPUs; static and dynamic come with Synergy, the others are jobs its generator \
             made, phS32 on one GPU each, phM32 and phM32lo on 1 to 16"
                .to_owned(),
            "the bound: CPU and memory of all nodes as if they were one machine, shared out among the jobs that run at that \
             moment so that the sum of speeds, each times its GPUs, is largest; over the whole run. Who runs is not part of it: \
             greedy is near it with fewer jobs"
                .to_owned(),
        ],
        figures: Vec::new(),
        data: rows.iter().map(json_of).collect(),
    })
}

fn never_behind(rows: &[Row]) -> Claim {
    let behind: Vec<String> = rows
        .iter()
        .filter(|r| r.behind() > 0.0)
        .map(|r| format!("{} {} by {:.2} %", r.workload, r.policy, r.behind() * 100.0))
        .collect();
    let which = if behind.is_empty() {
        String::new()
    } else {
        format!("; not: {}", behind.join(", "))
    };
    let text = format!(
        "tune is never behind proportional or greedy, in {} cells{which}",
        rows.len()
    );
    Claim::new(text, behind.is_empty())
}

fn near_the_bound(rows: &[Row]) -> Claim {
    let worst = rows
        .iter()
        .max_by(|a, b| a.speeds[2].missing().total_cmp(&b.speeds[2].missing()));
    let Some(worst) = worst else {
        return Claim::new("there are no cells".to_owned(), false);
    };
    let missing = worst.speeds[2].missing();
    let text = format!(
        "the speeds under tune are at most 5 % below the bound, in {} cells; furthest from it is {} {}, {:.2} % below",
        rows.len(),
        worst.workload,
        worst.policy,
        missing * 100.0
    );
    Claim::new(text, missing <= 0.05)
}

fn table(rows: &[Row]) -> comfy_table::Table {
    let mut table = show::table(&[
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
        cells.extend(row.jct_h.map(|h| format!("{h:.3}")));
        cells.extend(
            row.speeds[1..]
                .iter()
                .map(|s| format!("{:.2}", s.missing() * 100.0)),
        );
        table.add_row(cells);
    }
    show::align_numbers(&mut table);
    table
}

fn json_of(row: &Row) -> serde_json::Value {
    let each: serde_json::Map<String, serde_json::Value> = SIZINGS
        .iter()
        .zip(row.jct_h.iter().zip(&row.speeds))
        .map(|(sizing, (jct, speeds))| {
            let value = json!({ "avg_jct_h": jct, "speed_gpu_h": speeds.had, "bound_gpu_h": speeds.bound });
            ((*sizing).to_owned(), value)
        })
        .collect();
    json!({ "workload": row.workload, "policy": row.policy, "sizings": each })
}
