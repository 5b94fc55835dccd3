//! Submitted OpenPAI jobs as a workload.

use dovetail_model::ids::Id;
use dovetail_model::{IdVec, Time, Work};
use dovetail_workload::{JobLabel, PaiJob, PaiRole, TraceJob, Workload};

use crate::ReproduceError;

/// A job that a user submits.
pub(super) struct Submission {
    pub(super) at: Time,
    pub(super) user: &'static str,
    pub(super) job: PaiJob,
}

/// Returns the submitted jobs as a workload. A gang becomes one job; without gang scheduling, each instance does.
/// `leaves` returns the leaf cells that an instance of a role needs, and `training` is added to what a role sleeps.
pub(super) fn workload(
    submissions: &[Submission],
    training: Time,
    source: &str,
    leaves: impl Fn(&PaiRole) -> Result<u32, ReproduceError>,
) -> Result<Workload, ReproduceError> {
    let mut workload = Workload {
        source: source.to_owned(),
        ..Workload::default()
    };
    for Submission { at, user, job } in submissions {
        let tenant = intern(&mut workload.names.tenants, &job.virtual_cluster);
        let user_id = intern(&mut workload.names.users, user);
        let [role] = &job.roles[..] else {
            return Err(ReproduceError::TaskRoles {
                job: job.name.clone(),
                roles: job.roles.len(),
            });
        };
        let gpus_each = leaves(role)?;
        let run_s = training.as_secs_f64() as u64 + role.sleeps_s();
        let parts: Vec<(String, u32)> = match job.gang {
            true => vec![(format!("{user}~{}", job.name), role.instances)],
            false => (0..role.instances)
                .map(|i| (format!("{user}~{}/{}-{i}", job.name, role.name), 1))
                .collect(),
        };
        for (label, instances) in parts {
            let work = Work(run_s * 1_000_000);
            let mut part = TraceJob::new(JobLabel::Text(label.into()), *at, work, instances * gpus_each);
            (part.tenant, part.user, part.priority) = (tenant, user_id, job.priority);
            part.cpu_milli_per_gpu = role.cpu_milli / gpus_each;
            part.memory_mib_per_gpu = role.memory_mib / u64::from(gpus_each);
            workload.jobs.push(part);
        }
    }
    Ok(workload)
}

/// Returns the id of a name, and adds the name if it is new.
fn intern<I: Id>(names: &mut IdVec<I, String>, name: &str) -> I {
    let known = names.iter().find(|(_, n)| *n == name).map(|(id, _)| id);
    known.unwrap_or_else(|| names.push(name.to_owned()))
}
