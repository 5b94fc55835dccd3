//! Errors of outgoing requests and mail.

/// A request or mail that was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The content or the destination is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The destination is not allowed by the [`AddressPolicy`](crate::AddressPolicy).
    #[error("{0}")]
    Forbidden(String),
    /// The connection could not be opened or was lost.
    #[error("{0}")]
    Unreachable(String),
    /// The exchange did not finish within its timeout.
    #[error("timed out")]
    Timeout,
    /// The server did not accept it now, but may accept it later.
    #[error("temporarily rejected: {0}")]
    Deferred(String),
    /// The server does not accept it.
    #[error("rejected: {0}")]
    Rejected(String),
}

impl OutboundError {
    /// Returns whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Timeout | Self::Deferred(_))
    }

    pub(crate) fn unreachable(error: impl std::fmt::Display) -> Self {
        Self::Unreachable(error.to_string())
    }
}
