//! Spans of time in settings.

use dovetail_model::{Time, parse_span};

/// The value of a key is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: invalid span of time {text:?}: expected a value such as 90s, 5m or 1h")]
pub struct InvalidSpan {
    /// The key.
    pub key: String,
    /// Its value.
    pub text: String,
}

/// Parses a span of time above zero: `90s`, `5m`, `1h`.
///
/// # Errors
/// Names the key and the accepted values.
pub fn parse_positive_span(text: &str, key: &str) -> Result<Time, InvalidSpan> {
    let span = parse_span(text).filter(|span| span.0 > 0);
    span.ok_or_else(|| InvalidSpan {
        key: key.to_owned(),
        text: text.to_owned(),
    })
}
