//! Errors in the settings of the server.

/// A setting of `server.yaml` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SettingError {
    /// The key, from the top: `oidc.issuer`.
    pub key: &'static str,
    /// The problem with its value, and what is expected.
    pub problem: String,
}

impl SettingError {
    pub(crate) fn new(key: &'static str, problem: impl ToString) -> Self {
        Self {
            key,
            problem: problem.to_string(),
        }
    }
}
