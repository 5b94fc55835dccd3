//! What a pod states about its job: its gang, and what the scheduler has to know of it.

mod behaviour;
mod gang;
mod size;

use dovetail_cluster::{Behaviour, JobId};
use dovetail_hived::{AnnotationError, PodSpec};
use dovetail_kubeapi::{Owner, Pod, parse_time};

use crate::annotations;
use crate::pod_resources::{PodResources, PodResourcesError};

pub use gang::GangKey;
pub use size::{GangSize, SizeError, SizeLookup, SizeSource, WorkloadKind};

/// When a gang ends before all its pods have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionRule {
    /// Number of succeeded pods of the role with which the gang succeeds.
    pub min_succeeded: Option<u32>,
    /// Number of failed pods of the role with which the gang fails.
    pub min_failed: Option<u32>,
    /// Whether the pod is not recreated when it fails.
    pub is_last_try: bool,
}

/// What a pod states about its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Gang of the pod.
    pub key: GangKey,
    /// Number of pods of the gang, or where to find it.
    pub size: SizeSource,
    /// Number of pods with which the gang starts, if annotated.
    pub min_pods: Option<u32>,
    /// Resources that the pod requests.
    pub resources: PodResources,
    /// Virtual cluster of the job, if annotated.
    pub virtual_cluster: Option<String>,
    /// Priority of the job.
    pub priority: i32,
    /// GPU type that the job requires.
    pub gpu_type: Option<String>,
    /// How the job behaves when it runs.
    pub behaviour: Behaviour,
    /// User who submitted the job.
    pub user: String,
    /// Seconds between the warning and the eviction of the pod.
    pub checkpoint_s: u32,
    /// Index of the pod among the pods of its controller.
    pub index: Option<u32>,
    /// Creation time, in microseconds since 1970.
    pub created: i64,
    /// Object that recreates the pod when it is deleted.
    pub controller: Option<Owner>,
    /// Whether the request is in HiveD's annotation.
    pub hived: bool,
    /// Name that the user gave the job.
    pub job_name: Option<String>,
    /// Id that the job got when it was submitted.
    pub job_id: Option<JobId>,
    /// When the gang ends before all its pods have ended.
    pub completion: CompletionRule,
}

/// Why the annotations of a pod cannot be used. The message is written on the pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// An annotation must be a whole number.
    #[error("annotation {annotation}: invalid value {value:?}: expected a whole number")]
    Number {
        /// Name of the annotation.
        annotation: &'static str,
        /// Its value.
        value: String,
    },
    /// An annotation does not have the form it must have.
    #[error("annotation {annotation}: invalid value {value:?}: expected {expected}")]
    Value {
        /// Name of the annotation.
        annotation: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// An annotation must not be zero.
    #[error("annotation {0}: must be at least 1")]
    Zero(&'static str),
    /// A gang is named without its size.
    #[error(
        "annotation {size} is missing: {gang} names gang {0:?}, and the number of its pods must be given too",
        size = annotations::GANG_SIZE,
        gang = annotations::GANG
    )]
    GangSizeMissing(String),
    /// The size of the gang cannot be used.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The requested resources cannot be read.
    #[error(transparent)]
    Resources(#[from] PodResourcesError),
    /// HiveD's annotation cannot be read.
    #[error(transparent)]
    Hived(#[from] AnnotationError),
    /// HiveD's annotation pins the pod to a cell.
    #[error(
        "annotation {}: pinnedCellId is not supported by the scheduler; use `dovetail kube extender`",
        dovetail_hived::SPEC
    )]
    PinnedCell,
}

/// Annotations of a pod, and its labels where an annotation is missing.
struct Values<'a>(&'a Pod);

impl<'a> Values<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let meta = &self.0.metadata;
        let value = meta.annotations.get(name).or_else(|| meta.labels.get(name));
        value.map(String::as_str).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &'static str) -> Result<Option<u32>, IdentityError> {
        let parse = |text: &str| text.parse().map_err(|_| invalid_number(name, text));
        self.get(name).map(parse).transpose()
    }

    /// Reads a value with a form of its own; `expected` describes it.
    fn parsed<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, IdentityError> {
        let invalid = |text: &str| IdentityError::Value {
            annotation: name,
            value: text.chars().take(200).collect(),
            expected,
        };
        let read = |text: &str| parse(text).ok_or_else(|| invalid(text));
        self.get(name).map(read).transpose()
    }
}

fn invalid_number(annotation: &'static str, value: &str) -> IdentityError {
    IdentityError::Number {
        annotation,
        value: value.to_owned(),
    }
}

impl Identity {
    /// Reads the identity of a pod; `gpu_resources` are the names of resources that are GPUs.
    ///
    /// # Errors
    /// If an annotation or a resource cannot be read.
    pub fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, IdentityError> {
        let (meta, values) = (&pod.metadata, Values(pod));
        let priority = match values.get(annotations::PRIORITY) {
            None => pod.spec.priority.unwrap_or(0),
            Some(text) => text
                .parse()
                .map_err(|_| invalid_number(annotations::PRIORITY, text))?,
        };
        let selected_type = || {
            let mut labels = annotations::GPU_TYPE_LABELS.iter();
            labels.find_map(|label| pod.spec.node_selector.get(*label).cloned())
        };
        let (key, size) = gang::gang_of(pod, &values)?;
        let created = meta.creation_timestamp.as_deref().and_then(parse_time);
        let mut identity = Self {
            key,
            size,
            min_pods: values.number(annotations::GANG_MIN)?,
            resources: PodResources::of(pod, gpu_resources)?,
            virtual_cluster: values.get(annotations::VIRTUAL_CLUSTER).map(str::to_owned),
            priority,
            gpu_type: values
                .get(annotations::GPU_TYPE)
                .map(str::to_owned)
                .or_else(selected_type),
            behaviour: behaviour::behaviour(&values)?,
            user: values
                .get(annotations::USER)
                .unwrap_or(&meta.namespace)
                .to_owned(),
            checkpoint_s: values
                .number(annotations::CHECKPOINT_SECONDS)?
                .unwrap_or(0)
                .min(3600),
            index: index(pod),
            created: created.unwrap_or(0),
            controller: meta.controller().cloned(),
            hived: false,
            job_name: values.get(annotations::JOB_NAME).map(str::to_owned),
            job_id: job_id(pod, &values)?,
            completion: completion(pod, &values)?,
        };
        if meta.annotations.contains_key(dovetail_hived::SPEC) {
            identity.apply_hived(pod)?;
        }
        Ok(identity)
    }

    /// Replaces the request by the one in HiveD's annotation.
    fn apply_hived(&mut self, pod: &Pod) -> Result<(), IdentityError> {
        let spec = PodSpec::from_annotations(&pod.metadata.annotations)?;
        if !spec.pinned_cell_id.is_empty() {
            return Err(IdentityError::PinnedCell);
        }
        (self.hived, self.priority) = (true, spec.priority);
        self.virtual_cluster = Some(spec.virtual_cluster);
        self.resources.gpus = spec.leaf_cell_number;
        self.gpu_type = Some(spec.leaf_cell_type).filter(|kind| !kind.is_empty());
        match spec.affinity_group {
            None => {
                self.key.name.clone_from(&pod.metadata.name);
                self.size = SizeSource::Known(GangSize::ONE);
            }
            Some(group) => {
                let pods: u32 = group.members.iter().map(|m| m.pod_number).sum();
                self.key = GangKey {
                    namespace: self.key.namespace.clone(),
                    name: group.name,
                    uid: String::new(),
                };
                self.size = SizeSource::Known(GangSize { pods, min_pods: pods });
            }
        }
        Ok(())
    }
}

/// Reads the id that the job of a pod got when it was submitted. Pods that start alone have one id each, by their index.
fn job_id(pod: &Pod, values: &Values<'_>) -> Result<Option<JobId>, IdentityError> {
    let Some(first) = values.number(annotations::NUMBER)? else {
        return Ok(None);
    };
    let starts_alone = values.number(annotations::GANG_SIZE)? == Some(1)
        && !pod.metadata.annotations.contains_key(annotations::GANG);
    let offset = index(pod).filter(|_| starts_alone).unwrap_or(0);
    Ok(Some(JobId::from(first) + JobId::from(offset)))
}

fn completion(pod: &Pod, values: &Values<'_>) -> Result<CompletionRule, IdentityError> {
    let unless_never = |name: &'static str| match values.get(name) {
        Some("never") => Ok(None),
        _ => values.number(name),
    };
    // The Job controller writes the number of earlier failures of the index.
    let failures = pod
        .metadata
        .annotations
        .get("batch.kubernetes.io/job-index-failure-count");
    let failures = failures.and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(CompletionRule {
        min_succeeded: unless_never(annotations::MIN_SUCCEEDED)?,
        min_failed: unless_never(annotations::MIN_FAILED)?,
        is_last_try: values.number(annotations::RETRIES)?.unwrap_or(0) <= failures,
    })
}

/// Returns the index of a pod among the pods of its controller.
pub(crate) fn index(pod: &Pod) -> Option<u32> {
    let labels = &pod.metadata.labels;
    let names = [
        "batch.kubernetes.io/job-completion-index",
        "training.kubeflow.org/replica-index",
        "apps.kubernetes.io/pod-index",
    ];
    let value = names
        .iter()
        .find_map(|name| labels.get(*name).or_else(|| pod.metadata.annotations.get(*name)));
    value.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn identity(pod: serde_json::Value) -> Result<Identity, IdentityError> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Identity::of(&pod, &["nvidia.com/gpu".to_owned()])
    }

    fn known(pods: u32, min_pods: u32) -> SizeSource {
        SizeSource::Known(GangSize { pods, min_pods })
    }

    #[test]
    fn annotations_name_a_gang() {
        let pod = json!({"metadata": {"name": "a", "namespace": "team", "annotations": {
            "dovetail.io/gang": "g", "dovetail.io/gang-size": "4", "dovetail.io/gang-min": "2",
            "dovetail.io/virtual-cluster": "vc1", "dovetail.io/priority": "-1"}}});
        let found = identity(pod).unwrap();
        assert_eq!(
            (found.key.to_string().as_str(), found.size.clone()),
            ("team/g", known(4, 2))
        );
        assert_eq!(
            (found.priority, found.virtual_cluster.as_deref()),
            (-1, Some("vc1"))
        );
    }

    #[test]
    fn an_invalid_annotation_is_reported_by_name() {
        let with = |annotations: serde_json::Value| {
            identity(json!({"metadata": {"name": "a", "annotations": annotations}}))
                .unwrap_err()
                .to_string()
        };
        assert!(with(json!({"dovetail.io/gang": "g"})).contains("dovetail.io/gang-size is missing"));
        assert!(
            with(json!({"dovetail.io/gang": "g", "dovetail.io/gang-size": "x"}))
                .contains("invalid value \"x\": expected a whole number")
        );
        let small =
            json!({"dovetail.io/gang": "g", "dovetail.io/gang-size": "2", "dovetail.io/gang-min": "3"});
        assert!(with(small).contains("3 exceeds the number of pods of the gang (2)"));
        assert!(
            with(json!({"hivedscheduler.microsoft.com/pod-scheduling-spec": "priority: 1"}))
                .contains("virtualCluster")
        );
    }

    #[test]
    fn the_hived_annotation_names_a_gang() {
        let spec = "virtualCluster: vc1\npriority: 10\nleafCellNumber: 1\naffinityGroup:\n  name: job/default\n  members:\n  - podNumber: 2\n    leafCellNumber: 1\n";
        let pod = json!({"metadata": {"name": "a", "namespace": "n",
            "annotations": {"hivedscheduler.microsoft.com/pod-scheduling-spec": spec}}});
        let found = identity(pod).unwrap();
        assert_eq!(
            (found.key.name.as_str(), found.size),
            ("job/default", known(2, 2))
        );
        assert_eq!((found.resources.gpus, found.priority), (1, 10));
    }

    #[test]
    fn controllers_name_gangs() {
        let owned = |version: &str, kind: &str| {
            identity(
                json!({"metadata": {"name": "a-0", "namespace": "n", "ownerReferences": [
                {"apiVersion": version, "kind": kind, "name": "a", "uid": "u", "controller": true}]}}),
            )
            .unwrap()
            .size
        };
        let SizeSource::LookUp(job) = owned("batch/v1", "Job") else {
            panic!()
        };
        assert_eq!(
            (job.path.as_str(), job.kind),
            ("/apis/batch/v1/namespaces/n/jobs/a", WorkloadKind::Job)
        );
        let SizeSource::LookUp(torch) = owned("kubeflow.org/v1", "PyTorchJob") else {
            panic!()
        };
        assert_eq!(torch.path, "/apis/kubeflow.org/v1/namespaces/n/pytorchjobs/a");
        assert_eq!(owned("apps/v1", "ReplicaSet"), known(1, 1));
    }

    #[test]
    fn pods_that_start_alone_are_identified_by_their_index() {
        let pod = json!({"metadata": {"name": "a-1-x", "namespace": "n", "uid": "p",
            "annotations": {"dovetail.io/gang-size": "1", "dovetail.io/number": "7", "dovetail.io/job-name": "A"},
            "labels": {"batch.kubernetes.io/job-completion-index": "1"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]}});
        let found = identity(pod).unwrap();
        assert_eq!((found.key.name.as_str(), found.key.uid.as_str()), ("a-1", "u/1"));
        assert_eq!((found.size, found.job_id), (known(1, 1), Some(8)));
        assert_eq!(found.job_name.as_deref(), Some("A"));
    }

    #[test]
    fn completion_rules_are_read_from_annotations() {
        let with = |failures: &str| {
            identity(json!({"metadata": {"name": "a", "annotations": {
                "dovetail.io/gang": "g", "dovetail.io/gang-size": "2", "dovetail.io/number": "7",
                "dovetail.io/min-succeeded": "1", "dovetail.io/min-failed": "never", "dovetail.io/retries": "2",
                "batch.kubernetes.io/job-index-failure-count": failures}}}))
            .unwrap()
        };
        let found = with("1");
        assert_eq!(found.job_id, Some(7));
        let expected = CompletionRule {
            min_succeeded: Some(1),
            min_failed: None,
            is_last_try: false,
        };
        assert_eq!(found.completion, expected);
        assert!(with("2").completion.is_last_try);
    }
}
