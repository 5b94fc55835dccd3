//! What a job reports about the stages of its steps.

use dovetail_model::Time;
use dovetail_model::stages::MOST_SHARERS;
use serde::{Deserialize, Serialize};

use crate::JobId;

/// Duration of the stages of a step beside the data stage, without the wait at stage gates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageReport {
    /// Computation on the GPU; zero if unknown.
    pub gpu_time: Time,
    /// Use of the network; zero if unknown.
    pub network_time: Time,
    /// Wait at stage gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub gate_time: Time,
    /// Set while stage gates keep the stages of the job apart from those of other jobs on the same GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gates: Option<GateReport>,
}

/// How jobs interleave their stages behind stage gates. In each period, each of them does one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReport {
    /// The period according to the plan.
    pub planned_period: Time,
    /// The measured period; zero if it was not measured yet.
    #[serde(default)]
    pub measured_period: Time,
    /// The other jobs.
    partners: Vec<JobId>,
}

impl GateReport {
    /// Returns a report; none unless there are one to three other jobs.
    pub fn new(planned_period: Time, measured_period: Time, partners: Vec<JobId>) -> Option<Self> {
        (1..MOST_SHARERS).contains(&partners.len()).then_some(Self {
            planned_period,
            measured_period,
            partners,
        })
    }

    /// Returns the other jobs; there are one to three.
    pub fn partners(&self) -> &[JobId] {
        &self.partners[..self.partners.len().min(MOST_SHARERS - 1)]
    }
}

fn is_zero(span: &Time) -> bool {
    *span == Time::ZERO
}
