//! Clocks.

use rustix::time::{ClockId, clock_gettime};

/// Returns the milliseconds since the machine started, including time asleep. Agent and shims share this clock.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1000 + nanos / 1_000_000
}

/// Returns the microseconds since 1970, from which sequence numbers are derived.
pub(crate) fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}
