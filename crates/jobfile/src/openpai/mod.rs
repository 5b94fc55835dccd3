//! Conversion of OpenPAI jobs, with a remark on everything that is not converted.

mod ignored;

use std::collections::BTreeMap;

use dovetail_cluster::{Cpus, JobNotifications, JobRequest, NotificationKind, Role};
use dovetail_openpai::{Faults, Job, Mode, Remark, masked, parse, script};

use crate::array::ArrayRequest;
use crate::file::JobFile;

/// The label that jobs from OpenPAI files have; its value is the name of the OpenPAI job.
pub const LABEL: &str = "openpai";

impl JobFile {
    /// Converts an OpenPAI job file.
    ///
    /// # Errors
    /// All mistakes of the file, each with its path.
    pub fn from_openpai(text: &str, mode: Mode) -> Result<Self, Faults> {
        let parsed = parse(text, mode)?;
        let mut ignored = parsed.remarks.clone();
        ignored::descriptive_keys(&parsed.tree, &mut ignored);
        ignored::unsupported_parts(&parsed.job, &mut ignored);
        let pai_job = &parsed.job;
        let mut job = JobRequest {
            gpu_type: gpu_type(pai_job, &mut ignored).map_err(|fault| Faults(vec![fault]))?,
            file: Some(serde_saphyr::to_string(&masked(&parsed.tree)).unwrap_or_default()),
            ..request(pai_job)
        };
        job.size_by_roles()
            .map_err(|e| Faults(vec![Remark::new("taskRoles", e.to_string())]))?;
        ignored::differing_sizes(pai_job, &job, &mut ignored);
        job.remarks = ignored.iter().map(ToString::to_string).collect();
        let instances = u32::try_from(pai_job.instances()).unwrap_or(u32::MAX);
        let array = (!pai_job.gang).then(|| ArrayRequest {
            indices: (0..instances).collect(),
            at_most: None,
        });
        Ok(Self { job, array, ignored })
    }
}

/// Converts all parts that do not need the text of the file.
fn request(job: &Job) -> JobRequest {
    let mut secrets = BTreeMap::new();
    let mut roles = Vec::new();
    for role in &job.roles {
        let script = script(job, role);
        secrets.extend(script.secrets);
        // OpenPAI writes -1 for "never", which the parser returns as none.
        let threshold = |n: Option<u32>| n.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        roles.push(Role {
            name: role.name.clone(),
            instances: role.instances,
            gpus: role.gpu,
            cpus: Cpus::from_whole(role.cpu),
            memory_mib: role.memory_mb,
            command: vec!["/bin/bash".to_owned(), "-c".to_owned(), script.text],
            min_failed: threshold(role.min_failed),
            min_succeeded: threshold(role.min_succeeded),
            retries: role.task_retries,
            ports: role.ports.iter().cloned().collect(),
            image: job.image(role).map(|image| image.uri.clone()),
            shm_mib: role.shm_mb,
            ..Role::default()
        });
    }
    let mut request = JobRequest {
        name: job.name.clone(),
        tenant: job.virtual_cluster.clone(),
        priority: job.class.priority(),
        labels: [(LABEL.to_owned(), job.name.clone())].into(),
        roles,
        gang: job.gang,
        secrets,
        notify: notifications(job),
        ..JobRequest::default()
    };
    request.retries.user = job.retries;
    if let Some(from) = &job.submitted_from {
        request.labels.insert("submit_from".to_owned(), from.clone());
    }
    request
}

/// Returns the events that OpenPAI sends mail for.
fn notifications(job: &Job) -> Option<JobNotifications> {
    let event = |state: &String| match state.as_str() {
        "running" => Some(NotificationKind::Running),
        "succeeded" => Some(NotificationKind::Completed),
        "failed" => Some(NotificationKind::Failed),
        _ => None,
    };
    let on: Vec<NotificationKind> = job.notify.iter().filter_map(event).collect();
    (!on.is_empty()).then(|| JobNotifications {
        on: Some(on),
        email: Some(true),
        ..JobNotifications::default()
    })
}

/// Returns the GPU type of the job: the SKU type that its roles name. All roles must name the same one, or none.
fn gpu_type(job: &Job, ignored: &mut Vec<Remark>) -> Result<Option<String>, Remark> {
    let path = |role: &str| format!("extras.hivedScheduler.taskRoles.{role}.skuType");
    let mut types = job
        .roles
        .iter()
        .filter_map(|role| Some((role, role.cells.sku_type.as_ref()?)));
    let Some((first, gpu_type)) = types.next() else {
        return Ok(None);
    };
    if let Some((role, other)) = types.find(|(_, other)| *other != gpu_type) {
        return Err(Remark::new(
            path(&role.name),
            format!(
                "found {other}, but role {} has {gpu_type}; expected one GPU type for all roles, or one job for each type",
                first.name
            ),
        ));
    }
    let unspecified = job
        .roles
        .iter()
        .filter(|role| role.gpu > 0 && role.cells.sku_type.is_none());
    for role in unspecified {
        ignored.push(Remark::new(
            path(&role.name),
            format!(
                "not given; {gpu_type} of role {} applies to the whole job",
                first.name
            ),
        ));
    }
    Ok(Some(gpu_type.clone()))
}
