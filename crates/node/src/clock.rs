//! Time as the shims and the agent share it: milliseconds since the machine started, sleep included.

use rustix::time::{ClockId, clock_gettime};

/// Now.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1000 + nanos / 1_000_000
}

/// Microseconds since 1970, for numbers that only grow.
pub(crate) fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}
