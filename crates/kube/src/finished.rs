//! Submitted jobs that have ended, as their Kubernetes Jobs show them to a scheduler that starts.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::state::End;
use dovetail_cluster::{Actor, ArrayPart, JobId, JobRequest};
use dovetail_kubeapi::{Condition, Meta, Pod, parse_time};
use dovetail_model::Time;
use serde::Deserialize;

use crate::annotations;
use crate::identity::{GangSize, Identity, SizeSource};

/// A `batch/v1` Job of a submitted job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SubmittedJob {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    completions: u32,
    suspend: bool,
    template: Pod,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Vec<Condition>,
    completed_indexes: String,
    failed_indexes: String,
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedJob {
    /// Id of the job.
    pub id: JobId,
    /// User who submitted it.
    pub user: String,
    /// The request, as far as the objects still have it.
    pub request: JobRequest,
    /// When it was submitted.
    pub submitted: Time,
    /// When it started, if known.
    pub started: Option<Time>,
    /// When it ended.
    pub ended: Time,
    /// How it ended.
    pub end: End,
}

/// State of a Kubernetes Job.
#[derive(Debug, Clone, PartialEq)]
enum State {
    Complete,
    Failed(String),
    Stopped(String),
    /// Suspended, but not by stopping the job.
    Suspended,
    Open,
}

impl SubmittedJob {
    fn state(&self) -> (State, Time) {
        let condition = |kind: &str| {
            let mut all = self.status.conditions.iter();
            all.find(|c| c.kind == kind && c.status == "True")
        };
        let at = |c: &Condition| {
            let at = c.last_transition_time.as_deref().and_then(parse_time);
            Time(at.unwrap_or_else(|| self.created().0))
        };
        // The second condition of each pair comes first, while pods are still being stopped.
        if let Some(done) = condition("Complete").or_else(|| condition("SuccessCriteriaMet")) {
            return (State::Complete, at(done));
        }
        if let Some(failed) = condition("Failed").or_else(|| condition("FailureTarget")) {
            let why = format!("{}: {}", failed.reason, failed.message);
            return (State::Failed(why), at(failed));
        }
        let when = condition("Suspended").map_or_else(|| self.created(), at);
        let state = match self.metadata.annotations.get(annotations::STOPPED_BY) {
            Some(by) if self.spec.suspend => State::Stopped(by.clone()),
            None if self.spec.suspend => State::Suspended,
            _ => State::Open,
        };
        (state, when)
    }

    fn created(&self) -> Time {
        let at = self.metadata.creation_timestamp.as_deref().and_then(parse_time);
        Time(at.unwrap_or(0))
    }

    /// Returns the identity of its pods; `None` for Jobs without a job id.
    fn identity(&self, gpu_resources: &[String]) -> Option<Identity> {
        let mut pod = self.spec.template.clone();
        pod.metadata.namespace.clone_from(&self.metadata.namespace);
        pod.metadata.name.clone_from(&self.metadata.name);
        let identity = Identity::of(&pod, gpu_resources).ok()?;
        identity.job_id.is_some().then_some(identity)
    }
}

/// Returns the jobs that have ended, by id.
pub fn finished_jobs(jobs: &[SubmittedJob], gpu_resources: &[String]) -> Vec<FinishedJob> {
    let mut finished = BTreeMap::new();
    let mut gangs: BTreeMap<JobId, Vec<(&SubmittedJob, Identity)>> = BTreeMap::new();
    for job in jobs {
        let Some(identity) = job.identity(gpu_resources) else {
            continue;
        };
        let Some(id) = identity.job_id else { continue };
        let named = job
            .spec
            .template
            .metadata
            .annotations
            .contains_key(annotations::GANG);
        match identity.size == SizeSource::Known(GangSize::ONE) && !named {
            true => finished.extend(array_jobs(job, &identity, id).map(|p| (p.id, p))),
            false => gangs.entry(id).or_default().push((job, identity)),
        }
    }
    for (id, roles) in gangs {
        finished.extend(gang_job(id, &roles).map(|p| (id, p)));
    }
    finished.into_values().collect()
}

fn request(identity: &Identity, gpus: u32) -> JobRequest {
    JobRequest {
        name: identity.job_name.clone().unwrap_or_default(),
        tenant: identity.virtual_cluster.clone().unwrap_or_default(),
        priority: identity.priority,
        gpu_type: identity.gpu_type.clone(),
        gpus: gpus.max(1),
        ..JobRequest::default()
    }
}

/// Returns the job of all Kubernetes Jobs with one id, if each of them has ended or is suspended.
fn gang_job(id: JobId, roles: &[(&SubmittedJob, Identity)]) -> Option<FinishedJob> {
    let (first, identity) = roles.first()?;
    let states: Vec<(State, Time)> = roles.iter().map(|(job, _)| job.state()).collect();
    let mut end = None;
    for (state, _) in &states {
        end = match (state, end) {
            (State::Open, _) => return None,
            (State::Failed(why), _) => Some(failed(why)),
            (State::Stopped(by), None | Some(End::Completed)) => Some(End::Cancelled(Actor::user(by))),
            (State::Complete, None) => Some(End::Completed),
            (_, end) => end,
        };
    }
    let gpus = roles
        .iter()
        .map(|(job, i)| job.spec.completions * i.resources.gpus)
        .sum();
    Some(FinishedJob {
        id,
        user: identity.user.clone(),
        request: request(identity, gpus),
        submitted: first.created(),
        started: None,
        ended: states.iter().map(|(_, at)| *at).max()?,
        end: end?,
    })
}

/// Returns the ended jobs of an array: each pod of the Job is a job, with an id by its index.
fn array_jobs<'a>(
    job: &'a SubmittedJob,
    identity: &'a Identity,
    first: JobId,
) -> impl Iterator<Item = FinishedJob> + 'a {
    let (state, at) = job.state();
    let (completed, failures) = (
        indexes(&job.status.completed_indexes),
        indexes(&job.status.failed_indexes),
    );
    (0..job.spec.completions).filter_map(move |index| {
        let end = match &state {
            _ if completed.contains(&index) => End::Completed,
            State::Failed(why) if failures.contains(&index) => failed(why),
            _ if failures.contains(&index) => failed("its pod failed"),
            State::Stopped(by) => End::Cancelled(Actor::user(by)),
            State::Complete | State::Failed(_) => {
                End::Cancelled(Actor::kubernetes("the result was decided by other pods"))
            }
            State::Suspended | State::Open => return None,
        };
        let part = ArrayPart {
            array: first,
            index,
            at_most: None,
        };
        Some(FinishedJob {
            id: first + JobId::from(index),
            user: identity.user.clone(),
            request: JobRequest {
                array: (job.spec.completions > 1).then_some(part),
                ..request(identity, identity.resources.gpus)
            },
            submitted: job.created(),
            started: None,
            ended: at,
            end,
        })
    })
}

fn failed(why: &str) -> End {
    End::Failed {
        exit_code: 1,
        signal: 0,
        reason: why.to_owned(),
    }
}

/// Parses indexes as Kubernetes writes them: `1,3-5,7`.
fn indexes(text: &str) -> BTreeSet<u32> {
    /// No Job has more pods; a larger number must not allocate memory.
    const MAX_INDEX: u32 = 100_000;
    let range = |one: &str| {
        let (first, last) = one.split_once('-').unwrap_or((one, one));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < MAX_INDEX).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, number: u32, gang: Option<u32>, completions: u32, more: &Value) -> SubmittedJob {
        let mut annotations = json!({"dovetail.io/number": number.to_string(), "dovetail.io/user": "alice",
            "dovetail.io/job-name": "train", "dovetail.io/virtual-cluster": "vision"});
        match gang {
            Some(size) => {
                annotations["dovetail.io/gang"] = json!("train-x");
                annotations["dovetail.io/gang-size"] = json!(size.to_string());
            }
            None => annotations["dovetail.io/gang-size"] = json!("1"),
        }
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true}]);
        let mut job = json!({"metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-11-17T08:00:00Z"},
            "spec": {"completions": completions, "template": {"metadata": {"annotations": annotations, "ownerReferences": owner},
                "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}}});
        for (key, value) in more.as_object().unwrap() {
            let at = job
                .pointer_mut(&format!("/{key}"))
                .map(std::mem::take)
                .unwrap_or_default();
            let mut both = at.as_object().cloned().unwrap_or_default();
            both.extend(value.as_object().cloned().unwrap());
            job[key] = Value::Object(both);
        }
        serde_json::from_value(job).unwrap()
    }

    fn condition(kind: &str, at: &str) -> Value {
        json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": format!("2026-11-17T{at}:00Z")}]}})
    }

    fn finished(jobs: &[SubmittedJob]) -> Vec<(JobId, u32, &'static str, i64)> {
        let all = finished_jobs(jobs, &["nvidia.com/gpu".to_owned()]);
        let short = |p: &FinishedJob| {
            assert_eq!(
                (
                    p.user.as_str(),
                    p.request.name.as_str(),
                    p.request.tenant.as_str()
                ),
                ("alice", "train", "vision")
            );
            (
                p.id,
                p.request.gpus,
                p.end.word(),
                p.ended.since(p.submitted).0 / 60_000_000,
            )
        };
        all.iter().map(short).collect()
    }

    #[test]
    fn a_gang_has_ended_when_all_its_jobs_have() {
        let done = condition("Complete", "09:00");
        let both = [
            job("a", 7, Some(5), 1, &done),
            job("b", 7, Some(5), 4, &condition("Complete", "09:30")),
        ];
        assert_eq!(finished(&both), [(7, 10, "completed", 90)]);
        assert_eq!(
            finished(&[
                job("a", 7, Some(5), 1, &done),
                job("b", 7, Some(5), 4, &json!({}))
            ]),
            []
        );
        // One role decides the result, and the other is suspended.
        let rest = job(
            "b",
            7,
            Some(5),
            4,
            &json!({"spec": {"suspend": true}, "status": {}}),
        );
        assert_eq!(
            finished(&[job("a", 7, Some(5), 1, &done), rest.clone()]),
            [(7, 10, "completed", 60)]
        );
        let bad = job("a", 7, Some(5), 1, &condition("Failed", "08:10"));
        assert_eq!(finished(&[bad, rest.clone()]), [(7, 10, "failed", 10)]);
        // A suspended Job has not ended; a stopped one has.
        assert_eq!(finished(&[rest]), []);
        let mut stopped = condition("Suspended", "08:20");
        stopped["spec"] = json!({"suspend": true});
        stopped["metadata"] = json!({"annotations": {"dovetail.io/stopped-by": "bob"}});
        assert_eq!(
            finished(&[job("a", 7, Some(1), 1, &stopped)]),
            [(7, 2, "cancelled", 20)]
        );
    }

    #[test]
    fn each_pod_of_an_array_is_one_job() {
        let mut some = json!({"status": {"completedIndexes": "0,2-3", "failedIndexes": "5"}});
        let open = job("a", 20, None, 6, &some);
        let summary = |all: Vec<(JobId, u32, &str, i64)>| {
            all.iter().map(|p| format!("{} {}", p.0, p.2)).collect::<Vec<_>>()
        };
        assert_eq!(
            summary(finished(&[open])),
            ["20 completed", "22 completed", "23 completed", "25 failed"]
        );
        some["status"]["conditions"] = condition("Failed", "09:00")["status"]["conditions"].clone();
        let ended = job("a", 20, None, 6, &some);
        let expected = [
            "20 completed",
            "21 cancelled",
            "22 completed",
            "23 completed",
            "24 cancelled",
            "25 failed",
        ];
        assert_eq!(summary(finished(&[ended])), expected);
    }

    #[test]
    fn index_ranges_are_parsed() {
        assert_eq!(indexes(""), BTreeSet::new());
        assert_eq!(indexes("1,3-5"), BTreeSet::from([1, 3, 4, 5]));
        assert_eq!(indexes("0-4000000000,x,2"), BTreeSet::from([2]));
    }
}
