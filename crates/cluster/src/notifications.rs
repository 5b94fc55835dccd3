//! Notifications: what users can be notified about, and the settings of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user can be notified about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotificationKind {
    /// The job is running.
    Running,
    /// The job has completed.
    Completed,
    /// The job has failed, or was ended by another user or a rule.
    Failed,
    /// The job was preempted and is queued again.
    Preempted,
    /// The job has been pending for longer than the limit its owner set.
    PendingTooLong,
    /// The job uses its GPUs very little.
    LowGpuUse,
}

impl NotificationKind {
    /// Returns the name in files and JSON.
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

/// Notification settings of a job; what is left out follows the owner's settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobNotifications {
    /// What to notify about; an empty list for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<NotificationKind>>,
    /// Whether to send mail, if the server can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<bool>,
    /// URL that notifications are posted to; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Time in seconds after which a pending job is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_s: Option<f64>,
}

/// Longest limit for pending jobs in seconds: ten years.
const MAX_PENDING_S: f64 = 315_576_000.0;

/// Why notification settings are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotificationError {
    /// The webhook is not an HTTP URL.
    #[error("webhook: expected a URL that begins with http:// or https://")]
    Webhook,
    /// The limit for pending jobs is out of range.
    #[error("pending_s: must be from 0 to ten years, in seconds")]
    PendingLimit,
}

impl JobNotifications {
    /// Checks the settings.
    ///
    /// # Errors
    /// Names the field and what is expected.
    pub fn validate(&self) -> Result<(), NotificationError> {
        if let Some(webhook) = self.webhook.as_ref().filter(|w| !w.is_empty()) {
            validate_webhook(webhook)?;
        }
        validate_pending_limit(self.pending_s.unwrap_or_default())
    }
}

/// Checks the URL of a webhook.
///
/// # Errors
/// If it is not an HTTP URL.
pub fn validate_webhook(webhook: &str) -> Result<(), NotificationError> {
    let is_http = ["http://", "https://"].iter().any(|s| webhook.starts_with(s));
    let is_plain = webhook.len() <= 2_000 && webhook.bytes().all(|b| b.is_ascii_graphic());
    match is_http && is_plain {
        true => Ok(()),
        false => Err(NotificationError::Webhook),
    }
}

/// Checks the limit for pending jobs.
///
/// # Errors
/// If it is out of range.
pub fn validate_pending_limit(pending_s: f64) -> Result<(), NotificationError> {
    match (0.0..=MAX_PENDING_S).contains(&pending_s) {
        true => Ok(()),
        false => Err(NotificationError::PendingLimit),
    }
}
