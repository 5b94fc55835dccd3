//! Number of pods of a gang.

use serde_json::Value;

use crate::annotations;

/// Number of pods of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GangSize {
    /// Number of pods.
    pub pods: u32,
    /// Number of pods with which the gang starts; the others are elastic.
    pub min_pods: u32,
}

/// Why the size of a gang cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The gang would start with no pod.
    #[error("annotation {}: must be at least 1", annotations::GANG_MIN)]
    ZeroMinimum,
    /// The minimum exceeds the number of pods.
    #[error(
        "annotation {}: {min_pods} exceeds the number of pods of the gang ({pods})",
        annotations::GANG_MIN
    )]
    MinimumExceedsPods {
        /// The minimum.
        min_pods: u32,
        /// Number of pods.
        pods: u32,
    },
    /// A field of the workload is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number of pods is not a whole number.
    #[error("invalid number of pods {0}")]
    Number(String),
    /// The workload cannot be used.
    #[error("{path}: {error}")]
    Workload {
        /// Path of the workload at the API server.
        path: String,
        /// What is wrong with it.
        error: Box<SizeError>,
    },
    /// The workload cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl GangSize {
    /// A gang of one pod.
    pub const ONE: Self = Self { pods: 1, min_pods: 1 };

    /// Returns the size of a gang that starts with `min_pods` of its pods, or with all of them.
    ///
    /// # Errors
    /// If the minimum is zero or exceeds the number of pods.
    pub fn new(pods: u32, min_pods: Option<u32>) -> Result<Self, SizeError> {
        match min_pods.unwrap_or(pods) {
            0 => Err(SizeError::ZeroMinimum),
            min_pods if min_pods > pods => Err(SizeError::MinimumExceedsPods { min_pods, pods }),
            min_pods => Ok(Self { pods, min_pods }),
        }
    }
}

/// Where the size of a gang is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeSource {
    /// In the annotations of its pods.
    Known(GangSize),
    /// In another object.
    LookUp(SizeLookup),
}

/// An object that has the number of pods of a gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeLookup {
    /// Path of the object at the API server.
    pub path: String,
    /// Kind of the object.
    pub kind: WorkloadKind,
}

/// Kinds of objects that have a number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// `batch/v1` Job: its parallelism, at most its completions.
    Job,
    /// Jobs of Kubeflow: all replicas of all `*ReplicaSpecs`.
    Kubeflow,
    /// JobSet: replicas times parallelism of each of its Jobs.
    JobSet,
    /// Native pod group: its minimum.
    PodGroup,
}

impl WorkloadKind {
    /// Returns the number of pods of a workload.
    ///
    /// # Errors
    /// If the number is missing or invalid.
    pub fn pods(self, object: &Value) -> Result<u32, SizeError> {
        let spec = object.get("spec").ok_or(SizeError::Missing("spec"))?;
        match self {
            Self::Job => {
                let parallelism = count(spec.get("parallelism"))?;
                let completions = match spec.get("completions") {
                    None | Some(Value::Null) => parallelism,
                    some => count(some)?,
                };
                Ok(parallelism.min(completions).max(1))
            }
            Self::Kubeflow => {
                let spec = spec.as_object().into_iter().flatten();
                let mut pods = 0;
                for (_, roles) in spec.filter(|(name, _)| name.ends_with("ReplicaSpecs")) {
                    for role in roles.as_object().into_iter().flat_map(|roles| roles.values()) {
                        pods += count(role.get("replicas"))?;
                    }
                }
                at_least_one(pods, "spec.*ReplicaSpecs")
            }
            Self::JobSet => {
                let jobs = spec.get("replicatedJobs").and_then(Value::as_array);
                let mut pods = 0;
                for job in jobs.into_iter().flatten() {
                    let parallelism = count(job.pointer("/template/spec/parallelism"))?;
                    pods += count(job.get("replicas"))? * parallelism;
                }
                at_least_one(pods, "spec.replicatedJobs")
            }
            Self::PodGroup => {
                let policy = spec.get("schedulingPolicy");
                let policy = policy.ok_or(SizeError::Missing("spec.schedulingPolicy"))?;
                match policy.get("gang") {
                    Some(gang) => count(gang.get("minCount")),
                    // Pods of a basic group start one by one.
                    None => Ok(1),
                }
            }
        }
    }
}

fn at_least_one(pods: u32, field: &'static str) -> Result<u32, SizeError> {
    match pods {
        0 => Err(SizeError::Missing(field)),
        pods => Ok(pods),
    }
}

fn count(value: Option<&Value>) -> Result<u32, SizeError> {
    match value {
        None | Some(Value::Null) => Ok(1),
        Some(value) => {
            let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| SizeError::Number(value.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_number_of_pods_is_read_from_the_workload() {
        assert_eq!(
            WorkloadKind::Job.pods(&json!({"spec": {"parallelism": 4, "completions": 8}})),
            Ok(4)
        );
        assert_eq!(
            WorkloadKind::Job.pods(&json!({"spec": {"parallelism": 4, "completions": 2}})),
            Ok(2)
        );
        assert_eq!(WorkloadKind::Job.pods(&json!({"spec": {}})), Ok(1));
        let torch =
            json!({"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}});
        assert_eq!(WorkloadKind::Kubeflow.pods(&torch), Ok(4));
        let set =
            json!({"spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4}}}]}});
        assert_eq!(WorkloadKind::JobSet.pods(&set), Ok(8));
        assert_eq!(
            WorkloadKind::PodGroup.pods(&json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})),
            Ok(3)
        );
        assert!(WorkloadKind::Kubeflow.pods(&json!({"spec": {}})).is_err());
    }
}
