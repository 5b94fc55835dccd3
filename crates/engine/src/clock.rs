//! When decisions are taken.

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

/// When decisions are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// Whenever something happens.
    Events,
    /// Only at multiples of a period.
    Rounds {
        /// The period.
        period: Time,
        /// Delay of each round after the multiple of the period.
        #[serde(default)]
        offset: Time,
    },
}

impl Clock {
    /// Returns a clock with rounds at the multiples of a period.
    pub fn rounds(period: Time) -> Self {
        Self::Rounds {
            period,
            offset: Time::ZERO,
        }
    }

    /// Returns the first moment from `at` on at which a decision may be taken.
    pub(crate) fn next(self, at: Time) -> Time {
        match self {
            Self::Events => at,
            Self::Rounds { period, offset } => (at - offset).next_multiple_of(period) + offset,
        }
    }
}
