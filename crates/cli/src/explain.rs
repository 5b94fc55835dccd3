//! `simulate --explain JOB`: where a job is and what keeps it there, whenever that changes.

use std::collections::BTreeSet;

use dovetail_engine::Explanation;
use dovetail_model::JobId;
use dovetail_report::format::span;
use dovetail_sim::{Journal, SimConfig};
use dovetail_workload::Workload;

use crate::failure::Failure;
use crate::show;
use crate::words::Words;

/// The jobs with these names in the trace.
///
/// # Errors
/// Names the one that is not there.
pub fn jobs(names: &[String], workload: &Workload) -> Result<BTreeSet<JobId>, Failure> {
    let find = |name: &String| {
        let found = workload.jobs.iter().position(|j| j.label.to_string() == *name);
        found.map(|i| JobId(i as u32)).ok_or_else(|| {
            let first = workload
                .jobs
                .first()
                .map_or_else(String::new, |j| j.label.to_string());
            Failure::request(format!(
                "--explain {name}: no job of the workload is called that; expected a name such as {first}"
            ))
        })
    };
    names.iter().map(find).collect()
}

/// What a journal has been told of the jobs it asked after.
pub fn table(journal: &Journal, workload: &Workload, config: &SimConfig) -> comfy_table::Table {
    let nodes: Vec<String> = config.cluster.nodes.values().map(|n| n.name.clone()).collect();
    let words = Words::new(workload, &nodes);
    let mut table = show::table(&["time", "job", "where it is"]);
    let mut last = None;
    for (at, job, answer) in &journal.answers {
        let text = match answer {
            Explanation::Unknown => "is done".to_owned(),
            Explanation::Stopping => "is stopping".to_owned(),
            Explanation::Running { gpus, nodes, .. } => format!("runs on {gpus} GPUs of {nodes} nodes"),
            Explanation::Waiting { reasons, ahead, .. } => {
                let mut parts: Vec<String> = reasons.iter().map(|r| words.reason(r)).collect();
                parts.extend((*ahead > 0).then(|| format!("{ahead} jobs wait ahead of it")));
                format!("waits: {}", parts.join("; "))
            }
        };
        if last.as_ref() != Some(&(*job, text.clone())) {
            table.add_row([span(at.as_secs_f64()), words.job(*job), text.clone()]);
        }
        last = Some((*job, text));
    }
    table
}
