//! The figures of a report. Each is a pure function from records to a [`Figure`](crate::Figure).
//!
//! A record keeps its colour in every figure of a page: the colour belongs to its position among the records.

mod bars;
mod cdf;
mod gantt;
mod gantt_layout;
mod interleaving;
mod lines;
mod timeline;

use std::collections::BTreeMap;

use dovetail_model::run::RunRecord;

pub use bars::{BarSeries, compare_bars, grouped_bars};
pub use cdf::{jct_cdf, wait_cdf};
pub use gantt::gantt;
pub(crate) use gantt::gantt_within;
pub use interleaving::interleaving;
pub use lines::{LineChart, Series, lines};
pub use timeline::{queue_length, utilization};

/// Maximum number of records in one figure of curves; more would hide each other.
pub(crate) const MAX_CURVES: usize = 12;

/// Returns a unique name for each record: the policy, and what distinguishes runs of one policy.
pub fn labels(records: &[&RunRecord]) -> Vec<String> {
    let policy = |r: &RunRecord| {
        if r.summary.policy.is_empty() {
            "run".into()
        } else {
            r.summary.policy.clone()
        }
    };
    let finer: [fn(&RunRecord) -> String; 3] = [
        |r| format!(", seed {}", r.summary.seed),
        |r| format!(", {}", r.summary.trace),
        |r| format!(", {}×{} GPUs", r.summary.cluster.nodes, r.summary.cluster.gpus),
    ];
    let mut names: Vec<String> = records.iter().map(|r| policy(r)).collect();
    for more in finer {
        let known = tally(&names);
        if known.values().all(|n| *n == 1) {
            return names;
        }
        let longer: Vec<String> = names
            .iter()
            .zip(records)
            .map(|(name, r)| format!("{name}{}", more(r)))
            .collect();
        if tally(&longer).len() > known.len() {
            names = longer;
        }
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for name in &mut names {
        let n = seen.entry(name.clone()).and_modify(|n| *n += 1).or_insert(1);
        if *n > 1 {
            *name = format!("{name} #{n}");
        }
    }
    names
}

fn tally(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_insert(0) += 1;
    }
    counts
}

/// Returns a sentence for the caption if not all records are drawn.
fn omitted_note(records: usize) -> String {
    match records.checked_sub(MAX_CURVES) {
        None | Some(0) => String::new(),
        Some(more) => format!(" The first {MAX_CURVES} runs are drawn; {more} more are in the table."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(policy: &str, seed: u64) -> RunRecord {
        let mut record = RunRecord::default();
        record.summary.policy = policy.into();
        record.summary.seed = seed;
        record
    }

    #[test]
    fn labels_contain_only_what_distinguishes_runs() {
        let check = |runs: &[(&str, u64)], expected: &[&str]| {
            let records: Vec<RunRecord> = runs.iter().map(|(policy, seed)| record(policy, *seed)).collect();
            assert_eq!(labels(&records.iter().collect::<Vec<_>>()), expected);
        };
        check(&[("fifo", 1), ("las", 1)], &["fifo", "las"]);
        check(&[("fifo", 1), ("fifo", 2)], &["fifo, seed 1", "fifo, seed 2"]);
        check(&[("fifo", 1), ("fifo", 1)], &["fifo", "fifo #2"]);
        check(&[("", 1)], &["run"]);
    }
}
