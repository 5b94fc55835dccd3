//! Jobs as JSON, in the format of OpenPAI.

use dovetail_cluster::state::{Attempt, AttemptEnd, ClusterState, JobRecord};
use dovetail_model::Time;
use dovetail_openpai::exit;
use serde_json::{Map, Value, json};

use super::model::{PaiJob, exit_code, state_of};
use crate::views::{InstanceView, RoleView, role_views_at};

/// Returns a time in milliseconds since 1970.
pub(super) fn ms(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |t| json!(t.0 / 1000))
}

fn first_start(jobs: &[&JobRecord]) -> Option<Time> {
    jobs.iter()
        .flat_map(|job| &job.attempts)
        .filter_map(|a| a.running_since)
        .min()
}

/// Returns when the last member ended, if all have.
fn ended_at(job: &PaiJob<'_>) -> Option<Time> {
    let have_all_ended = job.members.iter().all(|j| j.state.has_ended());
    have_all_ended
        .then(|| job.members.iter().map(|j| j.since).max())
        .flatten()
}

/// Returns the id of a job in logs of OpenPAI.
fn debug_id(owner: &str, name: &str) -> String {
    let full_name = format!("{owner}~{name}");
    let digest = ring::digest::digest(&ring::digest::SHA256, full_name.as_bytes());
    digest.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the entry of a job in the list of jobs.
pub(super) fn summary(job: &PaiJob<'_>) -> Value {
    let first = job.first();
    let failures = job.members.iter().fold((0, 0), |(user, platform), j| {
        (
            user + j.failures.user,
            platform + j.failures.platform + j.failures.node,
        )
    });
    let is_stopped = job.members.iter().any(|j| state_of(j).starts_with("STOPP"));
    json!({
        "name": job.name(),
        "username": first.user,
        "state": job.state(),
        "subState": sub_state(first),
        "executionType": if is_stopped { "STOP" } else { "START" },
        "tags": job.tags(),
        "retries": job.retries(),
        "retryDetails": { "user": failures.0, "platform": failures.1, "resource": 0 },
        "retryDelayTime": Value::Null,
        "submissionTime": ms(Some(first.submitted)),
        "createdTime": ms(Some(first.submitted)),
        "launchedTime": ms(first_start(&job.members)),
        "completedTime": ms(ended_at(job)),
        "appExitCode": job.exit_code(),
        "virtualCluster": first.request.tenant,
        "totalGpuNumber": job.gpus(),
        "totalTaskNumber": job.tasks(),
        "totalTaskRoleNumber": first.request.roles.len().max(1),
        "jobPriority": job.class(),
        "debugId": debug_id(&first.user, &job.name()),
    })
}

/// Returns the state of a job, as the framework controller of OpenPAI names it.
fn sub_state(job: &JobRecord) -> &'static str {
    match state_of(job) {
        "WAITING" if job.state.holds_gpus() => "AttemptPreparing",
        "WAITING" => "AttemptCreationPending",
        "RUNNING" => "AttemptRunning",
        "STOPPING" => "AttemptDeletionPending",
        _ => "Completed",
    }
}

/// Returns the description of an exit code.
fn exit_spec(code: Option<i32>) -> Value {
    let Some(code) = code else { return Value::Null };
    let exit = exit(code);
    json!({
        "code": code,
        "phrase": exit.phrase,
        "issuer": "DOVETAIL",
        "causer": "",
        "type": exit.kind.name(),
        "stage": "RUNNING",
        "behavior": exit.reaction.behavior(),
        "reaction": exit.reaction.name(),
        "reason": exit.hint,
        "repro": [],
        "solution": [exit.hint],
    })
}

/// Returns the details of a job, in its last attempt or in the given one.
pub(super) fn detail(state: &ClusterState, job: &PaiJob<'_>, attempt_id: Option<usize>) -> Value {
    let first = job.first();
    let attempt = match attempt_id {
        Some(index) => first.attempts.get(index),
        None => first.attempt(),
    };
    let mut status = match summary(job) {
        Value::Object(keys) => keys,
        _ => Map::new(),
    };
    for key in ["name", "tags", "jobPriority", "debugId"] {
        status.remove(key);
    }
    let code = job.exit_code();
    let failed = job.members.iter().find(|j| exit_code(j).is_some_and(|c| c != 0));
    let reason = match failed.map(|j| &j.state) {
        Some(dovetail_cluster::state::JobState::Ended(end)) => end.sentence(),
        _ => String::new(),
    };
    let trigger = attempt.and_then(|a| match &a.verdict {
        Some(dovetail_cluster::state::Verdict::Failed(role, end)) => Some((role.clone(), Some(end.index))),
        Some(dovetail_cluster::state::Verdict::Succeeded(role)) => Some((role.clone(), None)),
        None => None,
    });
    let output = attempt.and_then(last_output).unwrap_or_default();
    let more = json!({
        "attemptId": attempt_id.unwrap_or_else(|| first.attempts.len().saturating_sub(1)),
        "attemptState": attempt.map(attempt_state),
        "appId": format!("{}~{}", first.user, job.name()),
        "appProgress": if code == Some(0) { 1 } else { 0 },
        "appTrackingUrl": format!("/jobs/{}", first.id),
        "appCreatedTime": ms(attempt.map(|a| a.since)),
        "appLaunchedTime": ms(attempt.and_then(|a| a.running_since)),
        "appCompletedTime": ms(attempt.and_then(|a| a.until)),
        "appExitSpec": exit_spec(code),
        "appExitDiagnostics": reason,
        "appExitMessages": { "container": output, "runtime": Value::Null, "launcher": reason },
        "appExitTriggerMessage": trigger.as_ref().map(|(role, _)| format!("completion rule of role {role} met")),
        "appExitTriggerTaskRoleName": trigger.as_ref().map(|(role, _)| role),
        "appExitTriggerTaskIndex": trigger.as_ref().and_then(|(_, index)| *index),
        "appExitType": code.map(|c| exit(c).kind.name()),
    });
    status.extend(more.as_object().cloned().unwrap_or_default());
    json!({
        "name": job.name(),
        "frameworkName": format!("{}~{}", first.user, job.name()),
        "tags": job.tags(),
        "jobPriority": job.class(),
        "debugId": debug_id(&first.user, &job.name()),
        "jobStatus": status,
        "taskRoles": task_roles(state, job, attempt_id),
    })
}

fn last_output(attempt: &Attempt) -> Option<String> {
    attempt.tasks.iter().find_map(|task| match task {
        dovetail_cluster::state::TaskState::Ended(end) if end.exit_code != 0 || end.signal != 0 => {
            Some(end.log_tail.clone())
        }
        _ => None,
    })
}

fn attempt_state(attempt: &Attempt) -> &'static str {
    match (&attempt.end, attempt.running_since) {
        (Some(AttemptEnd::Completed), _) => "SUCCEEDED",
        (Some(AttemptEnd::Stopped(_)), _) => "STOPPED",
        (Some(AttemptEnd::Failed(_)), _) => "FAILED",
        (None, Some(_)) => "RUNNING",
        (None, None) => "WAITING",
    }
}

fn task_roles(state: &ClusterState, job: &PaiJob<'_>, attempt_id: Option<usize>) -> Value {
    let mut roles: Map<String, Value> = Map::new();
    for member in &job.members {
        let attempt = match attempt_id {
            Some(index) => member.attempts.get(index),
            None => member.attempt(),
        };
        let mut views = role_views_at(state, member, attempt);
        if views.is_empty() {
            views.push(single_role(state, member, attempt));
        }
        for role in views {
            let entry = roles
                .entry(role.name.clone())
                .or_insert_with(|| json!({ "taskRoleStatus": { "name": role.name }, "taskStatuses": [] }));
            if let Some(Value::Array(tasks)) = entry.get_mut("taskStatuses") {
                tasks.extend(
                    role.instances
                        .iter()
                        .map(|i| task(state, member, attempt, &role.name, i)),
                );
            }
        }
    }
    Value::Object(roles)
}

/// Returns a job without roles as one role with one instance.
fn single_role(state: &ClusterState, job: &JobRecord, attempt: Option<&Attempt>) -> RoleView {
    let share = attempt.and_then(|a| a.allocation.shares.first());
    let instance_state = match state_of(job) {
        "SUCCEEDED" => "succeeded",
        "FAILED" => "failed",
        "STOPPED" => "stopped",
        "WAITING" => "waiting",
        _ => "running",
    };
    RoleView {
        name: "worker".to_owned(),
        instances: vec![InstanceView {
            index: 0,
            node: share
                .and_then(|s| state.node(s.node))
                .map(|n| n.spec.name.clone())
                .unwrap_or_default(),
            gpus: share.map(|s| s.gpus.iter().collect()).unwrap_or_default(),
            state: instance_state.to_owned(),
            exit_code: exit_code(job),
        }],
    }
}

fn task(
    state: &ClusterState,
    job: &JobRecord,
    attempt: Option<&Attempt>,
    role: &str,
    instance: &InstanceView,
) -> Value {
    let task_state = match instance.state.as_str() {
        "succeeded" => "SUCCEEDED",
        "failed" => "FAILED",
        "stopped" => "STOPPED",
        "running" => "RUNNING",
        _ => "WAITING",
    };
    // An instance that was stopped with its attempt has no exit code of its own.
    let code = match task_state {
        "STOPPED" => Some(-220),
        _ => instance.exit_code,
    };
    let node = state
        .nodes()
        .find(|(_, n)| n.spec.name == instance.node)
        .map(|(_, n)| n);
    let attempt_id = attempt.map_or(0, |a| a.id);
    json!({
        "taskIndex": instance.index,
        "taskUid": format!("{}-{role}-{}", job.id, instance.index),
        "taskState": task_state,
        "containerId": attempt.map(|_| format!("{}-{attempt_id}-{role}-{}", job.id, instance.index)),
        "containerIp": node.map(|n| n.address.clone()),
        "containerNodeName": (!instance.node.is_empty()).then_some(&instance.node),
        "containerPorts": {},
        "containerGpus": instance.gpus,
        "containerLog": format!("/api/v1/jobs/{}/logs?attempt={attempt_id}&node={}", job.id, instance.node),
        "containerExitCode": code,
        "containerExitSpec": exit_spec(code),
        "containerExitDiagnostics": Value::Null,
        "retries": job.attempts.len().saturating_sub(1),
        "accountableRetries": job.failures.user,
        "createdTime": ms(attempt.map(|a| a.since)),
        "launchedTime": ms(attempt.and_then(|a| a.running_since)),
        "completedTime": ms(attempt.and_then(|a| a.until)),
        "attemptId": job.attempts.len().saturating_sub(1),
        "attemptState": task_state,
        "hived": { "affinityGroupName": Value::Null, "lazyPreempted": Value::Null, "lazyPreemptionStatus": Value::Null },
    })
}
