//! `simulate --explain JOB`: the state of a job and the reason for it, whenever it changes.

use dovetail_console::{self as console, Names};
use dovetail_engine::Explanation;
use dovetail_report::format::{counted, span};
use dovetail_sim::Journal;
use dovetail_workload::Workload;

use crate::live::job_text::ahead_text;

/// Returns a table of the explanations in a journal, with the names of jobs and nodes.
pub fn table(journal: &Journal, workload: &Workload, nodes: &[String]) -> comfy_table::Table {
    let names = Names::new(workload, nodes);
    let mut table = console::table(&["time", "job", "state"]);
    let mut last = None;
    for (at, job, answer) in &journal.explanations {
        let text = match answer {
            Explanation::Unknown => "finished".to_owned(),
            Explanation::Stopping => "stopping".to_owned(),
            Explanation::Running { gpus, nodes, .. } => format!(
                "running on {} of {}",
                counted((*gpus).into(), "GPU"),
                counted((*nodes).into(), "node")
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
