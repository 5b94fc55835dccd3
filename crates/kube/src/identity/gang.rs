//! Assigns pods to gangs.

use dovetail_kubeapi::{Owner, Pod};

use super::size::{GangSize, SizeLookup, SizeSource, WorkloadKind};
use super::{IdentityError, Values, index};
use crate::annotations;

/// Identifies a gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GangKey {
    /// Namespace of the gang.
    pub namespace: String,
    /// Name from an annotation, a pod group or the controller.
    pub name: String,
    /// Tells the gang from an earlier one of the same name.
    pub uid: String,
}

/// The uid of gangs that are native pod groups: these have no controller.
const POD_GROUP: &str = "podgroup";

impl GangKey {
    /// Checks whether the gang is a native pod group of Kubernetes.
    pub fn is_pod_group(&self) -> bool {
        self.uid == POD_GROUP
    }
}

impl std::fmt::Display for GangKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns the gang of a pod and where its size is found: by our annotation, the native pod group, or the controller. Any other
/// pod is a gang of its own.
pub(super) fn gang_of(pod: &Pod, values: &Values<'_>) -> Result<(GangKey, SizeSource), IdentityError> {
    let min_pods = values.number(annotations::GANG_MIN)?;
    let size = values.number(annotations::GANG_SIZE)?;
    let known_size = || match size {
        None => Ok(None),
        Some(0) => Err(IdentityError::Zero(annotations::GANG_SIZE)),
        Some(pods) => Ok(Some(GangSize::new(pods, min_pods)?)),
    };
    if let Some(name) = values.get(annotations::GANG) {
        let size = known_size()?.ok_or_else(|| IdentityError::GangSizeMissing(name.to_owned()))?;
        return Ok((key(pod, name, ""), SizeSource::Known(size)));
    }
    if let Some(group) = pod_group(pod) {
        return Ok(group);
    }
    let alone = (
        key(pod, &pod.metadata.name, &pod.metadata.uid),
        SizeSource::Known(GangSize::ONE),
    );
    let Some(owner) = pod.metadata.controller() else {
        return Ok(alone);
    };
    if let Some(set) = job_set(pod) {
        return Ok(set);
    }
    let size = known_size()?;
    // A pod of a gang of one is identified by its index, which its replacement has too.
    if let (Some(GangSize { pods: 1, .. }), Some(index)) = (size, index(pod)) {
        let name = format!("{}-{index}", owner.name);
        let key = key(pod, &name, &format!("{}/{index}", owner.uid));
        return Ok((key, SizeSource::Known(GangSize::ONE)));
    }
    let Some(lookup) = size_lookup(pod, owner) else {
        return Ok(alone);
    };
    let size = size.map_or(SizeSource::LookUp(lookup), SizeSource::Known);
    Ok((key(pod, &owner.name, &owner.uid), size))
}

fn key(pod: &Pod, name: &str, uid: &str) -> GangKey {
    GangKey {
        namespace: pod.metadata.namespace.clone(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}

fn path(pod: &Pod, group: &str, plural: &str, name: &str) -> String {
    format!(
        "/apis/{group}/namespaces/{}/{plural}/{name}",
        pod.metadata.namespace
    )
}

fn pod_group(pod: &Pod) -> Option<(GangKey, SizeSource)> {
    let name = pod.spec.scheduling_group.as_ref()?.pod_group_name.as_ref()?;
    let lookup = SizeLookup {
        path: path(pod, annotations::POD_GROUP_API, "podgroups", name),
        kind: WorkloadKind::PodGroup,
    };
    Some((key(pod, name, POD_GROUP), SizeSource::LookUp(lookup)))
}

/// All Jobs of a JobSet start together.
fn job_set(pod: &Pod) -> Option<(GangKey, SizeSource)> {
    let labels = &pod.metadata.labels;
    let name = labels.get("jobset.sigs.k8s.io/jobset-name")?;
    let uid = labels
        .get("jobset.sigs.k8s.io/jobset-uid")
        .map_or("jobset", String::as_str);
    let lookup = SizeLookup {
        path: path(pod, "jobset.x-k8s.io/v1alpha2", "jobsets", name),
        kind: WorkloadKind::JobSet,
    };
    Some((key(pod, name, uid), SizeSource::LookUp(lookup)))
}

/// Returns where the number of pods of a controller is found; `None` for controllers whose pods start alone.
fn size_lookup(pod: &Pod, owner: &Owner) -> Option<SizeLookup> {
    let (plural, kind) = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("batch/v1", "Job") => ("jobs".to_owned(), WorkloadKind::Job),
        (version, kind) if version.starts_with("kubeflow.org/") && kind.ends_with("Job") => {
            (format!("{}s", kind.to_ascii_lowercase()), WorkloadKind::Kubeflow)
        }
        _ => return None,
    };
    Some(SizeLookup {
        path: path(pod, &owner.api_version, &plural, &owner.name),
        kind,
    })
}
