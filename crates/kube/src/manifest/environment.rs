//! Environment variables of a container: those of OpenPAI, our own, and those of the user.

use std::collections::BTreeMap;

use dovetail_cluster::Role;
use dovetail_openpai::environment::{self, InstanceInfo, JobInfo, Ports, RoleInfo, Variables};
use serde_json::{Value, json};

use super::{Context, text};
use crate::annotations;

/// The first assigned port. Each pod has its own address, so all pods have the same ports.
const FIRST_PORT: u16 = 20_000;
/// Maximum number of pods that are listed in variables.
const MAX_LISTED: u32 = 128;

/// Returns the ports of a role by label: those it requests, and those that OpenPAI assigns to all roles.
pub(super) fn ports(role: &Role) -> Ports {
    let mut free = FIRST_PORT..;
    let counts = environment::port_counts(&role.ports);
    counts
        .into_iter()
        .map(|(label, count)| (label, free.by_ref().take(count as usize).collect()))
        .collect()
}

/// Returns the host name of an instance: that of the service if there is one.
fn host(cx: &Context<'_>, role: usize, index: u32) -> String {
    match cx.instances() > 1 && !cx.starts_alone {
        true => format!("{}-{index}.{}", cx.job_name(role), cx.options.name),
        false => "localhost".to_owned(),
    }
}

/// Returns the variables of the container of a role. Secrets come first, because others may refer to them.
pub(super) fn variables(cx: &Context<'_>, role: usize) -> Vec<Value> {
    let mut all: Vec<Value> = cx
        .secrets
        .values()
        .map(|variable| {
            let from = json!({"secretKeyRef": {"name": cx.options.name, "key": variable}});
            json!({"name": variable, "valueFrom": from})
        })
        .collect();
    let mut plain = common(cx);
    plain.extend(of_role(cx, role));
    let of_user = cx.request.env.iter().chain(&cx.roles[role].env);
    plain.extend(of_user.map(|(name, value)| (name.clone(), text::escape(value, &cx.secrets))));
    let fields = fields(cx, role);
    all.extend(
        fields
            .iter()
            .filter(|(name, _)| !plain.contains_key(**name))
            .map(|(name, path)| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})),
    );
    all.extend(
        plain
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value})),
    );
    all
}

/// Returns the fields of the pod that variables refer to.
fn fields(cx: &Context<'_>, role: usize) -> BTreeMap<&'static str, String> {
    let index = "metadata.labels['batch.kubernetes.io/job-completion-index']".to_owned();
    let annotation = |name: &str| format!("metadata.annotations['{name}']");
    let mut fields: BTreeMap<&'static str, String> = BTreeMap::new();
    for name in environment::INDEX
        .into_iter()
        .chain(["RANK", "DOVETAIL_ARRAY_INDEX"])
    {
        fields.insert(name, index.clone());
    }
    for name in environment::ADDRESS {
        fields.insert(name, "status.podIP".to_owned());
    }
    fields.insert(environment::POD_UID, "metadata.uid".to_owned());
    fields.insert("DOVETAIL_NODE", "spec.nodeName".to_owned());
    if super::fields::is_ours(cx, &cx.roles[role]) {
        fields.insert("DOVETAIL_JOB_ID", annotation(annotations::JOB));
        fields.insert("DOVETAIL_ATTEMPT", annotation(annotations::ATTEMPT));
        fields.insert("DOVETAIL_RESUME_STEP", annotation(annotations::RESUME_STEP));
        if cx.options.gpu_resource.is_none() {
            fields.insert("NVIDIA_VISIBLE_DEVICES", annotation(annotations::GPUS));
        }
    }
    fields
}

/// Returns the variables that all instances share.
fn common(cx: &Context<'_>) -> Variables {
    let (request, user) = (cx.request, &cx.options.user);
    let job = JobInfo {
        name: &request.name,
        user,
        virtual_cluster: &request.tenant,
        roles: cx.roles.iter().map(Role::info).collect(),
    };
    let mut env = environment::job_variables(&job);
    for (name, value) in [
        ("DOVETAIL_USER", user),
        ("DOVETAIL_TENANT", &request.tenant),
        ("DOVETAIL_JOB_NAME", &request.name),
    ] {
        env.insert(name.to_owned(), value.clone());
    }
    if cx.instances() <= MAX_LISTED {
        env.extend([environment::instance_list(&job.roles)]);
        if !cx.starts_alone {
            env.extend(hosts(cx, &job.roles));
        }
    }
    env
}

/// Returns the variables with host and ports of each instance.
fn hosts(cx: &Context<'_>, roles: &[RoleInfo<'_>]) -> Variables {
    let ports: Vec<Ports> = cx.roles.iter().map(ports).collect();
    let mut instances = Vec::new();
    for (i, role) in cx.roles.iter().enumerate() {
        instances.extend((0..role.instances).map(|index| InstanceInfo {
            role: &role.name,
            index,
            address: host(cx, i, index),
            ports: &ports[i],
        }));
    }
    environment::host_variables(roles, &instances)
}

/// Returns the variables of the instances of a role.
fn of_role(cx: &Context<'_>, role_index: usize) -> Variables {
    let role = &cx.roles[role_index];
    let ports = ports(role);
    let mut env = environment::role_variables(&role.name, &ports);
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    // `torch.distributed` of a role uses its first instance as master.
    if !cx.starts_alone {
        put("MASTER_ADDR", host(cx, role_index, 0));
        put("MASTER_PORT", ports["master"][0].to_string());
        put("WORLD_SIZE", role.instances.to_string());
    }
    put("DOVETAIL_GPUS", role.gpus.to_string());
    env
}
