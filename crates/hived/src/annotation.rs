//! Names of HiveD's annotations, and errors in their values.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::pod_spec::SpecError;

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
    /// The value does not have the form of the annotation.
    #[error("annotation {annotation}: {message}")]
    Syntax {
        /// Name of the annotation.
        annotation: &'static str,
        /// Message of the parser, with the line.
        message: String,
    },
    /// A field of the pod's request has an invalid value.
    #[error("annotation {SPEC}: {0}")]
    Spec(#[from] SpecError),
}

/// Reads the YAML in an annotation. A text without any key gives the default.
pub(crate) fn read<T: DeserializeOwned + Default>(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
) -> Result<T, AnnotationError> {
    let text = annotations.get(annotation).filter(|text| !text.trim().is_empty());
    let text = text.ok_or(AnnotationError::Missing { annotation })?;
    let value: Option<T> = dovetail_yaml::from_text(text).map_err(|error| AnnotationError::Syntax {
        annotation,
        message: error.to_string(),
    })?;
    Ok(value.unwrap_or_default())
}
