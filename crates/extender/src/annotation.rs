//! HiveD's annotations on Kubernetes pods.

use dovetail_hived::{AnnotationError, BindInfo, PodSpec};
use dovetail_kubeapi::Pod;

use crate::error::ExtenderError;

/// Reads the request of a pod. A pod without a group is a group of its own, called `namespace/name`.
///
/// # Errors
/// A user error, which names the field, what was found and what is expected.
pub fn read_spec(pod: &Pod) -> Result<PodSpec, ExtenderError> {
    let meta = &pod.metadata;
    let mut spec = PodSpec::from_annotations(&meta.annotations)
        .map_err(|error| ExtenderError::user(error.to_string()))?;
    let own_name = format!("{}/{}", meta.namespace, meta.name);
    spec.affinity_group = Some(spec.group_or_own(&own_name));
    Ok(spec)
}

/// Reads the placement of a pod that was bound before.
///
/// # Errors
/// A platform error when the annotation is missing, a user error when it cannot be parsed.
pub fn read_bind_info(pod: &Pod) -> Result<BindInfo, ExtenderError> {
    BindInfo::from_annotations(&pod.metadata.annotations).map_err(|error| match error {
        AnnotationError::Missing { .. } => ExtenderError::platform(error.to_string()),
        AnnotationError::Syntax { .. } | AnnotationError::Spec(_) => ExtenderError::user(error.to_string()),
    })
}
