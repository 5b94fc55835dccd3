//! Not too many requests of one user, and not too many guesses at a password.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::Problem;

/// A bucket that fills with time and is emptied by requests.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    since: Instant,
}

impl Bucket {
    fn take(&mut self, most: f64, per_second: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * per_second).min(most);
        self.since = now;
        let there = self.left >= 1.0;
        if there {
            self.left -= 1.0;
        }
        there
    }
}

/// How much each user has asked lately.
#[derive(Debug)]
pub(crate) struct Limits {
    per_minute: u32,
    requests: Mutex<BTreeMap<String, Bucket>>,
    guesses: Mutex<BTreeMap<String, Bucket>>,
    tests: Mutex<BTreeMap<String, Bucket>>,
}

/// Wrong passwords in a row, then one a while.
const GUESSES: f64 = 10.0;
/// One more guess each so many seconds.
const GUESS_EVERY_S: f64 = 30.0;
/// Trials of being told in a row, then one each ten seconds.
const TESTS: f64 = 5.0;
/// Names that are remembered at most.
const MOST_NAMES: usize = 10_000;

impl Limits {
    /// So many requests of one user in a minute; zero for any number.
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            requests: Mutex::default(),
            guesses: Mutex::default(),
            tests: Mutex::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, name: &str) -> Result<(), Problem> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let most = f64::from(self.per_minute);
        match take(&self.requests, name, most, most / 60.0) {
            true => Ok(()),
            false => Err(Problem::too_many(format!(
                "more than {} requests in a minute; wait a little",
                self.per_minute
            ))),
        }
    }

    /// Whether somebody may try once more how it is told.
    pub(crate) fn may_test(&self, name: &str) -> Result<(), Problem> {
        match take(&self.tests, name, TESTS, 0.1) {
            true => Ok(()),
            false => Err(Problem::too_many("too many trials; wait ten seconds")),
        }
    }

    /// Whether a password may be tried for this name.
    pub(crate) fn may_try(&self, name: &str) -> Result<(), Problem> {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = guesses.get_mut(name) else {
            return Ok(());
        };
        let now = Instant::now();
        let passed = now.saturating_duration_since(bucket.since).as_secs_f64();
        match bucket.left + passed / GUESS_EVERY_S >= 1.0 {
            true => Ok(()),
            false => Err(Problem::too_many("too many wrong passwords; wait half a minute")),
        }
    }

    /// A password was wrong.
    pub(crate) fn failed(&self, name: &str) {
        take(&self.guesses, name, GUESSES, 1.0 / GUESS_EVERY_S);
    }

    /// A password was right.
    pub(crate) fn succeeded(&self, name: &str) {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.remove(name);
    }
}

fn take(buckets: &Mutex<BTreeMap<String, Bucket>>, name: &str, most: f64, per_second: f64) -> bool {
    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if buckets.len() >= MOST_NAMES && !buckets.contains_key(name) {
        buckets.clear();
    }
    let full = Bucket {
        left: most,
        since: now,
    };
    let bucket = buckets.entry(name.to_owned()).or_insert(full);
    bucket.take(most, per_second, now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn guesses_run_out_and_a_right_one_forgives() {
        let limits = Limits::new(0);
        for _ in 0..10 {
            assert!(limits.may_try("ann").is_ok());
            limits.failed("ann");
        }
        assert!(limits.may_try("ann").is_err() && limits.may_try("bob").is_ok());
        limits.succeeded("ann");
        assert!(limits.may_try("ann").is_ok());
    }

    #[test]
    fn a_bucket_fills_again() {
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
