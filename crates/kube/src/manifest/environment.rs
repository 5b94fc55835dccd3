//! What a container is told: OpenPAI's variables, our own, and those of its owner.

use std::collections::BTreeMap;

use dovetail_control::Role;
use serde_json::{Value, json};

use super::{Asked, text};
use crate::words;

/// The first port that is given out. Each pod has an address of its own, so all have the same ones.
const FIRST_PORT: u32 = 20_000;
/// More pods than this are not named to each other one by one.
const MOST_NAMED: u32 = 128;

/// Ports of a role by label: those it asks for, and those that OpenPAI gives everybody.
pub(super) fn ports(role: &Role) -> BTreeMap<String, Vec<u32>> {
    let mut counts: BTreeMap<String, u32> = ["http", "ssh", "master"]
        .map(|label| (label.to_owned(), 1))
        .into();
    counts.extend(role.ports.clone());
    let mut next = FIRST_PORT;
    let mut given = BTreeMap::new();
    for (label, count) in counts {
        given.insert(label, (next..next + count).collect());
        next += count;
    }
    given
}

fn joined(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    items.join(",")
}

/// Where an instance is found by others: by name where there is a service.
fn host(asked: &Asked<'_>, role: usize, index: u32) -> String {
    match asked.instances() > 1 && !asked.each_alone {
        true => format!("{}-{index}.{}", asked.job_name(role), asked.sender.name),
        false => "localhost".to_owned(),
    }
}

/// All variables of a role's container, secrets first: others may use them.
pub(super) fn environment(asked: &Asked<'_>, role: usize) -> Vec<Value> {
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
    for name in [
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
        "PAI_TASK_INDEX",
        "FC_TASK_INDEX",
        "RANK",
        "DOVETAIL_ARRAY_INDEX",
    ] {
        fields.insert(name, index.clone());
    }
    for name in ["PAI_CURRENT_CONTAINER_IP", "PAI_CONTAINER_HOST_IP"] {
        fields.insert(name, "status.podIP".to_owned());
    }
    fields.insert("FC_POD_UID", "metadata.uid".to_owned());
    fields.insert("DOVETAIL_NODE", "spec.nodeName".to_owned());
    if super::fields::by_us(asked, &asked.roles[role]) {
        fields.insert("DOVETAIL_JOB_ID", annotation(words::JOB));
        fields.insert("DOVETAIL_GENERATION", annotation(words::LAUNCH));
        if asked.sender.gpu_resource.is_none() {
            fields.insert("NVIDIA_VISIBLE_DEVICES", annotation(words::GPUS));
        }
    }
    fields
}

/// What all instances are told.
fn common(asked: &Asked<'_>) -> BTreeMap<String, String> {
    let (request, user) = (asked.request, &asked.sender.user);
    let mut env = BTreeMap::new();
    let mut put = |names: &[&str], value: String| {
        for name in names {
            env.insert((*name).to_owned(), value.clone());
        }
    };
    put(
        &["PAI_JOB_NAME", "PAI_FRAMEWORK_NAME"],
        format!("{user}~{}", request.name),
    );
    put(&["PAI_USER_NAME", "PAI_USERNAME", "DOVETAIL_USER"], user.clone());
    put(
        &["PAI_VIRTUAL_CLUSTER", "DOVETAIL_TENANT"],
        request.tenant.clone(),
    );
    put(&["PAI_DEFAULT_FS_URI"], String::new());
    put(&["DOVETAIL_JOB_NAME"], request.name.clone());
    let roles = &asked.roles;
    put(
        &[
            "PAI_TASK_ROLE_COUNT",
            "PAI_TASK_ROLES_NUM",
            "PAI_JOB_TASK_ROLE_COUNT",
        ],
        roles.len().to_string(),
    );
    put(
        &["PAI_TASK_ROLE_LIST", "PAI_JOB_TASK_ROLE_LIST"],
        joined(roles.iter().map(|r| &r.name)),
    );
    put(
        &["PAI_TASKS_NUM", "PAI_JOB_TASK_COUNT"],
        asked.instances().to_string(),
    );
    let or_never = |n: Option<u32>| n.map_or("-1".to_owned(), |n| n.to_string());
    for role in roles {
        let name = &role.name;
        put(
            &[&format!("PAI_TASK_ROLE_TASK_COUNT_{name}")],
            role.instances.to_string(),
        );
        put(
            &[&format!("PAI_RESOURCE_{name}")],
            format!(
                "{},{},{},{}",
                role.gpus,
                role.cpus.ceil(),
                role.memory_mib,
                role.shm_mib
            ),
        );
        put(
            &[&format!("PAI_MIN_FAILED_TASK_COUNT_{name}")],
            or_never(role.failures_allowed()),
        );
        put(
            &[&format!("PAI_MIN_SUCCEEDED_TASK_COUNT_{name}")],
            or_never(role.successes_needed()),
        );
    }
    if asked.instances() <= MOST_NAMED {
        let every = roles
            .iter()
            .flat_map(|r| (0..r.instances).map(|i| format!("{}:{i}", r.name)));
        put(&["PAI_TASK_ROLE_INSTANCES"], joined(every));
        if !asked.each_alone {
            hosts(asked, &mut env);
        }
    }
    env
}

/// Where each instance is, and its ports.
fn hosts(asked: &Asked<'_>, env: &mut BTreeMap<String, String>) {
    for (i, role) in asked.roles.iter().enumerate() {
        let (name, ports) = (&role.name, ports(role));
        let http = ports["http"][0];
        let list = (0..role.instances).map(|index| format!("{}:{http}", host(asked, i, index)));
        env.insert(format!("PAI_TASK_ROLE_{name}_HOST_LIST"), joined(list));
        for index in 0..role.instances {
            env.insert(format!("PAI_HOST_IP_{name}_{index}"), host(asked, i, index));
            for (label, list) in &ports {
                env.insert(format!("PAI_PORT_LIST_{name}_{index}_{label}"), joined(list));
                env.insert(format!("PAI_{name}_{index}_{label}_PORT"), joined(list));
            }
        }
    }
}

/// What the instances of a role are told of themselves.
fn own(asked: &Asked<'_>, at: usize) -> BTreeMap<String, String> {
    let role = &asked.roles[at];
    let ports = ports(role);
    let mut env = BTreeMap::new();
    let mut put = |names: &[&str], value: String| {
        for name in names {
            env.insert((*name).to_owned(), value.clone());
        }
    };
    put(
        &["PAI_CURRENT_TASK_ROLE_NAME", "FC_TASKROLE_NAME"],
        role.name.clone(),
    );
    put(
        &["PAI_CURRENT_CONTAINER_PORT", "PAI_CONTAINER_HOST_PORT"],
        ports["http"][0].to_string(),
    );
    put(&["PAI_CONTAINER_SSH_PORT"], ports["ssh"][0].to_string());
    let mut labelled = Vec::new();
    for (label, list) in &ports {
        put(&[&format!("PAI_CONTAINER_HOST_{label}_PORT_LIST")], joined(list));
        labelled.push(format!("{label}:{}", joined(list)));
    }
    put(&["PAI_CONTAINER_HOST_PORT_LIST"], labelled.join(";"));
    // Instances of one role meet at the first of them, as `torch.distributed` would have it.
    if !asked.each_alone {
        put(&["MASTER_ADDR"], host(asked, at, 0));
        put(&["MASTER_PORT"], ports["master"][0].to_string());
        put(&["WORLD_SIZE"], role.instances.to_string());
    }
    put(&["DOVETAIL_GPUS"], role.gpus.to_string());
    env
}
