//! Jobs of a workload by name.

use std::collections::BTreeSet;

use dovetail_model::JobKey;
use dovetail_workload::Workload;

use crate::ExperimentError;

/// Returns the jobs with these names in the trace.
///
/// # Errors
/// Names the job that does not exist.
pub fn find_jobs(names: &[String], workload: &Workload) -> Result<BTreeSet<JobKey>, ExperimentError> {
    let find = |name: &String| {
        let found = workload.jobs.iter().position(|j| j.label.to_string() == *name);
        found
            .map(|i| JobKey(i as u32))
            .ok_or_else(|| ExperimentError::UnknownJob {
                name: name.clone(),
                example: workload
                    .jobs
                    .first()
                    .map_or_else(String::new, |j| j.label.to_string()),
            })
    };
    names.iter().map(find).collect()
}
