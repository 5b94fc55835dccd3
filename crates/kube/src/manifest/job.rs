//! The `batch/v1` Job of a role.

use dovetail_cluster::{Cpus, Deadline, JobRequest};
use dovetail_kubeapi::seconds_time;
use dovetail_model::Time;
use serde_json::{Map, Value, json};

use super::{Context, environment, fields, text};
use crate::annotations;

/// Returns the Job of a role; `before` is the number of instances of earlier roles.
pub(super) fn job(cx: &Context<'_>, role_index: usize, before: u64) -> Value {
    let (request, role) = (cx.request, &cx.roles[role_index]);
    let mut spec = json!({
        "completionMode": "Indexed",
        "completions": role.instances,
        "parallelism": cx.at_most.unwrap_or(role.instances).min(role.instances).max(1),
        "backoffLimitPerIndex": retries(cx, role_index),
        // A preempted pod has not failed.
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {"metadata": {"labels": pod_labels(cx, role_index), "annotations": annotations(cx, role_index, before)},
            "spec": pod(cx, role_index)},
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
    let mut annotations = json!({annotations::USER: cx.options.user, annotations::JOB_NAME: request.name});
    let mut labels = cx.labels();
    if let Some(number) = cx.options.number {
        labels[annotations::NUMBER] = json!(number.to_string());
    }
    for (key, value) in &request.labels {
        annotations[format!("{}{}", annotations::LABEL_PREFIX, annotation_name(key))] = json!(value);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": cx.job_name(role_index), "namespace": cx.options.namespace, "labels": labels,
            "annotations": annotations},
        "spec": spec})
}

/// Returns how often an instance is restarted.
fn retries(cx: &Context<'_>, role_index: usize) -> u32 {
    match cx.starts_alone || cx.request.roles.is_empty() {
        true => cx.roles[role_index].retries,
        false => cx.request.retries.user,
    }
}

/// Returns the label of a user as the name of an annotation.
fn annotation_name(key: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '.' {
            c
        } else {
            '_'
        }
    };
    let name: String = key.chars().map(allowed).take(63).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() {
        "label".to_owned()
    } else {
        name.to_owned()
    }
}

fn pod_labels(cx: &Context<'_>, role_index: usize) -> Value {
    let mut labels = cx.labels();
    labels[annotations::ROLE] = json!(super::names::role_name(&cx.roles[role_index].name));
    labels
}

/// Returns the annotations that the scheduler reads.
fn annotations(cx: &Context<'_>, role_index: usize, before: u64) -> Value {
    let (request, role) = (cx.request, &cx.roles[role_index]);
    let mut values = Map::new();
    let mut set = |name: &str, value: String| drop(values.insert(name.to_owned(), json!(value)));
    set(annotations::USER, cx.options.user.clone());
    set(annotations::JOB_NAME, request.name.clone());
    set(annotations::VIRTUAL_CLUSTER, request.tenant.clone());
    set(annotations::PRIORITY, request.priority.to_string());
    match cx.starts_alone {
        true => set(annotations::GANG_SIZE, "1".to_owned()),
        false => {
            set(annotations::GANG, cx.options.name.clone());
            set(annotations::GANG_SIZE, cx.instances().to_string());
            if let Some((min_pods, _)) = cx.range() {
                set(annotations::GANG_MIN, min_pods.to_string());
            }
            let or_never = |n: Option<u32>| n.map_or("never".to_owned(), |n| n.to_string());
            set(annotations::MIN_SUCCEEDED, or_never(role.successes_needed()));
            set(annotations::MIN_FAILED, or_never(role.failures_allowed()));
            set(annotations::RETRIES, retries(cx, role_index).to_string());
        }
    }
    if let Some(number) = cx.options.number {
        // Pods that start alone have one id each, by their index.
        let first = if cx.starts_alone { number + before } else { number };
        set(annotations::NUMBER, first.to_string());
    }
    if let Some(kind) = &request.gpu_type {
        set(annotations::GPU_TYPE, kind.clone());
    }
    if let Some(seconds) = request.expected.map(Time::as_secs_f64).filter(|s| *s >= 1.0) {
        set(annotations::EXPECTED, (seconds.ceil() as u64).to_string());
    }
    for (name, value) in behaviour(request) {
        set(name, value);
    }
    if role.gpus > 0 && cx.options.gpu_resource.is_none() {
        set(annotations::GPU_COUNT, role.gpus.to_string());
    }
    Value::Object(values)
}

/// Returns the annotations about how the job behaves when it runs.
fn behaviour(request: &JobRequest) -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    if let Some(model) = &request.model {
        values.push((annotations::MODEL, model.clone()));
    }
    if let Some(steps) = request.total_steps {
        values.push((annotations::TOTAL_STEPS, steps.to_string()));
    }
    if let Some(stages) = request.stages.map(|stages| json!(stages)) {
        values.push((annotations::STAGES, stages.to_string()));
    }
    if let Some(speeds) = json!(request.scaling).as_object().filter(|all| !all.is_empty()) {
        let points: Vec<String> = speeds
            .iter()
            .map(|(gpus, speed)| format!("{gpus}: {speed}"))
            .collect();
        values.push((annotations::SCALING, format!("{{{}}}", points.join(", "))));
    }
    match request.deadline {
        None => {}
        Some(Deadline::After(span)) => {
            values.push((annotations::DEADLINE, format!("{}s", span.as_secs_f64())))
        }
        Some(Deadline::At(time)) => values.push((annotations::DEADLINE, seconds_time(time.0))),
    }
    values
}

fn pod(cx: &Context<'_>, role_index: usize) -> Value {
    let (request, role) = (cx.request, &cx.roles[role_index]);
    let mut container = json!({
        "name": "main",
        "image": role.image.as_ref().or(cx.options.image.as_ref()),
        "command": role.command.iter().map(|word| text::escape(word, &cx.secrets)).collect::<Vec<_>>(),
        "env": environment::variables(cx, role_index),
        "resources": {"limits": limits(cx, role_index)},
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
    if fields::is_ours(cx, role) {
        spec["schedulerName"] = json!(cx.options.scheduler_name);
    }
    if !cx.starts_alone && cx.instances() > 1 {
        spec["subdomain"] = json!(cx.options.name);
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

/// Returns the resource limits of the container.
fn limits(cx: &Context<'_>, role_index: usize) -> Value {
    let role = &cx.roles[role_index];
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
    if let Some(resource) = cx.options.gpu_resource.as_ref().filter(|_| role.gpus > 0) {
        limits.insert(resource.clone(), json!(role.gpus.to_string()));
    }
    Value::Object(limits)
}
