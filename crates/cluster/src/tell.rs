//! What people can be told of their jobs, and what a job says of that itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something people may want to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotificationKind {
    /// The job runs.
    Running,
    /// It has ended well.
    Completed,
    /// It has ended otherwise, and not because its owner wanted it to.
    Failed,
    /// It was stopped for another one, and stands in line again.
    Preempted,
    /// It waits for longer than its owner thinks it should.
    PendingTooLong,
    /// It holds GPUs that do hardly anything.
    LowGpuUse,
}

impl NotificationKind {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Preempted => "preempted",
            Self::PendingTooLong => "pending-too-long",
            Self::LowGpuUse => "low-gpu-use",
        }
    }
}

/// What a job says of how its owner is told; what it does not say is as the owner has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobNotifications {
    /// Of what; an empty list for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<NotificationKind>>,
    /// By mail, where the server can send some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<bool>,
    /// By a request to this address; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// So long it waits before that is too long, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_s: Option<f64>,
}

/// The longest wait that can be named, in seconds: ten years.
const LONGEST_S: f64 = 315_576_000.0;

impl JobNotifications {
    /// Checks that it makes sense.
    ///
    /// # Errors
    /// Names the field and what would be accepted.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(webhook) = self.webhook.as_ref().filter(|w| !w.is_empty()) {
            validate_webhook(webhook)?;
        }
        validate_pending_limit(self.pending_s.unwrap_or_default())
    }
}

/// Whether this can be an address that is posted to.
///
/// # Errors
/// Says what would be accepted.
pub fn validate_webhook(webhook: &str) -> Result<(), String> {
    let http = ["http://", "https://"].iter().any(|s| webhook.starts_with(s));
    let is_plain = webhook.len() <= 2_000 && webhook.bytes().all(|b| b.is_ascii_graphic());
    match http && is_plain {
        true => Ok(()),
        false => Err("webhook: expected an address that begins with http:// or https://".to_owned()),
    }
}

/// Whether this can be too long a wait.
///
/// # Errors
/// Says what would be accepted.
pub fn validate_pending_limit(pending_s: f64) -> Result<(), String> {
    match (0.0..=LONGEST_S).contains(&pending_s) {
        true => Ok(()),
        false => Err("pending_s: must be from 0 to ten years, in seconds".to_owned()),
    }
}
