//! Jobs in the shapes that clients of OpenPAI read.

use dovetail_control::book::{Attempt, AttemptEnd, Book, JobRecord};
use dovetail_model::Time;
use dovetail_openpai::exit;
use serde_json::{Map, Value, json};

use super::model::{PaiJob, exit_code, state_of};
use crate::roles::{InstanceView, roles_at};

/// Milliseconds since 1970.
pub(super) fn ms(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |t| json!(t.0 / 1000))
}

fn first_start(jobs: &[&JobRecord]) -> Option<Time> {
    jobs.iter()
        .flat_map(|job| &job.attempts)
        .filter_map(|a| a.running_since)
        .min()
}

fn over_at(job: &PaiJob<'_>) -> Option<Time> {
    let all = job.members.iter().all(|j| j.state.is_over());
    all.then(|| job.members.iter().map(|j| j.since).max()).flatten()
}

/// A number that stands for the job in logs of OpenPAI.
fn debug_id(owner: &str, name: &str) -> String {
    let words = format!("{owner}~{name}");
    let digest = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    digest.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
}

/// A job in a list.
pub(super) fn summary(job: &PaiJob<'_>) -> Value {
    let first = job.first();
    let failures = job.members.iter().fold((0, 0), |(user, platform), j| {
        (
            user + j.failures.user,
            platform + j.failures.platform + j.failures.node,
        )
    });
    let stopped = job.members.iter().any(|j| state_of(j).starts_with("STOPP"));
    json!({
        "name": job.name(),
        "username": first.user,
        "state": job.state(),
        "subState": sub_state(first),
        "executionType": if stopped { "STOP" } else { "START" },
        "tags": job.tags(),
        "retries": job.retries(),
        "retryDetails": { "user": failures.0, "platform": failures.1, "resource": 0 },
        "retryDelayTime": Value::Null,
        "submissionTime": ms(Some(first.submitted)),
        "createdTime": ms(Some(first.submitted)),
        "launchedTime": ms(first_start(&job.members)),
        "completedTime": ms(over_at(job)),
        "appExitCode": job.exit_code(),
        "virtualCluster": first.request.tenant,
        "totalGpuNumber": job.gpus(),
        "totalTaskNumber": job.tasks(),
        "totalTaskRoleNumber": first.request.roles.len().max(1),
        "jobPriority": job.class(),
        "debugId": debug_id(&first.user, &job.name()),
    })
}

/// The controller's word for where a job is.
fn sub_state(job: &JobRecord) -> &'static str {
    match state_of(job) {
        "WAITING" if job.state.is_up() => "AttemptPreparing",
        "WAITING" => "AttemptCreationPending",
        "RUNNING" => "AttemptRunning",
        "STOPPING" => "AttemptDeletionPending",
        _ => "Completed",
    }
}

/// All that is known of a code.
fn exit_spec(code: Option<i32>) -> Value {
    let Some(code) = code else { return Value::Null };
    let exit = exit(code);
    json!({
        "code": code,
        "phrase": exit.phrase,
        "issuer": "DOVETAIL",
        "causer": "",
        "type": exit.blame.name(),
        "stage": "RUNNING",
        "behavior": exit.reaction.behavior(),
        "reaction": exit.reaction.name(),
        "reason": exit.hint,
        "repro": [],
        "solution": [exit.hint],
    })
}

/// All of a job, at its last launch or at this one.
pub(super) fn detail(book: &Book, job: &PaiJob<'_>, launch: Option<usize>) -> Value {
    let first = job.first();
    let attempt = match launch {
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
    let ended = job.members.iter().find(|j| exit_code(j).is_some_and(|c| c != 0));
    let why = match ended.map(|j| &j.state) {
        Some(dovetail_control::book::JobState::Ended(end)) => end.sentence(),
        _ => String::new(),
    };
    let trigger = attempt.and_then(|a| match &a.verdict {
        Some(dovetail_control::book::Verdict::Failed(role, end)) => Some((role.clone(), Some(end.index))),
        Some(dovetail_control::book::Verdict::Succeeded(role)) => Some((role.clone(), None)),
        None => None,
    });
    let words = attempt.and_then(last_words).unwrap_or_default();
    let more = json!({
        "attemptId": launch.unwrap_or_else(|| first.attempts.len().saturating_sub(1)),
        "attemptState": attempt.map(attempt_state),
        "appId": format!("{}~{}", first.user, job.name()),
        "appProgress": if code == Some(0) { 1 } else { 0 },
        "appTrackingUrl": format!("/jobs/{}", first.no),
        "appCreatedTime": ms(attempt.map(|a| a.since)),
        "appLaunchedTime": ms(attempt.and_then(|a| a.running_since)),
        "appCompletedTime": ms(attempt.and_then(|a| a.until)),
        "appExitSpec": exit_spec(code),
        "appExitDiagnostics": why,
        "appExitMessages": { "container": words, "runtime": Value::Null, "launcher": why },
        "appExitTriggerMessage": trigger.as_ref().map(|(role, _)| format!("the completion rule of {role} is met")),
        "appExitTriggerTaskRoleName": trigger.as_ref().map(|(role, _)| role),
        "appExitTriggerTaskIndex": trigger.as_ref().and_then(|(_, index)| *index),
        "appExitType": code.map(|c| exit(c).blame.name()),
    });
    status.extend(more.as_object().cloned().unwrap_or_default());
    json!({
        "name": job.name(),
        "frameworkName": format!("{}~{}", first.user, job.name()),
        "tags": job.tags(),
        "jobPriority": job.class(),
        "debugId": debug_id(&first.user, &job.name()),
        "jobStatus": status,
        "taskRoles": task_roles(book, job, launch),
    })
}

fn last_words(attempt: &Attempt) -> Option<String> {
    attempt.tasks.iter().find_map(|task| match task {
        dovetail_control::book::TaskState::Ended(end) if end.exit_code != 0 || end.signal != 0 => {
            Some(end.last_words.clone())
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

fn task_roles(book: &Book, job: &PaiJob<'_>, launch: Option<usize>) -> Value {
    let mut roles: Map<String, Value> = Map::new();
    for member in &job.members {
        let attempt = match launch {
            Some(index) => member.attempts.get(index),
            None => member.attempt(),
        };
        let mut shown = roles_at(book, member, attempt);
        if shown.is_empty() {
            shown.push(alone(book, member, attempt));
        }
        for role in shown {
            let entry = roles
                .entry(role.name.clone())
                .or_insert_with(|| json!({ "taskRoleStatus": { "name": role.name }, "taskStatuses": [] }));
            if let Some(Value::Array(tasks)) = entry.get_mut("taskStatuses") {
                tasks.extend(
                    role.instances
                        .iter()
                        .map(|i| task(book, member, attempt, &role.name, i)),
                );
            }
        }
    }
    Value::Object(roles)
}

/// A job without roles, as one role with one instance.
fn alone(book: &Book, job: &JobRecord, attempt: Option<&Attempt>) -> crate::roles::RoleView {
    let share = attempt.and_then(|a| a.allocation.shares.first());
    let state = match state_of(job) {
        "SUCCEEDED" => "succeeded",
        "FAILED" => "failed",
        "STOPPED" => "stopped",
        "WAITING" => "waiting",
        _ => "running",
    };
    crate::roles::RoleView {
        name: "worker".to_owned(),
        instances: vec![InstanceView {
            index: 0,
            node: share
                .and_then(|s| book.node(s.node))
                .map(|n| n.spec.name.clone())
                .unwrap_or_default(),
            gpus: share.map(|s| s.gpus.iter().collect()).unwrap_or_default(),
            state: state.to_owned(),
            exit_code: exit_code(job),
        }],
    }
}

fn task(
    book: &Book,
    job: &JobRecord,
    attempt: Option<&Attempt>,
    role: &str,
    instance: &InstanceView,
) -> Value {
    let state = match instance.state.as_str() {
        "succeeded" => "SUCCEEDED",
        "failed" => "FAILED",
        "stopped" => "STOPPED",
        "running" => "RUNNING",
        _ => "WAITING",
    };
    // One that was stopped with its attempt did not end by itself.
    let code = match state {
        "STOPPED" => Some(-220),
        _ => instance.exit_code,
    };
    let node = book
        .nodes()
        .find(|(_, n)| n.spec.name == instance.node)
        .map(|(_, n)| n);
    let launch = attempt.map_or(0, |a| a.launch);
    json!({
        "taskIndex": instance.index,
        "taskUid": format!("{}-{role}-{}", job.no, instance.index),
        "taskState": state,
        "containerId": attempt.map(|_| format!("{}-{launch}-{role}-{}", job.no, instance.index)),
        "containerIp": node.map(|n| n.address.clone()),
        "containerNodeName": (!instance.node.is_empty()).then_some(&instance.node),
        "containerPorts": {},
        "containerGpus": instance.gpus,
        "containerLog": format!("/api/v1/jobs/{}/logs?launch={launch}&node={}", job.no, instance.node),
        "containerExitCode": code,
        "containerExitSpec": exit_spec(code),
        "containerExitDiagnostics": Value::Null,
        "retries": job.attempts.len().saturating_sub(1),
        "accountableRetries": job.failures.user,
        "createdTime": ms(attempt.map(|a| a.since)),
        "launchedTime": ms(attempt.and_then(|a| a.running_since)),
        "completedTime": ms(attempt.and_then(|a| a.until)),
        "attemptId": job.attempts.len().saturating_sub(1),
        "attemptState": state,
        "hived": { "affinityGroupName": Value::Null, "lazyPreempted": Value::Null, "lazyPreemptionStatus": Value::Null },
    })
}
