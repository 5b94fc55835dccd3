//! Where a job stands in line, now and later.
//!
//! An order policy maps a job to a straight line: its value at a moment, and how fast that value moves. The engine
//! keeps lines of equal slope in sorted sets, so it never has to re-sort because time went by: it only compares the
//! ends of a few sets. A policy whose key bends (queues, quanta) says until when the line holds.

use dovetail_model::{JobId, Time};
use serde::{Deserialize, Serialize};

/// A job's key as a function of time: smaller is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Compared first; does not move.
    pub band: i32,
    /// The key at the epoch.
    base: i128,
    /// How much the key grows in a microsecond.
    slope: i64,
    /// From this moment on the policy wants to be asked again.
    pub until: Option<Time>,
    /// What the job has used so far shall not count against it any more.
    pub fresh_start: bool,
    /// What the order wants to find in [`crate::Job::remembered`] from now on.
    pub remember: Option<u32>,
}

impl Line {
    /// A key that stays what it is.
    pub fn fixed(value: i128) -> Self {
        Self {
            band: 0,
            base: value,
            slope: 0,
            until: None,
            fresh_start: false,
            remember: None,
        }
    }

    /// A key that is `value` now and grows by `slope` in every microsecond.
    pub fn moving(now: Time, value: i128, slope: i64) -> Self {
        Self {
            band: 0,
            base: value - i128::from(slope) * i128::from(now.0),
            slope,
            until: None,
            fresh_start: false,
            remember: None,
        }
    }

    /// The same line in another band.
    pub fn in_band(self, band: i32) -> Self {
        Self { band, ..self }
    }

    /// The same line behind all lines of lower classes, and ahead of all of higher ones.
    pub(crate) fn of_class(self, class: u8) -> Self {
        const WIDTH: i32 = 1 << 22;
        let band = self.band.clamp(-WIDTH, WIDTH) + i32::from(class) * (2 * WIDTH + 1);
        Self { band, ..self }
    }

    /// The same line, to be looked at again at `until`.
    pub fn until(self, until: Option<Time>) -> Self {
        Self { until, ..self }
    }

    /// The same line, for a job that begins anew.
    pub fn with_fresh_start(self) -> Self {
        Self {
            fresh_start: true,
            ..self
        }
    }

    /// The same line, with a note that the order will find in the job from now on.
    pub fn remembering(self, note: u32) -> Self {
        Self {
            remember: Some(note),
            ..self
        }
    }

    /// The key at a moment.
    pub fn value(&self, now: Time) -> i128 {
        self.base + i128::from(self.slope) * i128::from(now.0)
    }

    /// How much the key grows in a microsecond.
    pub fn slope(&self) -> i64 {
        self.slope
    }

    /// The place among lines of equal slope, which time does not change.
    pub(crate) fn spot(&self, job: JobId) -> Spot {
        Spot {
            band: self.band,
            base: self.base,
            job,
        }
    }
}

/// A place in a sorted set of lines of equal slope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) band: i32,
    pub(crate) base: i128,
    pub(crate) job: JobId,
}

impl Spot {
    /// The place among all lines at a moment.
    pub(crate) fn rank(&self, slope: i64, now: Time) -> Rank {
        Rank {
            band: self.band,
            value: self.base + i128::from(slope) * i128::from(now.0),
            job: self.job,
        }
    }
}

/// A place in line at one moment. Ties are broken by job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rank {
    /// The band of the line.
    pub band: i32,
    /// Its value at that moment.
    pub value: i128,
    /// The job.
    pub job: JobId,
}
