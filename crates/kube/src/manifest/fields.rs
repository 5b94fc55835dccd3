//! Fields of a request that Kubernetes cannot express, and the roles of a job without roles.

use dovetail_cluster::{ArrayIndices, JobRequest, Processes, Role};

use super::{Context, ManifestError, ManifestOptions};

/// Maximum number of pods of a job: each Job names all of them to each.
const MAX_PODS: u32 = 1000;

/// Returns errors for fields without which the job would not work.
pub(super) fn unsupported(
    request: &JobRequest,
    array: Option<ArrayIndices<'_>>,
    options: &ManifestOptions,
) -> Vec<ManifestError> {
    let mut errors = Vec::new();
    if !request.after.is_empty() {
        errors.push(ManifestError::After);
    }
    if request.processes == Processes::PerGpu {
        errors.push(ManifestError::ProcessesPerGpu);
    }
    if options.image.is_none() {
        match request.roles.iter().position(|role| role.image.is_none()) {
            Some(role) => errors.push(ManifestError::RoleImage(role)),
            None if request.roles.is_empty() => errors.push(ManifestError::Image),
            None => {}
        }
    }
    let is_consecutive = |a: &ArrayIndices<'_>| a.indices.iter().copied().eq(0..a.indices.len() as u32);
    if let Some(array) = array.filter(|array| !is_consecutive(array)) {
        let last = array.indices.len().saturating_sub(1);
        errors.push(ManifestError::ArrayIndices { last });
    }
    if array.is_some() && request.gang && !request.roles.is_empty() {
        errors.push(ManifestError::ArrayOfGangs);
    }
    errors
}

/// Returns the roles of a job. A job without roles gets one, with as many pods as its GPUs need.
pub(super) fn roles(
    request: &JobRequest,
    array: Option<ArrayIndices<'_>>,
    options: &ManifestOptions,
) -> Result<Vec<Role>, ManifestError> {
    let roles = match request.roles.is_empty() {
        false => request.roles.clone(),
        true => vec![single_role(request, array, options)?],
    };
    let pods: u64 = roles.iter().map(|r| u64::from(r.instances)).sum();
    match pods > u64::from(MAX_PODS) {
        true => Err(ManifestError::Pods { pods, max: MAX_PODS }),
        false => Ok(roles),
    }
}

fn single_role(
    request: &JobRequest,
    array: Option<ArrayIndices<'_>>,
    options: &ManifestOptions,
) -> Result<Role, ManifestError> {
    let (gpus, max) = (request.gpus, options.gpus_per_pod.max(1));
    let pods = gpus.div_ceil(max);
    if !gpus.is_multiple_of(pods.max(1)) {
        return Err(ManifestError::UnevenGpus { gpus, pods, max });
    }
    if array.is_some() && pods > 1 {
        return Err(ManifestError::ArrayGpus { gpus, max });
    }
    if request.processes == Processes::FirstNode && pods > 1 {
        return Err(ManifestError::FirstNode { pods, max });
    }
    let gpus = gpus / pods.max(1);
    let (min_pods, pods) = range(request, array.is_some(), options).unwrap_or((0, pods));
    Ok(Role {
        name: "worker".to_owned(),
        instances: array.map_or(pods, |a| a.indices.len() as u32),
        // Elastic pods that never started do not keep the job from succeeding.
        min_succeeded: i32::try_from(min_pods).unwrap_or(0),
        gpus,
        cpus: request.cpus_per_gpu.times(gpus),
        memory_mib: request.memory_mib_per_gpu * u64::from(gpus),
        command: request.command.clone(),
        retries: request.retries.user,
        // A failed job of an array does not fail the others.
        min_failed: if array.is_some() { -1 } else { 1 },
        ..Role::default()
    })
}

/// Returns the minimum and maximum number of pods of an elastic job; `None` for other jobs.
pub(super) fn range(request: &JobRequest, is_array: bool, options: &ManifestOptions) -> Option<(u32, u32)> {
    if is_array || !request.roles.is_empty() || request.gpus == 0 {
        return None;
    }
    let gpus_per_pod = request.gpus / request.gpus.div_ceil(options.gpus_per_pod.max(1));
    let min = request
        .min_gpus
        .unwrap_or(request.gpus)
        .div_ceil(gpus_per_pod)
        .max(1);
    let max = request.max_gpus.unwrap_or(request.gpus) / gpus_per_pod;
    (min < max).then_some((min, max))
}

/// Returns what is ignored or different on Kubernetes.
pub(super) fn remarks(cx: &Context<'_>) -> Vec<String> {
    let request = cx.request;
    let mut remarks = Vec::new();
    let mut add = |applies: bool, remark: &str| {
        if applies {
            remarks.push(remark.to_owned());
        }
    };
    let is_elastic = request.min_gpus.is_some() || request.max_gpus.is_some();
    add(
        is_elastic && cx.range().is_none(),
        "min_gpus, max_gpus: ignored: an elastic job on Kubernetes grows by whole pods, and these values allow no other number of pods",
    );
    add(
        cx.range().is_some(),
        "min_gpus, max_gpus: WORLD_SIZE is the maximum number of pods; use a launcher that takes a range, such as torchrun --nnodes",
    );
    add(
        request.gpu_memory_mib > 0,
        "gpu_memory_mib: ignored: the memory of GPUs is unknown on Kubernetes; use gpu_type",
    );
    add(
        request.run_as.is_some(),
        "run_as: ignored: the image sets the user",
    );
    add(
        request.private,
        "private: ignored: access to pods is controlled by the namespace",
    );
    add(
        request.time_limit.is_some() && cx.roles.iter().any(|r| r.retries > 0),
        "time_limit: a pod that reaches it fails and is retried like any other failed pod",
    );
    let has_several_pods = cx.roles.len() > 1 || cx.roles.iter().any(|r| r.instances > 1);
    add(
        !cx.starts_alone && has_several_pods && request.retries.user > 0 && !request.roles.is_empty(),
        "retries.user: a failed instance is restarted alone, not with all others",
    );
    for role in &cx.roles {
        let name = &role.name;
        add(
            !cx.starts_alone && role.retries > 0 && !request.roles.is_empty(),
            &format!("roles.{name}.retries: ignored: the retries of the job apply"),
        );
        add(
            role.failures_allowed().is_none() && !cx.request.roles.is_empty(),
            &format!(
                "roles.{name}.min_failed: the Job fails when all instances have ended and one has failed"
            ),
        );
        add(
            !role.ports.is_empty(),
            &format!("roles.{name}.ports: the same for all instances, because each pod has its own address"),
        );
        add(
            !is_ours(cx, role),
            &format!(
                "roles.{name}.gpus: 0 GPUs and no gang, so the default scheduler of the cluster starts it"
            ),
        );
    }
    remarks
}

/// Checks whether Dovetail schedules the pods of a role: pods without GPUs that start alone are left to the default scheduler.
pub(super) fn is_ours(cx: &Context<'_>, role: &Role) -> bool {
    role.gpus > 0 || (!cx.starts_alone && cx.instances() > 1)
}
