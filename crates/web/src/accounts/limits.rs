//! Rate limits: of requests per user, and of guesses at a password.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::Problem;

/// A token bucket: refilled with time, drained by requests.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    since: Instant,
}

impl Bucket {
    fn take(&mut self, capacity: f64, per_second: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * per_second).min(capacity);
        self.since = now;
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

/// The recent requests of each user.
#[derive(Debug)]
pub(crate) struct Limits {
    per_minute: u32,
    requests: Mutex<BTreeMap<String, Bucket>>,
    guesses: Mutex<BTreeMap<String, Bucket>>,
    tests: Mutex<BTreeMap<String, Bucket>>,
}

/// Wrong passwords in a row before guesses are limited to one every [`GUESS_EVERY_S`].
const GUESSES: f64 = 10.0;
/// Seconds until another guess is allowed.
const GUESS_EVERY_S: f64 = 30.0;
/// Test notifications in a row before they are limited to one every ten seconds.
const TESTS: f64 = 5.0;
/// Maximum number of users that are remembered.
const MAX_NAMES: usize = 10_000;

impl Limits {
    /// Creates limits with this many requests per user and minute; 0 for no limit.
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            requests: Mutex::default(),
            guesses: Mutex::default(),
            tests: Mutex::default(),
        }
    }

    /// Counts a request of a user.
    pub(crate) fn count(&self, name: &str) -> Result<(), Problem> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let capacity = f64::from(self.per_minute);
        match take(&self.requests, name, capacity, capacity / 60.0) {
            true => Ok(()),
            false => Err(Problem::too_many(format!(
                "rate limit exceeded: {} requests per minute; try again shortly",
                self.per_minute
            ))),
        }
    }

    /// Counts a test notification of a user.
    pub(crate) fn count_test(&self, name: &str) -> Result<(), Problem> {
        match take(&self.tests, name, TESTS, 0.1) {
            true => Ok(()),
            false => Err(Problem::too_many("too many tests; wait ten seconds")),
        }
    }

    /// Returns an error if there were too many wrong passwords for this name.
    pub(crate) fn check_guess(&self, name: &str) -> Result<(), Problem> {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = guesses.get_mut(name) else {
            return Ok(());
        };
        let now = Instant::now();
        let passed = now.saturating_duration_since(bucket.since).as_secs_f64();
        match bucket.left + passed / GUESS_EVERY_S >= 1.0 {
            true => Ok(()),
            false => Err(Problem::too_many("too many wrong passwords; wait 30 seconds")),
        }
    }

    /// Counts a wrong password.
    pub(crate) fn record_failure(&self, name: &str) {
        take(&self.guesses, name, GUESSES, 1.0 / GUESS_EVERY_S);
    }

    /// Forgets the wrong passwords of a name after a correct one.
    pub(crate) fn reset(&self, name: &str) {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.remove(name);
    }
}

fn take(buckets: &Mutex<BTreeMap<String, Bucket>>, name: &str, capacity: f64, per_second: f64) -> bool {
    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if buckets.len() >= MAX_NAMES && !buckets.contains_key(name) {
        buckets.clear();
    }
    let full = Bucket {
        left: capacity,
        since: now,
    };
    let bucket = buckets.entry(name.to_owned()).or_insert(full);
    bucket.take(capacity, per_second, now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wrong_passwords_block_a_name_until_a_correct_one() {
        let limits = Limits::new(0);
        for _ in 0..10 {
            assert!(limits.check_guess("ann").is_ok());
            limits.record_failure("ann");
        }
        assert!(limits.check_guess("ann").is_err() && limits.check_guess("bob").is_ok());
        limits.reset("ann");
        assert!(limits.check_guess("ann").is_ok());
    }

    #[test]
    fn a_bucket_refills_with_time() {
        let start = Instant::now();
        let mut bucket = Bucket {
            left: 2.0,
            since: start,
        };
        assert!(
            bucket.take(2.0, 1.0, start) && bucket.take(2.0, 1.0, start) && !bucket.take(2.0, 1.0, start)
        );
        assert!(bucket.take(2.0, 1.0, start + Duration::from_secs(1)));
        let limits = Limits::new(3);
        assert!((0..3).all(|_| limits.count("ann").is_ok()) && limits.count("ann").is_err());
        assert!(limits.count("bob").is_ok());
    }
}
