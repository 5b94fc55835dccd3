//! Jobs of OpenPAI as jobs of ours: what is taken over, and a remark on everything that is not.

use dovetail_control::{JobNotify, JobRequest, Occasion, Role};
use dovetail_openpai::{
    Auth, Job, Mode, Node, Parsed, Plugin, PrerequisiteKind, Remark, masked, parse, script,
};

use crate::views::ArrayRequest;

/// The label by which jobs that came as files of OpenPAI are found again.
pub(crate) const LABEL: &str = "openpai";

/// A job of OpenPAI, as one of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// The job.
    pub job: JobRequest,
    /// One job for each instance, where they start on their own.
    pub array: Option<ArrayRequest>,
    /// What was left out, or is not quite the same.
    pub remarks: Vec<Remark>,
}

/// Reads a file of OpenPAI.
///
/// # Errors
/// Everything that is wrong, each with its path.
pub fn convert(text: &str, mode: Mode) -> Result<Converted, Vec<Remark>> {
    let parsed = parse(text, mode).map_err(|faults| faults.0)?;
    let mut remarks = parsed.remarks.clone();
    let job = &parsed.job;
    said_only(&parsed.tree, &mut remarks);
    ignored_parts(&parsed, &mut remarks);
    let mut secrets = std::collections::BTreeMap::new();
    let mut roles = Vec::new();
    for role in &job.roles {
        let script = script(job, role);
        secrets.extend(script.secrets);
        let never = |n: Option<u32>| n.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        roles.push(Role {
            name: role.name.clone(),
            instances: role.instances,
            gpus: role.gpu,
            cpus: f64::from(role.cpu),
            memory_mib: role.memory_mb,
            command: vec!["/bin/bash".to_owned(), "-c".to_owned(), script.text],
            min_failed: never(role.min_failed),
            min_succeeded: never(role.min_succeeded),
            retries: role.task_retries,
            ports: role.ports.iter().cloned().collect(),
            image: job.image(role).map(|image| image.uri.clone()),
            shm_mib: role.shm_mb,
            ..Role::default()
        });
    }
    let gpu_type = sku(job, &mut remarks).map_err(|fault| vec![fault])?;
    let shown = serde_saphyr::to_string(&masked(&parsed.tree)).unwrap_or_default();
    let mut request = JobRequest {
        name: job.name.clone(),
        tenant: job.virtual_cluster.clone(),
        priority: job.class.priority(),
        gpu_type,
        labels: [(LABEL.to_owned(), job.name.clone())].into(),
        roles,
        gang: job.gang,
        secrets,
        file: Some(shown),
        notify: notify(job),
        ..JobRequest::default()
    };
    request.retries.user = job.retries;
    if let Some(from) = &job.submitted_from {
        request.labels.insert("submit_from".to_owned(), from.clone());
    }
    request
        .size_by_roles()
        .map_err(|what| vec![Remark::new("taskRoles", what)])?;
    sizes(job, &request, &mut remarks);
    request.remarks = remarks.iter().map(ToString::to_string).collect();
    let instances = u32::try_from(job.instances()).unwrap_or(u32::MAX);
    let array = (!job.gang).then(|| ArrayRequest {
        indices: (0..instances).collect(),
        at_most: None,
    });
    Ok(Converted {
        job: request,
        array,
        remarks,
    })
}

/// Of what its owner gets mail.
fn notify(job: &Job) -> Option<JobNotify> {
    let occasion = |state: &String| match state.as_str() {
        "running" => Some(Occasion::Running),
        "succeeded" => Some(Occasion::Completed),
        "failed" => Some(Occasion::Failed),
        _ => None,
    };
    let on: Vec<Occasion> = job.notify.iter().filter_map(occasion).collect();
    (!on.is_empty()).then(|| JobNotify {
        on: Some(on),
        email: Some(true),
        ..JobNotify::default()
    })
}

/// What only people read.
fn said_only(tree: &Node, remarks: &mut Vec<Remark>) {
    let keys = ["version", "contributor", "description"];
    let mut look = |node: &Node, path: &str| {
        for key in keys.iter().filter(|key| node.get(key).is_some()) {
            remarks.push(Remark::new(format!("{path}{key}"), "ignored: it is for people"));
        }
    };
    look(tree, "");
    if let Some(Node::List(list)) = tree.get("prerequisites") {
        for (i, entry) in list.iter().enumerate() {
            look(entry, &format!("prerequisites[{i}]."));
        }
    }
}

/// Everything that is read and not done.
fn ignored_parts(parsed: &Parsed, remarks: &mut Vec<Remark>) {
    let job = &parsed.job;
    let mut say = |path: String, what: &str| remarks.push(Remark::new(path, what));
    for (i, prerequisite) in job.prerequisites.iter().enumerate() {
        let path = format!("prerequisites[{i}]");
        match &prerequisite.kind {
            PrerequisiteKind::Image(image) => {
                if let Some(Auth { .. }) = &image.auth {
                    let what = "ignored: the account that the node's container runtime has is used";
                    say(format!("{path}.auth"), what);
                }
            }
            _ if prerequisite.keys.get("uri").is_some() => {
                say(
                    format!("{path}.uri"),
                    "is not fetched; only commands that name it use it",
                );
            }
            _ => {}
        }
        if !prerequisite.require.is_empty() {
            say(
                format!("{path}.require"),
                "ignored: roles list what they use, in order",
            );
        }
    }
    for role in &job.roles {
        let path = format!("taskRoles.{}", role.name);
        say(
            format!("{path}.dockerImage"),
            "is used on nodes that have podman or docker; others refuse the job or run it without, as their agent says",
        );
        if role.infiniband {
            say(
                format!("{path}.extraContainerOptions.infiniband"),
                "ignored: devices of the node are not passed on",
            );
        }
        if job.gang && role.task_retries > 0 {
            say(
                format!("{path}.taskRetryCount"),
                "ignored, as OpenPAI does: instances that start together are tried again together",
            );
        }
        let wish = format!("extras.hivedScheduler.taskRoles.{}", role.name);
        if role.cells.sku_num.is_some() {
            say(format!("{wish}.skuNum"), "ignored: it follows from the resources");
        }
        if role.cells.pinned.is_some() {
            say(
                format!("{wish}.pinnedCellId"),
                "ignored: any cell of the virtual cluster may be used",
            );
        }
        if role.cells.affinity.is_some() && job.roles.iter().any(|r| r.cells.affinity != role.cells.affinity)
        {
            say(
                format!("{wish}.affinityGroupName"),
                "ignored: all roles start together, or each instance on its own",
            );
        }
    }
    if !job.gang && job.retries > 0 {
        say(
            "jobRetryCount".to_owned(),
            "ignored: instances that start on their own are tried again as taskRetryCount says",
        );
    }
    for (key, said) in [
        ("gangReleaseEnable", job.gang_release),
        ("lazyPreemptionEnable", job.lazy_preemption),
        ("ignoreK8sSuggestedNodes", job.ignore_suggested_nodes),
    ] {
        if said.is_some() {
            say(
                format!("extras.hivedScheduler.{key}"),
                "ignored: it is up to the policy",
            );
        }
    }
    if job.storages.is_some() {
        say(
            "extras.storages".to_owned(),
            "ignored: nothing is mounted; what the node has is there",
        );
    }
    for (state, what) in [
        (
            "retried",
            "ignored: its owner is told of how it ends, not of each launch",
        ),
        (
            "stopped",
            "ignored: its owner is told of it as failed, unless the owner stopped it",
        ),
    ] {
        if job.notify.iter().any(|said| said == state) {
            say(format!("extras.jobStatusChangeNotification.{state}"), what);
        }
    }
    for (i, plugin) in job.plugins.iter().enumerate() {
        let what = match plugin {
            Plugin::Ssh { .. } => {
                "ignored: no ssh server is started; instances reach each other over the nodes' network"
            }
            Plugin::Tensorboard => "ignored: TensorBoard is not started",
            Plugin::TeamwiseStorage(_) => "ignored: nothing is mounted; what the node has is there",
            Plugin::Cmd(_) | Plugin::Git { .. } => continue,
        };
        say(format!("extras.com.microsoft.pai.runtimeplugin[{i}]"), what);
    }
}

/// The one kind of GPU that the roles insist on.
fn sku(job: &Job, remarks: &mut Vec<Remark>) -> Result<Option<String>, Remark> {
    let mut kinds = job
        .roles
        .iter()
        .filter_map(|r| Some((r, r.cells.sku_type.as_ref()?)));
    let Some((first, kind)) = kinds.next() else {
        return Ok(None);
    };
    if let Some((other, another)) = kinds.find(|(_, k)| *k != kind) {
        return Err(Remark::new(
            format!("extras.hivedScheduler.taskRoles.{}.skuType", other.name),
            format!(
                "found {another}, but {} has {kind}; expected one kind for all roles, or a job for each",
                first.name
            ),
        ));
    }
    for role in job
        .roles
        .iter()
        .filter(|r| r.gpu > 0 && r.cells.sku_type.is_none())
    {
        remarks.push(Remark::new(
            format!("extras.hivedScheduler.taskRoles.{}.skuType", role.name),
            format!(
                "is not given; {kind} of role {} counts for the whole job",
                first.name
            ),
        ));
    }
    Ok(Some(kind.clone()))
}

/// Where what is asked for as a whole is not the sum of what the instances ask for.
fn sizes(job: &Job, request: &JobRequest, remarks: &mut Vec<Remark>) {
    for role in job.roles.iter().filter(|r| r.gpu == 0) {
        if job.gpus() == 0 || !job.gang {
            remarks.push(Remark::new(
                format!("taskRoles.{}.resourcePerInstance.gpu", role.name),
                "is 0; the job is given one GPU slot, because jobs stand in line for GPUs",
            ));
        }
    }
    if !job.gang {
        return;
    }
    let asked: u64 = job
        .roles
        .iter()
        .map(|r| u64::from(r.cpu) * u64::from(r.instances))
        .sum();
    let given = request.cpus_per_gpu * f64::from(request.gpus);
    if given > asked as f64 + 0.5 {
        remarks.push(Remark::new(
            "taskRoles",
            format!(
                "CPU is held by the GPU, as much as the hungriest role needs: {given:.1} CPUs instead of {asked}, and memory alike"
            ),
        ));
    }
}
