//! Why something was not delivered.

/// Why something was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CourierError {
    /// What was to be sent, or where to, makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It must not be sent there.
    #[error("{0}")]
    Forbidden(String),
    /// Nobody is there, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer in time")]
    TooSlow,
    /// Whoever is there did not take it, and may later.
    #[error("not taken for now: {0}")]
    Later(String),
    /// Whoever is there does not take it.
    #[error("refused: {0}")]
    Refused(String),
}

impl CourierError {
    /// Whether it makes sense to try again.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TooSlow | Self::Later(_))
    }

    pub(crate) fn unreachable(error: impl std::fmt::Display) -> Self {
        Self::Unreachable(error.to_string())
    }
}
