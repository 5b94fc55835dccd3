//! Names of HiveD's annotations, and what can be wrong with one.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

/// Annotation with the request of a pod.
pub const SPEC: &str = "hivedscheduler.microsoft.com/pod-scheduling-spec";
/// Annotation with the indices of a pod's leaf cells, for its containers.
pub const ISOLATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
/// Annotation with the placement of a pod's whole group.
pub const BIND_INFO: &str = "hivedscheduler.microsoft.com/pod-bind-info";
/// Container limit that marks a pod as managed by HiveD.
pub const ENABLE: &str = "hivedscheduler.microsoft.com/pod-scheduling-enable";

/// An annotation that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The pod does not have it.
    #[error("annotation {annotation} does not exist or is empty")]
    Missing {
        /// Name of the annotation.
        annotation: &'static str,
    },
    /// It has a wrong value.
    #[error("annotation {annotation}: {reason}")]
    Invalid {
        /// Name of the annotation.
        annotation: &'static str,
        /// The field, what was found and what is expected.
        reason: String,
    },
}

/// Reads the YAML in an annotation. A text without any key gives the default.
pub(crate) fn read<T: DeserializeOwned + Default>(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
) -> Result<T, AnnotationError> {
    let text = annotations.get(annotation).filter(|text| !text.trim().is_empty());
    let text = text.ok_or(AnnotationError::Missing { annotation })?;
    let value: Option<T> = dovetail_yaml::from_text(text).map_err(|error| AnnotationError::Invalid {
        annotation,
        reason: error.to_string(),
    })?;
    Ok(value.unwrap_or_default())
}
