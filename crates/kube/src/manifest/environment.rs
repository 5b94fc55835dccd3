//! What a container is told: OpenPAI's variables, our own, and those of its owner.

use std::collections::BTreeMap;

use dovetail_cluster::Role;
use dovetail_openpai::environment::{self, InstanceInfo, JobInfo, Ports, RoleInfo, Variables};
use serde_json::{Value, json};

use super::{Asked, text};
use crate::words;

/// The first port that is given out. Each pod has an address of its own, so all have the same ones.
const FIRST_PORT: u16 = 20_000;
/// More pods than this are not named to each other one by one.
const MOST_NAMED: u32 = 128;

/// Ports of a role by label: those it asks for, and those that OpenPAI gives everybody.
pub(super) fn ports(role: &Role) -> Ports {
    let mut free = FIRST_PORT..;
    let counts = environment::port_counts(&role.ports);
    counts
        .into_iter()
        .map(|(label, count)| (label, free.by_ref().take(count as usize).collect()))
        .collect()
}

/// Where an instance is found by others: by name where there is a service.
fn host(asked: &Asked<'_>, role: usize, index: u32) -> String {
    match asked.instances() > 1 && !asked.each_alone {
        true => format!("{}-{index}.{}", asked.job_name(role), asked.sender.name),
        false => "localhost".to_owned(),
    }
}

/// All variables of a role's container, secrets first: others may use them.
pub(super) fn variables(asked: &Asked<'_>, role: usize) -> Vec<Value> {
    let mut all: Vec<Value> = asked
        .secrets
        .values()
        .map(|variable| {
            let from = json!({"secretKeyRef": {"name": asked.sender.name, "key": variable}});
            json!({"name": variable, "valueFrom": from})
        })
        .collect();
    let mut plain = common(asked);
    plain.extend(own(asked, role));
    let of_owner = asked.request.env.iter().chain(&asked.roles[role].env);
    plain.extend(of_owner.map(|(name, value)| (name.clone(), text::written(value, &asked.secrets))));
    let fields = fields(asked, role);
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

/// What is known only of the pod itself.
fn fields(asked: &Asked<'_>, role: usize) -> BTreeMap<&'static str, String> {
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
    if super::fields::by_us(asked, &asked.roles[role]) {
        fields.insert("DOVETAIL_JOB_ID", annotation(words::JOB));
        fields.insert("DOVETAIL_ATTEMPT", annotation(words::ATTEMPT));
        if asked.sender.gpu_resource.is_none() {
            fields.insert("NVIDIA_VISIBLE_DEVICES", annotation(words::GPUS));
        }
    }
    fields
}

/// What all instances are told.
fn common(asked: &Asked<'_>) -> Variables {
    let (request, user) = (asked.request, &asked.sender.user);
    let job = JobInfo {
        name: &request.name,
        user,
        virtual_cluster: &request.tenant,
        roles: asked.roles.iter().map(Role::info).collect(),
    };
    let mut env = environment::job_variables(&job);
    for (name, value) in [
        ("DOVETAIL_USER", user),
        ("DOVETAIL_TENANT", &request.tenant),
        ("DOVETAIL_JOB_NAME", &request.name),
    ] {
        env.insert(name.to_owned(), value.clone());
    }
    if asked.instances() <= MOST_NAMED {
        env.extend([environment::instance_list(&job.roles)]);
        if !asked.each_alone {
            env.extend(hosts(asked, &job.roles));
        }
    }
    env
}

/// Where each instance is, and its ports.
fn hosts(asked: &Asked<'_>, roles: &[RoleInfo<'_>]) -> Variables {
    let ports: Vec<Ports> = asked.roles.iter().map(ports).collect();
    let mut instances = Vec::new();
    for (i, role) in asked.roles.iter().enumerate() {
        instances.extend((0..role.instances).map(|index| InstanceInfo {
            role: &role.name,
            index,
            address: host(asked, i, index),
            ports: &ports[i],
        }));
    }
    environment::host_variables(roles, &instances)
}

/// What the instances of a role are told of themselves.
fn own(asked: &Asked<'_>, at: usize) -> Variables {
    let role = &asked.roles[at];
    let ports = ports(role);
    let mut env = environment::role_variables(&role.name, &ports);
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    // Instances of one role meet at the first of them, as `torch.distributed` would have it.
    if !asked.each_alone {
        put("MASTER_ADDR", host(asked, at, 0));
        put("MASTER_PORT", ports["master"][0].to_string());
        put("WORLD_SIZE", role.instances.to_string());
    }
    put("DOVETAIL_GPUS", role.gpus.to_string());
    env
}
