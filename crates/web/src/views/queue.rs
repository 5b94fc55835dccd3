//! Bodies of the queue and of explanations.

use dovetail_cluster::JobId;
use dovetail_cluster::state::{Alternative, JobExplanation};
use dovetail_forecast::Eta;
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Explanation of a pending job: reasons, estimated start, and alternatives that would start now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplanationView {
    /// Reasons for the state of the job.
    #[serde(flatten)]
    pub explanation: JobExplanation,
    /// The first ten jobs ahead of it in the queue.
    pub jobs_ahead: Vec<JobAhead>,
    /// Changes with which the job would start now.
    pub alternatives: Vec<Alternative>,
    /// Estimated start.
    pub eta: Option<Eta>,
    /// Reason why there is no estimate.
    pub no_eta_reason: String,
}

/// A job that is ahead of another in the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAhead {
    /// Job id.
    pub id: JobId,
    /// Name; empty if the caller may not see the job.
    pub name: String,
    /// User that submitted it; empty if the caller may not see the job.
    pub user: String,
    /// Number of GPUs it requests.
    pub gpus: u32,
    /// State of the job.
    pub state: String,
}

/// A queued job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueEntry {
    /// Job id.
    pub id: JobId,
    /// Name of the job.
    pub name: String,
    /// User that submitted it.
    pub user: String,
    /// Virtual cluster of the job.
    pub tenant: String,
    /// Number of GPUs it requests.
    pub gpus: u32,
    /// Priority; a larger number is more urgent.
    pub priority: i32,
    /// When the job was queued.
    #[schemars(with = "i64")]
    pub since: Time,
    /// Number of jobs ahead of it.
    pub ahead: u32,
    /// The first reason why it is pending.
    pub reason: String,
}
