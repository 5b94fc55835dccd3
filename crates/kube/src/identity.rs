//! Which gang a pod belongs to, and what it says about itself.

use dovetail_cluster::JobId;
use dovetail_hived::PodSpec;
use dovetail_kubeapi::{Owner, Pod, parse_time};

use crate::ask::Needs;
use crate::words;

/// The gang of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GangKey {
    /// The namespace.
    pub namespace: String,
    /// Its name there: that of an annotation, of a group, or of an owner.
    pub name: String,
    /// What tells it from an earlier one of the same name.
    pub uid: String,
}

/// In the place of the uid of an owner, for pods of a native group: that has its name alone.
const NATIVE: &str = "podgroup";

impl GangKey {
    /// Whether it is a native pod group of Kubernetes.
    pub fn is_native(&self) -> bool {
        self.uid == NATIVE
    }
}

impl std::fmt::Display for GangKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How it is found out how many pods a gang has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// So many, and it may start with so many.
    Known(u32, u32),
    /// The object at this path says so.
    Ask(LookUp),
}

/// An object that says how many pods a gang has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookUp {
    /// Where it is.
    pub path: String,
    /// How to read it.
    pub kind: Says,
}

/// How an object says how many pods there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// `batch/v1` Job: its parallelism, and no more than are left to complete.
    Job,
    /// Kubeflow's jobs: all replicas of all `*ReplicaSpecs`.
    Replicas,
    /// A JobSet: replicas × parallelism of each of its jobs.
    JobSet,
    /// The native pod group: its minimum.
    PodGroup,
}

/// When a gang is done before all its pods are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completion {
    /// So many pods of the role that succeed are enough.
    pub min_succeeded: Option<u32>,
    /// So many pods of the role that fail for good are too many.
    pub min_failed: Option<u32>,
    /// The pod is not made anew when it fails.
    pub is_last_try: bool,
}

/// What a pod says about the job it is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its gang.
    pub key: GangKey,
    /// The size of that.
    pub size: Size,
    /// With how many pods its gang starts, where that is said.
    pub least: Option<u32>,
    /// What it needs.
    pub needs: Needs,
    /// The virtual cluster, where it is named.
    pub virtual_cluster: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// The kind of GPU, where it is named.
    pub gpu_type: Option<String>,
    /// How long it takes, in seconds, where that is known.
    pub expected_s: Option<u32>,
    /// Who sent it.
    pub user: String,
    /// Seconds between a warning and its end.
    pub checkpoint_s: u32,
    /// Its place among the pods of the gang, where it has one.
    pub index: Option<u32>,
    /// When it was made.
    pub created: i64,
    /// The object that makes it anew when it is gone.
    pub controller: Option<Owner>,
    /// It was asked for in HiveD's words.
    pub hived: bool,
    /// What the sender calls the job.
    pub job_name: Option<String>,
    /// The number the job was given when it was sent.
    pub number: Option<JobId>,
    /// When the gang is done.
    pub completion: Completion,
}

impl Identity {
    /// What the pod says.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence for its owner.
    pub fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, String> {
        let meta = &pod.metadata;
        let said = |name: &str| {
            let said = meta.annotations.get(name).or_else(|| meta.labels.get(name));
            said.map(String::as_str).filter(|text| !text.is_empty())
        };
        let number = |name: &str| match said(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("annotation {name}: {text:?} is no whole number")),
            },
        };
        let priority = match said(words::PRIORITY) {
            None => pod.spec.priority.unwrap_or(0),
            Some(text) => text
                .parse()
                .map_err(|_| format!("annotation {}: {text:?} is no whole number", words::PRIORITY))?,
        };
        let selected = || {
            let mut labels = words::GPU_TYPE_LABELS.iter();
            labels.find_map(|label| pod.spec.node_selector.get(*label).cloned())
        };
        let (key, size) = gang(pod, &said, &number)?;
        let mut identity = Self {
            key,
            size,
            least: number(words::GANG_MIN)?,
            needs: Needs::of(pod, gpu_resources)?,
            virtual_cluster: said(words::VIRTUAL_CLUSTER).map(str::to_owned),
            priority,
            gpu_type: said(words::GPU_TYPE).map(str::to_owned).or_else(selected),
            expected_s: number(words::EXPECTED)?.filter(|s| *s > 0),
            user: said(words::USER).unwrap_or(&meta.namespace).to_owned(),
            checkpoint_s: number(words::CHECKPOINT_SECONDS)?.unwrap_or(0).min(3600),
            index: index(pod),
            created: meta
                .creation_timestamp
                .as_deref()
                .and_then(parse_time)
                .unwrap_or(0),
            controller: meta.controller().cloned(),
            hived: false,
            job_name: said(words::JOB_NAME).map(str::to_owned),
            number: sent_as(pod, &number)?,
            completion: completion(pod, &said, &number)?,
        };
        if meta.annotations.contains_key(dovetail_hived::SPEC) {
            identity.follow_hived(pod)?;
        }
        Ok(identity)
    }

    /// Takes over the request in HiveD's annotation.
    fn follow_hived(&mut self, pod: &Pod) -> Result<(), String> {
        let spec = PodSpec::from_annotations(&pod.metadata.annotations).map_err(|e| e.to_string())?;
        if !spec.pinned_cell_id.is_empty() {
            return Err(format!(
                "annotation {}: pinnedCellId is not supported by the scheduler; `dovetail kube extender` supports it",
                dovetail_hived::SPEC
            ));
        }
        (self.hived, self.priority) = (true, spec.priority);
        self.virtual_cluster = Some(spec.virtual_cluster);
        self.needs.gpus = spec.leaf_cell_number;
        self.gpu_type = Some(spec.leaf_cell_type).filter(|kind| !kind.is_empty());
        match spec.affinity_group {
            None => {
                self.key.name.clone_from(&pod.metadata.name);
                self.size = Size::Known(1, 1);
            }
            Some(group) => {
                let pods: u32 = group.members.iter().map(|m| m.pod_number).sum();
                self.key = GangKey {
                    namespace: self.key.namespace.clone(),
                    name: group.name,
                    uid: String::new(),
                };
                self.size = Size::Known(pods, pods);
            }
        }
        Ok(())
    }
}

type Said<'a> = dyn Fn(&str) -> Option<&'a str> + 'a;
type Number<'a> = dyn Fn(&str) -> Result<Option<u32>, String> + 'a;

/// How many pods a gang has, and with how many it starts.
pub(crate) fn starts_with(size: u32, least: Option<u32>) -> Result<(u32, u32), String> {
    match least.unwrap_or(size) {
        0 => Err(format!("annotation {}: must be at least 1", words::GANG_MIN)),
        least if least > size => Err(format!(
            "annotation {}: {least} is more than the gang has, which is {size}",
            words::GANG_MIN
        )),
        least => Ok((size, least)),
    }
}

/// The gang by our annotation, by the native group, by the owner; else the pod alone.
fn gang<'a>(pod: &'a Pod, said: &Said<'a>, number: &Number<'_>) -> Result<(GangKey, Size), String> {
    let meta = &pod.metadata;
    let key = |name: &str, uid: &str| GangKey {
        namespace: meta.namespace.clone(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let path = |group: &str, plural: &str, name: &str| {
        format!("/apis/{group}/namespaces/{}/{plural}/{name}", meta.namespace)
    };
    let least = number(words::GANG_MIN)?;
    let known = |size: u32| starts_with(size, least).map(|(size, least)| Size::Known(size, least));
    let size = number(words::GANG_SIZE)?;
    if let Some(name) = said(words::GANG) {
        return match size {
            Some(0) => Err(format!("annotation {}: must be at least 1", words::GANG_SIZE)),
            Some(size) => Ok((key(name, ""), known(size)?)),
            None => Err(format!(
                "annotation {} is missing: {} says that the pod is part of {name:?}, but not how many pods that has",
                words::GANG_SIZE,
                words::GANG
            )),
        };
    }
    let group = pod
        .spec
        .scheduling_group
        .as_ref()
        .and_then(|g| g.pod_group_name.as_ref());
    if let Some(name) = group {
        let look = LookUp {
            path: path(words::GROUPS_API, "podgroups", name),
            kind: Says::PodGroup,
        };
        return Ok((key(name, NATIVE), Size::Ask(look)));
    }
    let alone = || Ok((key(&meta.name, &meta.uid), Size::Known(1, 1)));
    let Some(owner) = meta.controller() else {
        return alone();
    };
    // All jobs of a set start together.
    if let Some(set) = meta.labels.get("jobset.sigs.k8s.io/jobset-name") {
        let uid = meta
            .labels
            .get("jobset.sigs.k8s.io/jobset-uid")
            .map_or("jobset", String::as_str);
        let look = LookUp {
            path: path("jobset.x-k8s.io/v1alpha2", "jobsets", set),
            kind: Says::JobSet,
        };
        return Ok((key(set, uid), Size::Ask(look)));
    }
    // A gang of one is the pod: what is made anew in its place has its index.
    if let (Some(1), Some(index)) = (size, index(pod)) {
        let key = key(
            &format!("{}-{index}", owner.name),
            &format!("{}/{index}", owner.uid),
        );
        return Ok((key, known(1)?));
    }
    let by_owner = |plural: &str, kind: Says| {
        let look = LookUp {
            path: path(&owner.api_version, plural, &owner.name),
            kind,
        };
        let size = match size {
            Some(size) => known(size)?,
            None => Size::Ask(look),
        };
        Ok((key(&owner.name, &owner.uid), size))
    };
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("batch/v1", "Job") => by_owner("jobs", Says::Job),
        (version, kind) if version.starts_with("kubeflow.org/") && kind.ends_with("Job") => {
            by_owner(&format!("{}s", kind.to_ascii_lowercase()), Says::Replicas)
        }
        _ => alone(),
    }
}

/// The number the job of a pod was given when it was sent: pods that start alone have one each.
fn sent_as(pod: &Pod, number: &Number<'_>) -> Result<Option<JobId>, String> {
    let Some(first) = number(words::NUMBER)? else {
        return Ok(None);
    };
    let alone = number(words::GANG_SIZE)? == Some(1) && !pod.metadata.annotations.contains_key(words::GANG);
    let offset = index(pod).filter(|_| alone).unwrap_or(0);
    Ok(Some(JobId::from(first) + JobId::from(offset)))
}

fn completion<'a>(pod: &'a Pod, said: &Said<'a>, number: &Number<'_>) -> Result<Completion, String> {
    let unless_never = |name: &str| match said(name) {
        Some("never") => Ok(None),
        _ => number(name),
    };
    // The Job controller counts failures of an index before this pod.
    let failures = pod
        .metadata
        .annotations
        .get("batch.kubernetes.io/job-index-failure-count");
    let failures = failures.and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Completion {
        min_succeeded: unless_never(words::MIN_SUCCEEDED)?,
        min_failed: unless_never(words::MIN_FAILED)?,
        is_last_try: number(words::RETRIES)?.unwrap_or(0) <= failures,
    })
}

/// The pod's place among its like.
pub(crate) fn index(pod: &Pod) -> Option<u32> {
    let labels = &pod.metadata.labels;
    let names = [
        "batch.kubernetes.io/job-completion-index",
        "training.kubeflow.org/replica-index",
        "apps.kubernetes.io/pod-index",
    ];
    let said = names
        .iter()
        .find_map(|name| labels.get(*name).or_else(|| pod.metadata.annotations.get(*name)));
    said.and_then(|text| text.parse().ok())
}

impl Says {
    /// How many pods the object says there are; an error in words where it does not.
    ///
    /// # Errors
    /// When it says nothing that can be understood.
    pub fn read(self, object: &serde_json::Value) -> Result<u32, String> {
        let count = |value: Option<&serde_json::Value>| match value {
            None | Some(serde_json::Value::Null) => Ok(1),
            Some(value) => {
                let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
                number.ok_or_else(|| format!("{value} is no number of pods"))
            }
        };
        let spec = object.get("spec").ok_or("it has no spec")?;
        match self {
            Self::Job => {
                let parallelism = count(spec.get("parallelism"))?;
                let completions = match spec.get("completions") {
                    None | Some(serde_json::Value::Null) => parallelism,
                    some => count(some)?,
                };
                Ok(parallelism.min(completions).max(1))
            }
            Self::Replicas => {
                let spec = spec.as_object().ok_or("spec is no object")?;
                let mut all = 0;
                for (_, roles) in spec.iter().filter(|(name, _)| name.ends_with("ReplicaSpecs")) {
                    for role in roles.as_object().into_iter().flat_map(|roles| roles.values()) {
                        all += count(role.get("replicas"))?;
                    }
                }
                match all {
                    0 => Err("no *ReplicaSpecs in it".to_owned()),
                    all => Ok(all),
                }
            }
            Self::JobSet => {
                let mut all = 0;
                for job in spec
                    .get("replicatedJobs")
                    .and_then(|j| j.as_array())
                    .into_iter()
                    .flatten()
                {
                    let parallelism = count(job.pointer("/template/spec/parallelism"))?;
                    all += count(job.get("replicas"))? * parallelism;
                }
                match all {
                    0 => Err("no replicatedJobs in it".to_owned()),
                    all => Ok(all),
                }
            }
            Self::PodGroup => {
                let policy = spec
                    .get("schedulingPolicy")
                    .ok_or("spec.schedulingPolicy is missing")?;
                match policy.get("gang") {
                    Some(gang) => count(gang.get("minCount")),
                    // Pods of a basic group start one by one; the group says nothing about them.
                    None => Ok(1),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn identity(pod: serde_json::Value) -> Result<Identity, String> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Identity::of(&pod, &["nvidia.com/gpu".to_owned()])
    }

    #[test]
    fn our_annotations_name_a_gang() {
        let pod = json!({"metadata": {"name": "a", "namespace": "team", "annotations": {
            "dovetail.io/gang": "g", "dovetail.io/gang-size": "4", "dovetail.io/gang-min": "2",
            "dovetail.io/virtual-cluster": "vc1", "dovetail.io/priority": "-1"}}});
        let found = identity(pod).unwrap();
        assert_eq!(
            (found.key.to_string().as_str(), found.size.clone()),
            ("team/g", Size::Known(4, 2))
        );
        assert_eq!(
            (found.priority, found.virtual_cluster.as_deref()),
            (-1, Some("vc1"))
        );
    }

    #[test]
    fn mistakes_are_named() {
        let with = |annotations: serde_json::Value| {
            identity(json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap_err()
        };
        assert!(with(json!({"dovetail.io/gang": "g"})).contains("dovetail.io/gang-size is missing"));
        assert!(
            with(json!({"dovetail.io/gang": "g", "dovetail.io/gang-size": "x"}))
                .contains("\"x\" is no whole number")
        );
        let small =
            json!({"dovetail.io/gang": "g", "dovetail.io/gang-size": "2", "dovetail.io/gang-min": "3"});
        assert!(with(small).contains("3 is more than the gang has, which is 2"));
        assert!(
            with(json!({"hivedscheduler.microsoft.com/pod-scheduling-spec": "priority: 1"}))
                .contains("virtualCluster")
        );
    }

    #[test]
    fn hived_s_annotation_names_a_gang() {
        let spec = "virtualCluster: vc1\npriority: 10\nleafCellNumber: 1\naffinityGroup:\n  name: job/default\n  members:\n  - podNumber: 2\n    leafCellNumber: 1\n";
        let pod = json!({"metadata": {"name": "a", "namespace": "n",
            "annotations": {"hivedscheduler.microsoft.com/pod-scheduling-spec": spec}}});
        let found = identity(pod).unwrap();
        assert_eq!(
            (found.key.name.as_str(), found.size),
            ("job/default", Size::Known(2, 2))
        );
        assert_eq!((found.needs.gpus, found.priority), (1, 10));
    }

    #[test]
    fn owners_name_gangs() {
        let owned = |version: &str, kind: &str| {
            identity(
                json!({"metadata": {"name": "a-0", "namespace": "n", "ownerReferences": [
                {"apiVersion": version, "kind": kind, "name": "a", "uid": "u", "controller": true}]}}),
            )
            .unwrap()
            .size
        };
        let Size::Ask(job) = owned("batch/v1", "Job") else {
            panic!()
        };
        assert_eq!(
            (job.path.as_str(), job.kind),
            ("/apis/batch/v1/namespaces/n/jobs/a", Says::Job)
        );
        let Size::Ask(torch) = owned("kubeflow.org/v1", "PyTorchJob") else {
            panic!()
        };
        assert_eq!(torch.path, "/apis/kubeflow.org/v1/namespaces/n/pytorchjobs/a");
        assert_eq!(owned("apps/v1", "ReplicaSet"), Size::Known(1, 1));
    }

    #[test]
    fn pods_of_a_job_that_start_alone_are_known_by_their_index() {
        let pod = json!({"metadata": {"name": "a-1-x", "namespace": "n", "uid": "p",
            "annotations": {"dovetail.io/gang-size": "1", "dovetail.io/number": "7", "dovetail.io/job-name": "A"},
            "labels": {"batch.kubernetes.io/job-completion-index": "1"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]}});
        let found = identity(pod).unwrap();
        assert_eq!((found.key.name.as_str(), found.key.uid.as_str()), ("a-1", "u/1"));
        assert_eq!((found.size, found.number), (Size::Known(1, 1), Some(8)));
        assert_eq!(found.job_name.as_deref(), Some("A"));
    }

    #[test]
    fn pods_say_when_their_gang_is_done() {
        let with = |failures: &str| {
            identity(json!({"metadata": {"name": "a", "annotations": {
                "dovetail.io/gang": "g", "dovetail.io/gang-size": "2", "dovetail.io/number": "7",
                "dovetail.io/min-succeeded": "1", "dovetail.io/min-failed": "never", "dovetail.io/retries": "2",
                "batch.kubernetes.io/job-index-failure-count": failures}}}))
            .unwrap()
        };
        let found = with("1");
        assert_eq!(found.number, Some(7));
        let expected = Completion {
            min_succeeded: Some(1),
            min_failed: None,
            is_last_try: false,
        };
        assert_eq!(found.completion, expected);
        assert!(with("2").completion.is_last_try);
    }

    #[test]
    fn objects_say_how_many_pods_there_are() {
        assert_eq!(
            Says::Job.read(&json!({"spec": {"parallelism": 4, "completions": 8}})),
            Ok(4)
        );
        assert_eq!(
            Says::Job.read(&json!({"spec": {"parallelism": 4, "completions": 2}})),
            Ok(2)
        );
        assert_eq!(Says::Job.read(&json!({"spec": {}})), Ok(1));
        let torch =
            json!({"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}});
        assert_eq!(Says::Replicas.read(&torch), Ok(4));
        let set =
            json!({"spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4}}}]}});
        assert_eq!(Says::JobSet.read(&set), Ok(8));
        assert_eq!(
            Says::PodGroup.read(&json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})),
            Ok(3)
        );
        assert!(Says::Replicas.read(&json!({"spec": {}})).is_err());
    }
}
