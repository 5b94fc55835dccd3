//! The `batch/v1` Job of a role.

use dovetail_cluster::Cpus;
use dovetail_model::Time;
use serde_json::{Map, Value, json};

use super::{Asked, environment, fields, text};
use crate::words;

/// The Job of a role, of which so many instances of other roles come before.
pub(super) fn job(asked: &Asked<'_>, at: usize, before: u64) -> Value {
    let (request, role) = (asked.request, &asked.roles[at]);
    let mut spec = json!({
        "completionMode": "Indexed",
        "completions": role.instances,
        "parallelism": asked.at_most.unwrap_or(role.instances).min(role.instances).max(1),
        "backoffLimitPerIndex": retries(asked, at),
        // A pod that had to make room has not failed.
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {"metadata": {"labels": pod_labels(asked, at), "annotations": annotations(asked, at, before)},
            "spec": pod(asked, at)},
    });
    if let Some(failures) = role.failures_allowed() {
        spec["maxFailedIndexes"] = json!(failures.saturating_sub(1).min(role.instances));
    }
    if let Some(enough) = role.successes_needed().filter(|n| *n < role.instances) {
        spec["successPolicy"] = json!({"rules": [{"succeededCount": enough}]});
    }
    if request.hold {
        spec["suspend"] = json!(true);
    }
    let mut annotations = json!({words::USER: asked.sender.user, words::JOB_NAME: request.name});
    let mut labels = asked.labels();
    if let Some(number) = asked.sender.number {
        labels[words::NUMBER] = json!(number.to_string());
    }
    for (key, value) in &request.labels {
        annotations[format!("{}{}", words::LABEL_PREFIX, annotation_name(key))] = json!(value);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": asked.job_name(at), "namespace": asked.sender.namespace, "labels": labels,
            "annotations": annotations},
        "spec": spec})
}

/// How often an instance is started again.
fn retries(asked: &Asked<'_>, at: usize) -> u32 {
    match asked.each_alone || asked.request.roles.is_empty() {
        true => asked.roles[at].retries,
        false => asked.request.retries.user,
    }
}

/// A mark of the owner, as the name of an annotation.
fn annotation_name(key: &str) -> String {
    let fine = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '.' {
            c
        } else {
            '_'
        }
    };
    let name: String = key.chars().map(fine).take(63).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() {
        "mark".to_owned()
    } else {
        name.to_owned()
    }
}

fn pod_labels(asked: &Asked<'_>, at: usize) -> Value {
    let mut labels = asked.labels();
    labels[words::ROLE] = json!(super::names::role_name(&asked.roles[at].name));
    labels
}

/// What the scheduler has to know of the pods.
fn annotations(asked: &Asked<'_>, at: usize, before: u64) -> Value {
    let (request, role) = (asked.request, &asked.roles[at]);
    let mut said = Map::new();
    let mut say = |name: &str, value: String| drop(said.insert(name.to_owned(), json!(value)));
    say(words::USER, asked.sender.user.clone());
    say(words::JOB_NAME, request.name.clone());
    say(words::VIRTUAL_CLUSTER, request.tenant.clone());
    say(words::PRIORITY, request.priority.to_string());
    match asked.each_alone {
        true => say(words::GANG_SIZE, "1".to_owned()),
        false => {
            say(words::GANG, asked.sender.name.clone());
            say(words::GANG_SIZE, asked.instances().to_string());
            if let Some((least, _)) = asked.range() {
                say(words::GANG_MIN, least.to_string());
            }
            let or_never = |n: Option<u32>| n.map_or("never".to_owned(), |n| n.to_string());
            say(words::MIN_SUCCEEDED, or_never(role.successes_needed()));
            say(words::MIN_FAILED, or_never(role.failures_allowed()));
            say(words::RETRIES, retries(asked, at).to_string());
        }
    }
    if let Some(number) = asked.sender.number {
        // Of jobs that start alone each has a number of its own, by its index.
        let first = if asked.each_alone { number + before } else { number };
        say(words::NUMBER, first.to_string());
    }
    if let Some(kind) = &request.gpu_type {
        say(words::GPU_TYPE, kind.clone());
    }
    if let Some(seconds) = request.expected.map(Time::as_secs_f64).filter(|s| *s >= 1.0) {
        say(words::EXPECTED, (seconds.ceil() as u64).to_string());
    }
    if role.gpus > 0 && asked.sender.gpu_resource.is_none() {
        say(words::GPUS_WANTED, role.gpus.to_string());
    }
    Value::Object(said)
}

fn pod(asked: &Asked<'_>, at: usize) -> Value {
    let (request, role) = (asked.request, &asked.roles[at]);
    let mut container = json!({
        "name": "main",
        "image": role.image.as_ref().or(asked.sender.image.as_ref()),
        "command": role.command.iter().map(|word| text::written(word, &asked.secrets)).collect::<Vec<_>>(),
        "env": environment::variables(asked, at),
        "resources": {"limits": limits(asked, at)},
    });
    if !request.workdir.is_empty() {
        container["workingDir"] = json!(request.workdir);
    }
    let ports: Vec<Value> = match role.ports.is_empty() {
        true => Vec::new(),
        false => environment::ports(role)
            .into_iter()
            .filter(|(label, _)| role.ports.contains_key(label))
            .flat_map(|(_, list)| list)
            .map(|port| json!({"containerPort": port}))
            .collect(),
    };
    if !ports.is_empty() {
        container["ports"] = json!(ports);
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": request.grace.as_secs_f64().max(0.0).ceil() as u64,
    });
    if fields::by_us(asked, role) {
        spec["schedulerName"] = json!(asked.sender.scheduler_name);
    }
    if !asked.each_alone && asked.instances() > 1 {
        spec["subdomain"] = json!(asked.sender.name);
    }
    if let Some(seconds) = request.time_limit.map(Time::as_secs_f64) {
        spec["activeDeadlineSeconds"] = json!((seconds.ceil() as u64).max(1));
    }
    if role.shm_mib > 0 {
        container["volumeMounts"] = json!([{"name": "shm", "mountPath": "/dev/shm"}]);
        spec["volumes"] = json!([{"name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": format!("{}Mi", role.shm_mib)}}]);
    }
    spec["containers"] = json!([container]);
    spec
}

/// What a container has, and no more.
fn limits(asked: &Asked<'_>, at: usize) -> Value {
    let role = &asked.roles[at];
    let mut limits = Map::new();
    if role.cpus > Cpus::ZERO {
        let milli = role.cpus.milli();
        let text = match milli.is_multiple_of(1000) {
            true => (milli / 1000).to_string(),
            false => format!("{milli}m"),
        };
        limits.insert("cpu".to_owned(), json!(text));
    }
    if role.memory_mib > 0 {
        limits.insert("memory".to_owned(), json!(format!("{}Mi", role.memory_mib)));
    }
    if let Some(resource) = asked.sender.gpu_resource.as_ref().filter(|_| role.gpus > 0) {
        limits.insert(resource.clone(), json!(role.gpus.to_string()));
    }
    Value::Object(limits)
}
