//! Jobs that were sent and are over, as their objects tell it: what a scheduler that starts can know of them.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::state::End;
use dovetail_cluster::{Actor, ArrayPart, JobId, JobRequest};
use dovetail_kubeapi::{Condition, Meta, Pod, parse_time};
use dovetail_model::Time;
use serde::Deserialize;

use crate::identity::{Identity, Size};
use crate::words;

/// A `batch/v1` Job, as far as it matters here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SentJob {
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

/// A job that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct PastJob {
    /// Its number.
    pub number: JobId,
    /// Who sent it.
    pub user: String,
    /// What was asked for, as far as it is still known.
    pub request: JobRequest,
    /// When it came.
    pub submitted: Time,
    /// When it started, where that is known.
    pub started: Option<Time>,
    /// When it ended.
    pub ended: Time,
    /// How.
    pub end: End,
}

/// How a Job of Kubernetes stands.
#[derive(Debug, Clone, PartialEq)]
enum Stand {
    Complete,
    Failed(String),
    Stopped(String),
    /// Without a word why.
    Suspended,
    Open,
}

impl SentJob {
    fn stand(&self) -> (Stand, Time) {
        let said = |kind: &str| {
            let mut all = self.status.conditions.iter();
            all.find(|c| c.kind == kind && c.status == "True")
        };
        let at = |c: &Condition| {
            let at = c.last_transition_time.as_deref().and_then(parse_time);
            Time(at.unwrap_or_else(|| self.created().0))
        };
        // The second of each is said first, while pods are still ended.
        if let Some(done) = said("Complete").or_else(|| said("SuccessCriteriaMet")) {
            return (Stand::Complete, at(done));
        }
        if let Some(failed) = said("Failed").or_else(|| said("FailureTarget")) {
            let why = format!("{}: {}", failed.reason, failed.message);
            return (Stand::Failed(why), at(failed));
        }
        let when = said("Suspended").map_or_else(|| self.created(), at);
        let stand = match self.metadata.annotations.get(words::STOPPED_BY) {
            Some(by) if self.spec.suspend => Stand::Stopped(by.clone()),
            None if self.spec.suspend => Stand::Suspended,
            _ => Stand::Open,
        };
        (stand, when)
    }

    fn created(&self) -> Time {
        let at = self.metadata.creation_timestamp.as_deref().and_then(parse_time);
        Time(at.unwrap_or(0))
    }

    /// What its pods say about themselves; none for Jobs that were not sent under a number.
    fn identity(&self, gpu_resources: &[String]) -> Option<Identity> {
        let mut pod = self.spec.template.clone();
        pod.metadata.namespace.clone_from(&self.metadata.namespace);
        pod.metadata.name.clone_from(&self.metadata.name);
        let identity = Identity::of(&pod, gpu_resources).ok()?;
        identity.number.is_some().then_some(identity)
    }
}

/// The jobs that are over, by number.
pub fn past_jobs(jobs: &[SentJob], gpu_resources: &[String]) -> Vec<PastJob> {
    let mut past = BTreeMap::new();
    let mut gangs: BTreeMap<JobId, Vec<(&SentJob, Identity)>> = BTreeMap::new();
    for job in jobs {
        let Some(identity) = job.identity(gpu_resources) else {
            continue;
        };
        let Some(number) = identity.number else { continue };
        let named = job.spec.template.metadata.annotations.contains_key(words::GANG);
        match identity.size == Size::Known(1, 1) && !named {
            true => past.extend(each_alone(job, &identity, number).map(|p| (p.number, p))),
            false => gangs.entry(number).or_default().push((job, identity)),
        }
    }
    for (number, roles) in gangs {
        past.extend(gang(number, &roles).map(|p| (number, p)));
    }
    past.into_values().collect()
}

fn request(identity: &Identity, gpus: u32) -> JobRequest {
    JobRequest {
        name: identity.job_name.clone().unwrap_or_default(),
        command: vec!["pods".to_owned()],
        tenant: identity.virtual_cluster.clone().unwrap_or_default(),
        priority: identity.priority,
        gpu_type: identity.gpu_type.clone(),
        gpus: gpus.max(1),
        ..JobRequest::default()
    }
}

/// All Jobs of one number are one job. It is over when each of them is, or is not wanted any more.
fn gang(number: JobId, roles: &[(&SentJob, Identity)]) -> Option<PastJob> {
    let (first, identity) = roles.first()?;
    let stands: Vec<(Stand, Time)> = roles.iter().map(|(job, _)| job.stand()).collect();
    let mut end = None;
    for (stand, _) in &stands {
        end = match (stand, end) {
            (Stand::Open, _) => return None,
            (Stand::Failed(why), _) => Some(failed(why)),
            (Stand::Stopped(by), None | Some(End::Completed)) => Some(End::Cancelled(Actor::user(by))),
            (Stand::Complete, None) => Some(End::Completed),
            (_, end) => end,
        };
    }
    let gpus = roles
        .iter()
        .map(|(job, i)| job.spec.completions * i.needs.gpus)
        .sum();
    Some(PastJob {
        number,
        user: identity.user.clone(),
        request: request(identity, gpus),
        submitted: first.created(),
        started: None,
        ended: stands.iter().map(|(_, at)| *at).max()?,
        end: end?,
    })
}

/// Each pod of the Job is a job, with a number by its index.
fn each_alone<'a>(
    job: &'a SentJob,
    identity: &'a Identity,
    first: JobId,
) -> impl Iterator<Item = PastJob> + 'a {
    let (stand, at) = job.stand();
    let (done, failures) = (
        indexes(&job.status.completed_indexes),
        indexes(&job.status.failed_indexes),
    );
    (0..job.spec.completions).filter_map(move |index| {
        let end = match &stand {
            _ if done.contains(&index) => End::Completed,
            Stand::Failed(why) if failures.contains(&index) => failed(why),
            _ if failures.contains(&index) => failed("its pod has failed"),
            Stand::Stopped(by) => End::Cancelled(Actor::user(by)),
            Stand::Complete | Stand::Failed(_) => End::Cancelled(Actor::kubernetes("others have decided it")),
            Stand::Suspended | Stand::Open => return None,
        };
        let part = ArrayPart {
            array: first,
            index,
            at_most: None,
        };
        Some(PastJob {
            number: first + JobId::from(index),
            user: identity.user.clone(),
            request: JobRequest {
                array: (job.spec.completions > 1).then_some(part),
                ..request(identity, identity.needs.gpus)
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

/// Indexes as Kubernetes writes them: `1,3-5,7`.
fn indexes(text: &str) -> BTreeSet<u32> {
    /// No Job has more pods, and a text from elsewhere must not make room for itself.
    const MOST: u32 = 100_000;
    let range = |one: &str| {
        let (first, last) = one.split_once('-').unwrap_or((one, one));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < MOST).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, number: u32, gang: Option<u32>, completions: u32, more: &Value) -> SentJob {
        let mut said = json!({"dovetail.io/number": number.to_string(), "dovetail.io/user": "alice",
            "dovetail.io/job-name": "train", "dovetail.io/virtual-cluster": "vision"});
        match gang {
            Some(size) => {
                said["dovetail.io/gang"] = json!("train-x");
                said["dovetail.io/gang-size"] = json!(size.to_string());
            }
            None => said["dovetail.io/gang-size"] = json!("1"),
        }
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true}]);
        let mut job = json!({"metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-11-17T08:00:00Z"},
            "spec": {"completions": completions, "template": {"metadata": {"annotations": said, "ownerReferences": owner},
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

    fn past(jobs: &[SentJob]) -> Vec<(JobId, u32, &'static str, i64)> {
        let all = past_jobs(jobs, &["nvidia.com/gpu".to_owned()]);
        let short = |p: &PastJob| {
            assert_eq!(
                (
                    p.user.as_str(),
                    p.request.name.as_str(),
                    p.request.tenant.as_str()
                ),
                ("alice", "train", "vision")
            );
            (
                p.number,
                p.request.gpus,
                p.end.word(),
                p.ended.since(p.submitted).0 / 60_000_000,
            )
        };
        all.iter().map(short).collect()
    }

    #[test]
    fn a_gang_is_over_when_all_its_jobs_are() {
        let done = condition("Complete", "09:00");
        let both = [
            job("a", 7, Some(5), 1, &done),
            job("b", 7, Some(5), 4, &condition("Complete", "09:30")),
        ];
        assert_eq!(past(&both), [(7, 10, "completed", 90)]);
        assert_eq!(
            past(&[
                job("a", 7, Some(5), 1, &done),
                job("b", 7, Some(5), 4, &json!({}))
            ]),
            []
        );
        // One role has decided it, and the other is suspended.
        let rest = job(
            "b",
            7,
            Some(5),
            4,
            &json!({"spec": {"suspend": true}, "status": {}}),
        );
        assert_eq!(
            past(&[job("a", 7, Some(5), 1, &done), rest.clone()]),
            [(7, 10, "completed", 60)]
        );
        let bad = job("a", 7, Some(5), 1, &condition("Failed", "08:10"));
        assert_eq!(past(&[bad, rest.clone()]), [(7, 10, "failed", 10)]);
        // Somebody has suspended it, which is not the end; or has stopped it, which is.
        assert_eq!(past(&[rest]), []);
        let mut stopped = condition("Suspended", "08:20");
        stopped["spec"] = json!({"suspend": true});
        stopped["metadata"] = json!({"annotations": {"dovetail.io/stopped-by": "bob"}});
        assert_eq!(
            past(&[job("a", 7, Some(1), 1, &stopped)]),
            [(7, 2, "cancelled", 20)]
        );
    }

    #[test]
    fn each_pod_of_an_array_is_a_job() {
        let mut some = json!({"status": {"completedIndexes": "0,2-3", "failedIndexes": "5"}});
        let open = job("a", 20, None, 6, &some);
        let numbers = |all: Vec<(JobId, u32, &str, i64)>| {
            all.iter().map(|p| format!("{} {}", p.0, p.2)).collect::<Vec<_>>()
        };
        assert_eq!(
            numbers(past(&[open])),
            ["20 completed", "22 completed", "23 completed", "25 failed"]
        );
        some["status"]["conditions"] = condition("Failed", "09:00")["status"]["conditions"].clone();
        let over = job("a", 20, None, 6, &some);
        let expected = [
            "20 completed",
            "21 cancelled",
            "22 completed",
            "23 completed",
            "24 cancelled",
            "25 failed",
        ];
        assert_eq!(numbers(past(&[over])), expected);
    }

    #[test]
    fn indexes_are_read_as_they_are_written() {
        assert_eq!(indexes(""), BTreeSet::new());
        assert_eq!(indexes("1,3-5"), BTreeSet::from([1, 3, 4, 5]));
        assert_eq!(indexes("0-4000000000,x,2"), BTreeSet::from([2]));
    }
}
