//! The clock, and the times of Kubernetes objects.

use std::time::{SystemTime, UNIX_EPOCH};

pub use dovetail_model::rfc3339::{micro_time, parse_time, seconds_time};

/// Returns the current time, in microseconds since 1970.
pub fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
