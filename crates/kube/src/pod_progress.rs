//! Reports of trainers in pods, as the SDK writes them: an object of our own with the name of the pod.

use dovetail_cluster::state::Progress;
use dovetail_kubeapi::{Meta, Object};
use dovetail_model::Time;
use serde::{Deserialize, Serialize};

/// How far a pod is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodProgress {
    /// Metadata; the name is that of the pod.
    pub metadata: Meta,
    /// The last report.
    pub spec: PodProgressSpec,
}

/// A report of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodProgressSpec {
    /// Uid of the pod.
    pub pod_uid: String,
    /// Number of finished steps.
    pub step: u64,
    /// Number of steps in total; zero if unknown.
    pub total_steps: u64,
    /// Duration of one step, in microseconds; zero if unknown.
    pub step_us: u64,
    /// The part of it that waited for data, in microseconds.
    pub data_us: u64,
    /// Step of the last complete checkpoint.
    pub checkpoint: u64,
    /// Time of the report, in microseconds since 1970.
    pub at: i64,
}

impl Object for PodProgress {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Most steps of a job.
const MAX_STEPS: u64 = 1 << 53;
/// Longest step: a day.
const MAX_STEP_US: u64 = 86_400_000_000;

/// A report, limited to what is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressReport {
    /// When it was made, by the clock of the pod.
    pub made: Time,
    /// How far the pod was.
    pub progress: Progress,
}

impl PodProgressSpec {
    /// Returns the report. The schema of the objects has the same limits; an older schema may have none.
    pub(crate) fn report(&self) -> ProgressReport {
        let step_us = self.step_us.min(MAX_STEP_US);
        let total = self.total_steps.min(MAX_STEPS);
        let step = self.step.min(if total > 0 { total } else { MAX_STEPS });
        ProgressReport {
            made: Time(self.at.max(0)),
            progress: Progress {
                step,
                total,
                step_time: Time(i64::try_from(step_us).unwrap_or(0)),
                data_time: Time(i64::try_from(self.data_us.min(step_us)).unwrap_or(0)),
                checkpoint: self.checkpoint.min(step),
            },
        }
    }
}
