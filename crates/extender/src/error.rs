//! Errors that are answered to kube-scheduler.

use crate::pods::PodName;

/// A failed request, in HiveD's form: 400 is an error of the client, 500 one of the platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Code: {code}, Message: {message}")]
pub struct ExtenderError {
    /// The HTTP status.
    pub code: u16,
    /// The message.
    pub message: String,
}

impl ExtenderError {
    /// Returns an error of the client.
    pub fn user(message: impl Into<String>) -> Self {
        Self {
            code: 400,
            message: message.into(),
        }
    }

    /// Returns an error of the platform.
    pub fn platform(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            message: message.into(),
        }
    }

    /// Puts the pod in front of the message.
    pub(crate) fn about(mut self, pod: &PodName) -> Self {
        self.message = format!("Pod {pod}: {}", self.message);
        self
    }
}
