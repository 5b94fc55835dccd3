//! Remarks on the parts of an OpenPAI job that are ignored or work differently here.

use dovetail_cluster::JobRequest;
use dovetail_openpai::{Job, Plugin, PrerequisiteKind, Remark, Role, Value};

/// Adds a remark for each key that only describes the job.
pub(super) fn descriptive_keys(tree: &Value, remarks: &mut Vec<Remark>) {
    let mut check = |node: &Value, path: &str| {
        for key in ["version", "contributor", "description"] {
            if node.get(key).is_some() {
                remarks.push(Remark::new(format!("{path}{key}"), "ignored: only descriptive"));
            }
        }
    };
    check(tree, "");
    if let Some(Value::List(list)) = tree.get("prerequisites") {
        for (i, entry) in list.iter().enumerate() {
            check(entry, &format!("prerequisites[{i}]."));
        }
    }
}

/// Adds a remark for each part that has no effect here.
pub(super) fn unsupported_parts(job: &Job, remarks: &mut Vec<Remark>) {
    prerequisites(job, remarks);
    for role in &job.roles {
        role_parts(job, role, remarks);
    }
    job_parts(job, remarks);
    for (i, plugin) in job.plugins.iter().enumerate() {
        let text = match plugin {
            Plugin::Ssh { .. } => {
                "ignored: no SSH server is started; instances reach each other over the network of the nodes"
            }
            Plugin::Tensorboard => "ignored: TensorBoard is not started",
            Plugin::TeamwiseStorage(_) => NO_MOUNTS,
            Plugin::Cmd(_) | Plugin::Git { .. } => continue,
        };
        let path = format!("extras.com.microsoft.pai.runtimeplugin[{i}]");
        remarks.push(Remark::new(path, text));
    }
}

const NO_MOUNTS: &str = "ignored: nothing is mounted; jobs see the file system of the node";

fn prerequisites(job: &Job, remarks: &mut Vec<Remark>) {
    for (i, prerequisite) in job.prerequisites.iter().enumerate() {
        let path = format!("prerequisites[{i}]");
        match &prerequisite.kind {
            PrerequisiteKind::Image(image) if image.auth.is_some() => remarks.push(Remark::new(
                format!("{path}.auth"),
                "ignored: images are pulled with the credentials of the node's container runtime",
            )),
            PrerequisiteKind::Image(_) => {}
            _ if prerequisite.keys.get("uri").is_some() => remarks.push(Remark::new(
                format!("{path}.uri"),
                "not fetched; only available to commands that refer to it",
            )),
            _ => {}
        }
        if !prerequisite.require.is_empty() {
            remarks.push(Remark::new(
                format!("{path}.require"),
                "ignored: roles list their prerequisites in order",
            ));
        }
    }
}

fn role_parts(job: &Job, role: &Role, remarks: &mut Vec<Remark>) {
    let mut add = |path: String, text: &str| remarks.push(Remark::new(path, text));
    let path = format!("taskRoles.{}", role.name);
    add(
        format!("{path}.dockerImage"),
        "used on nodes with podman or docker; the agents of other nodes refuse the job or run it without a container, \
         as configured",
    );
    if role.infiniband {
        add(
            format!("{path}.extraContainerOptions.infiniband"),
            "ignored: devices of the node are not passed to containers",
        );
    }
    if job.gang && role.task_retries > 0 {
        add(
            format!("{path}.taskRetryCount"),
            "ignored, as in OpenPAI: instances that start together are retried together",
        );
    }
    let path = format!("extras.hivedScheduler.taskRoles.{}", role.name);
    if role.cells.sku_num.is_some() {
        add(format!("{path}.skuNum"), "ignored: follows from the resources");
    }
    if role.cells.pinned.is_some() {
        add(
            format!("{path}.pinnedCellId"),
            "ignored: any cell of the virtual cluster may be used",
        );
    }
    let affinity = &role.cells.affinity;
    if affinity.is_some() && job.roles.iter().any(|other| other.cells.affinity != *affinity) {
        add(
            format!("{path}.affinityGroupName"),
            "ignored: either all roles start together, or each instance starts independently",
        );
    }
}

fn job_parts(job: &Job, remarks: &mut Vec<Remark>) {
    let mut add = |path: String, text: &str| remarks.push(Remark::new(path, text));
    if !job.gang && job.retries > 0 {
        add(
            "jobRetryCount".to_owned(),
            "ignored: instances that start independently are retried by taskRetryCount",
        );
    }
    for (key, value) in [
        ("gangReleaseEnable", job.gang_release),
        ("lazyPreemptionEnable", job.lazy_preemption),
        ("ignoreK8sSuggestedNodes", job.ignore_suggested_nodes),
    ] {
        if value.is_some() {
            add(
                format!("extras.hivedScheduler.{key}"),
                "ignored: determined by the policy",
            );
        }
    }
    if job.storages.is_some() {
        add("extras.storages".to_owned(), NO_MOUNTS);
    }
    for (state, text) in [
        (
            "retried",
            "ignored: the owner is notified when the job ends, not at each attempt",
        ),
        (
            "stopped",
            "ignored: reported to the owner as failed, unless the owner stopped the job",
        ),
    ] {
        if job.notify.iter().any(|listed| listed == state) {
            add(format!("extras.jobStatusChangeNotification.{state}"), text);
        }
    }
}

/// Adds a remark where the resources of the whole job are not the sum over its instances.
pub(super) fn differing_sizes(job: &Job, request: &JobRequest, remarks: &mut Vec<Remark>) {
    for role in job.roles.iter().filter(|role| role.gpu == 0) {
        if job.gpus() == 0 || !job.gang {
            remarks.push(Remark::new(
                format!("taskRoles.{}.resourcePerInstance.gpu", role.name),
                "0 given; the job gets one GPU slot, because jobs are queued for GPUs",
            ));
        }
    }
    if !job.gang {
        return;
    }
    let requested: u64 = job
        .roles
        .iter()
        .map(|role| u64::from(role.cpu) * u64::from(role.instances))
        .sum();
    let allocated = request.cpus_per_gpu.as_cores() * f64::from(request.gpus);
    if allocated > requested as f64 + 0.5 {
        remarks.push(Remark::new(
            "taskRoles",
            format!(
                "CPUs and memory are allocated per GPU, by the largest request of a role: {allocated:.1} CPUs instead of \
                 {requested}, and memory likewise"
            ),
        ));
    }
}
