//! `simulate --explain JOB`: the state of a job and the reason for it, whenever it changes.

use std::collections::BTreeSet;

use dovetail_console::{self as console, Failure, Names};
use dovetail_engine::Explanation;
use dovetail_model::JobKey;
use dovetail_report::format::span;
use dovetail_sim::{Journal, SimConfig};
use dovetail_workload::Workload;

use crate::live::job_text::ahead_text;

/// Returns the jobs with these names in the trace.
///
/// # Errors
/// Names the job that does not exist.
pub fn jobs(names: &[String], workload: &Workload) -> Result<BTreeSet<JobKey>, Failure> {
    let find = |name: &String| {
        let found = workload.jobs.iter().position(|j| j.label.to_string() == *name);
        found.map(|i| JobKey(i as u32)).ok_or_else(|| {
            let first = workload
                .jobs
                .first()
                .map_or_else(String::new, |j| j.label.to_string());
            Failure::request(format!(
                "--explain {name}: unknown job: expected a name from the workload such as {first}"
            ))
        })
    };
    names.iter().map(find).collect()
}

/// Returns a table of the explanations in a journal.
pub fn table(journal: &Journal, workload: &Workload, config: &SimConfig) -> comfy_table::Table {
    let nodes: Vec<String> = config.cluster.nodes.values().map(|n| n.name.clone()).collect();
    let names = Names::new(workload, &nodes);
    let mut table = console::table(&["time", "job", "state"]);
    let mut last = None;
    for (at, job, answer) in &journal.explanations {
        let text = match answer {
            Explanation::Unknown => "finished".to_owned(),
            Explanation::Stopping => "stopping".to_owned(),
            Explanation::Running { gpus, nodes, .. } => format!(
                "running on {} of {}",
                plural(*gpus, "GPU"),
                plural(*nodes, "node")
            ),
            Explanation::Waiting { reasons, ahead, .. } => {
                let mut parts: Vec<String> = reasons.iter().map(|r| names.reason(r)).collect();
                parts.extend(ahead_text(*ahead));
                format!("queued: {}", parts.join("; "))
            }
        };
        if last.as_ref() != Some(&(*job, text.clone())) {
            table.add_row([span(at.as_secs_f64()), names.job(*job), text.clone()]);
        }
        last = Some((*job, text));
    }
    table
}

/// `1 GPU`, `2 GPUs`.
fn plural(count: u32, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}
