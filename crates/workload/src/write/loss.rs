//! Fields that a format cannot represent.

use dovetail_model::{Scaling, TenantId, UserId};

use crate::job::{TraceJob, Workload};

/// A field that a format may not have, and whether a job uses it.
type Field = (&'static str, fn(&TraceJob) -> bool);

const FIELDS: [Field; 17] = [
    ("tenant", |j| j.tenant != TenantId(0)),
    ("user", |j| j.user != UserId(0)),
    ("priority", |j| j.priority != 0),
    ("model", |j| j.model.is_some()),
    ("gpu_type", |j| j.gpu_type.is_some()),
    ("iterations", |j| j.iterations.is_some()),
    ("cpus_per_gpu", |j| j.cpu_milli_per_gpu != 0),
    ("memory_gb_per_gpu", |j| j.memory_mib_per_gpu != 0),
    ("gpu_memory_mib", |j| j.gpu_memory_mib != 0),
    ("min_gpus", |j| j.min_gpus != j.gpus),
    ("max_gpus", |j| j.max_gpus != j.gpus),
    ("deadline_s", |j| j.deadline.is_some()),
    ("expected_s", |j| j.expected_us.is_some()),
    ("checkpoint_s", |j| j.checkpoint.is_some()),
    ("gpu_milli", |j| j.gpu_milli != 1000),
    ("parallel_share", |j| matches!(j.scaling, Scaling::Amdahl { .. })),
    ("scaling", |j| matches!(j.scaling, Scaling::Measured(_))),
];

/// Lists what a format loses that keeps only these fields besides submission, run time and GPUs.
pub(super) fn losses(workload: &Workload, kept: &[&str]) -> Vec<String> {
    let mut lost = Vec::new();
    for (name, is_used) in FIELDS.iter().filter(|(name, _)| !kept.contains(name)) {
        let jobs = workload.jobs.iter().filter(|j| is_used(j)).count();
        if jobs > 0 {
            lost.push(format!("{name} of {}", jobs_text(jobs)));
        }
    }
    let columns = workload
        .extra_columns
        .iter()
        .filter(|c| !kept.contains(&c.as_str()));
    lost.extend(columns.map(|c| format!("column {c}")));
    lost
}

/// Returns "1 job" or "2 jobs".
pub(crate) fn jobs_text(count: usize) -> String {
    format!("{count} {}", if count == 1 { "job" } else { "jobs" })
}
