//! What a new leader has to know about the past of a gang, as it is written on objects.
//!
//! A bound pod has the start of its attempt and the service before it ([`BoundHistory`]), a waiting one its place in the queue
//! ([`QueuedAs`]). Pods of a stopped gang are deleted, and their controller creates others, so its service is also in an object of
//! our own, the [`GangHistory`], which is written before the first pod is evicted.

use dovetail_cluster::JobId;
use dovetail_cluster::state::{EarlierService, JobRecord, Progress};
use dovetail_kubeapi::{Meta, Object, Owner};
use dovetail_model::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::crds::{API, API_VERSION};
use crate::identity::{GangKey, GangSize};
use crate::manifest::object_name;

/// Service that a job has received. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Number of the last attempt.
    pub attempts: u64,
    /// Time for which it held GPUs.
    pub held_us: i64,
    /// That time, multiplied by the number of GPUs.
    pub gpu_time_us: i64,
    /// How often it was preempted.
    pub preemptions: u32,
    /// When it first got GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_start: Option<i64>,
    /// Number of finished steps.
    pub step: u64,
    /// Number of steps in total; zero if unknown.
    pub total_steps: u64,
    /// Duration of one step.
    pub step_us: i64,
    /// Last step with a complete checkpoint.
    pub checkpoint: u64,
}

impl From<EarlierService> for Service {
    fn from(service: EarlierService) -> Self {
        Self {
            attempts: service.attempts,
            held_us: service.held.0,
            gpu_time_us: service.gpu_time,
            preemptions: service.preemptions,
            first_start: service.first_start.map(|at| at.0),
            step: service.progress.step,
            total_steps: service.progress.total,
            step_us: service.progress.step_time.0,
            checkpoint: service.progress.checkpoint,
        }
    }
}

impl From<Service> for EarlierService {
    /// What another program wrote is limited to what is possible.
    fn from(service: Service) -> Self {
        Self {
            attempts: service.attempts.min(u64::from(u32::MAX)),
            held: Time(service.held_us.clamp(0, MAX_US)),
            gpu_time: service.gpu_time_us.max(0),
            preemptions: service.preemptions,
            first_start: service.first_start.map(|at| Time(at.clamp(0, MAX_US))),
            progress: Progress {
                step: service.step,
                total: service.total_steps,
                step_time: Time(service.step_us.clamp(0, MAX_US)),
                data_time: Time::ZERO,
                checkpoint: service.checkpoint,
            },
        }
    }
}

/// Latest time, in microseconds since 1970: sums of two times are no overflow.
const MAX_US: i64 = i64::MAX / 4;

/// What is written on a pod when it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundHistory {
    /// When the job was submitted.
    pub submitted: i64,
    /// When the attempt of the pod got its GPUs.
    pub since: i64,
    /// What the job received before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Service>,
}

impl BoundHistory {
    /// Returns the history for the pods of the last attempt of a job.
    pub(crate) fn of(job: &JobRecord) -> Option<Self> {
        let before = job.service_before_last_attempt();
        Some(Self {
            submitted: job.submitted.0,
            since: job.attempt()?.since.0,
            before: (before.attempts > 0).then(|| before.into()),
        })
    }

    /// Parses the annotation of a pod; `None` if another program wrote it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let history: Self = serde_json::from_str(text).ok()?;
        let is_time = |at: i64| (0..=MAX_US).contains(&at);
        (is_time(history.submitted) && is_time(history.since)).then_some(history)
    }
}

/// What is written on a waiting pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedAs {
    /// Its job. Ids of more than 32 bits are those of another program.
    pub job: u32,
    /// When the job was submitted.
    pub submitted: i64,
    /// When it was queued last.
    pub since: i64,
    /// Number of pods of the gang.
    pub pods: u32,
    /// Number of pods with which it starts.
    pub min_pods: u32,
}

impl QueuedAs {
    /// Parses the annotation of a pod; `None` if another program wrote it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let queued: Self = serde_json::from_str(text).ok()?;
        let is_time = |at: i64| (0..=MAX_US).contains(&at);
        (is_time(queued.submitted) && is_time(queued.since) && queued.size().is_some()).then_some(queued)
    }

    /// Returns the size of the gang.
    pub(crate) fn size(&self) -> Option<GangSize> {
        GangSize::new(self.pods, Some(self.min_pods)).ok()
    }
}

/// The service of a gang that was stopped and continues when its pods are recreated. It is deleted when the job has ended, or
/// with the controllers of the pods.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GangHistory {
    /// Metadata; the owners are the controllers of the pods.
    pub metadata: Meta,
    /// The service.
    pub spec: GangHistorySpec,
}

/// The service of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GangHistorySpec {
    /// Name of the gang.
    pub gang: String,
    /// Tells the gang from an earlier one of the same name.
    #[serde(default)]
    pub gang_uid: String,
    /// Its job.
    pub job: u32,
    /// When the job was submitted.
    pub submitted: i64,
    /// Number of pods of the gang.
    pub pods: u32,
    /// Number of pods with which it starts.
    pub min_pods: u32,
    /// What the job has received.
    #[serde(default)]
    pub service: Service,
}

impl Object for GangHistory {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl GangHistory {
    /// Returns the history of a gang by now; `None` for a job whose id does not fit.
    pub(crate) fn of(
        key: &GangKey,
        size: GangSize,
        owners: Vec<Owner>,
        job: &JobRecord,
        now: Time,
    ) -> Option<Self> {
        let id: JobId = job.id;
        Some(Self {
            metadata: Meta {
                name: history_name(key),
                namespace: key.namespace.clone(),
                owner_references: owners,
                ..Meta::default()
            },
            spec: GangHistorySpec {
                gang: key.name.clone(),
                gang_uid: key.uid.clone(),
                job: u32::try_from(id).ok()?,
                submitted: job.submitted.0,
                pods: size.pods,
                min_pods: size.min_pods,
                service: job.service(now).into(),
            },
        })
    }

    /// Returns the gang.
    pub fn key(&self) -> GangKey {
        GangKey {
            namespace: self.metadata.namespace.clone(),
            name: self.spec.gang.clone(),
            uid: self.spec.gang_uid.clone(),
        }
    }

    /// Returns the path of the object at the API server.
    pub fn path(&self) -> String {
        history_path(&self.key())
    }

    /// Returns the object as it is written.
    pub(crate) fn object(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "GangHistory",
            "metadata": {"name": self.metadata.name, "namespace": self.metadata.namespace,
                "ownerReferences": self.metadata.owner_references},
            "spec": self.spec})
    }
}

/// Returns the path of the history of a gang.
pub(crate) fn history_path(key: &GangKey) -> String {
    format!(
        "{API}/namespaces/{}/ganghistories/{}",
        key.namespace,
        history_name(key)
    )
}

/// Returns a name that is the same in every process. Names of gangs may have letters that names of objects must not have.
fn history_name(key: &GangKey) -> String {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in key.name.bytes().chain([0]).chain(key.uid.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    format!("{}-{hash:016x}", object_name(&key.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gangs_have_histories_of_their_own() {
        let key = |name: &str, uid: &str| GangKey {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let names = [("a", ""), ("a", "u"), ("job/default", ""), ("A", "")];
        let mut paths: Vec<String> = names.iter().map(|(n, u)| history_path(&key(n, u))).collect();
        assert!(
            paths[2].starts_with("/apis/dovetail.io/v1alpha1/namespaces/team/ganghistories/job-default-")
        );
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), names.len());
    }

    #[test]
    fn what_another_program_wrote_is_ignored_or_limited() {
        assert_eq!(BoundHistory::parse("{}"), None);
        assert_eq!(BoundHistory::parse(r#"{"submitted":-1,"since":0}"#), None);
        assert_eq!(
            QueuedAs::parse(r#"{"job":1,"submitted":0,"since":0,"pods":2,"minPods":3}"#),
            None
        );
        let service = Service {
            attempts: u64::MAX,
            held_us: i64::MAX,
            gpu_time_us: -5,
            ..Service::default()
        };
        let service = EarlierService::from(service);
        assert_eq!(service.attempts, u64::from(u32::MAX));
        assert_eq!((service.held, service.gpu_time), (Time(MAX_US), 0));
    }
}
