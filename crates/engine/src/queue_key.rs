//! Sort keys of jobs as functions of time.
//!
//! An order maps each job to a linear function: the key's value at a moment, and its slope. The engine keeps keys of equal
//! slope in sorted sets, so the passing of time never forces it to sort again: it only compares the ends of a few sets. An
//! order whose key is not linear (queues, quanta) states until when the linear function is valid.

use dovetail_model::{JobKey, Time};
use serde::{Deserialize, Serialize};

/// A job's sort key as a function of time; smaller is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueKey {
    /// Compared first; does not change with time.
    pub band: i32,
    /// Value of the key at the epoch.
    base: i128,
    /// Growth of the key per microsecond.
    slope: i64,
    /// When the order has to compute the key again.
    pub until: Option<Time>,
    /// Whether the service the job received so far no longer counts.
    pub fresh_start: bool,
    /// What the order finds in [`crate::Job::order_note`] from now on; none to leave it as it is.
    #[serde(alias = "remember")]
    pub note: Option<u32>,
    /// Place of the job among those with equal keys; the engine sets it.
    #[serde(default)]
    pub(crate) place: u32,
}

impl QueueKey {
    /// Returns a key that does not change with time.
    pub fn fixed(value: i128) -> Self {
        Self {
            band: 0,
            base: value,
            slope: 0,
            until: None,
            fresh_start: false,
            note: None,
            place: 0,
        }
    }

    /// Returns a key that is `value` now and grows by `slope` every microsecond.
    pub fn moving(now: Time, value: i128, slope: i64) -> Self {
        Self {
            band: 0,
            base: value - i128::from(slope) * i128::from(now.0),
            slope,
            until: None,
            fresh_start: false,
            note: None,
            place: 0,
        }
    }

    /// Returns the same key in another band.
    pub fn in_band(self, band: i32) -> Self {
        Self { band, ..self }
    }

    /// Returns the same key behind all keys of lower classes, and ahead of all keys of higher ones.
    pub(crate) fn of_class(self, class: u8) -> Self {
        const WIDTH: i32 = 1 << 22;
        let band = self.band.clamp(-WIDTH, WIDTH) + i32::from(class) * (2 * WIDTH + 1);
        Self { band, ..self }
    }

    /// Returns the same key for a job with this place among those with equal keys.
    pub(crate) fn at_place(self, place: u32) -> Self {
        Self { place, ..self }
    }

    /// Returns the same key, to be computed again at `until`.
    pub fn until(self, until: Option<Time>) -> Self {
        Self { until, ..self }
    }

    /// Returns the same key for a job whose service so far no longer counts.
    pub fn with_fresh_start(self) -> Self {
        Self {
            fresh_start: true,
            ..self
        }
    }

    /// Returns the same key, with a note that the order finds in the job from now on.
    pub fn with_note(self, note: u32) -> Self {
        Self {
            note: Some(note),
            ..self
        }
    }

    /// Returns the value of the key at a moment.
    pub fn value(&self, now: Time) -> i128 {
        self.base + i128::from(self.slope) * i128::from(now.0)
    }

    /// Returns the growth of the key per microsecond.
    pub fn slope(&self) -> i64 {
        self.slope
    }

    /// Returns its position among keys of equal slope, which time does not change.
    pub(crate) fn position(&self, job: JobKey) -> Position {
        Position {
            band: self.band,
            base: self.base,
            place: self.place,
            job,
        }
    }
}

/// A position in a sorted set of keys of equal slope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) band: i32,
    pub(crate) base: i128,
    pub(crate) place: u32,
    pub(crate) job: JobKey,
}

impl Position {
    /// Returns the rank among all keys at a moment.
    pub(crate) fn rank(&self, slope: i64, now: Time) -> Rank {
        Rank {
            band: self.band,
            value: self.base + i128::from(slope) * i128::from(now.0),
            place: self.place,
            job: self.job,
        }
    }
}

/// A job's rank in the queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rank {
    /// The band of its sort key.
    pub band: i32,
    /// The value of its sort key at that moment.
    pub value: i128,
    /// Its place among jobs with equal keys.
    #[serde(default)]
    pub place: u32,
    /// The job.
    pub job: JobKey,
}
