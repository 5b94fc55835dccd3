//! What it costs to stop jobs of a model and to start them again.

use std::collections::VecDeque;

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

/// Largest cost of a restart. What exceeds it was not measured, but happened.
const MAX_COST: Time = Time::from_secs(3_600);
/// Number of latest restarts that are kept.
const MAX_RESTARTS: usize = 16;
/// Change of the median, in per cent of it, up to which it counts as known.
const TOLERANCE_PERCENT: u64 = 10;

/// Measured costs of restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LearnedRestarts {
    /// Latest costs, oldest first.
    recent: VecDeque<Time>,
    /// The median that counts as known.
    known: Option<Time>,
}

impl LearnedRestarts {
    /// Adds the cost of a restart. Returns whether that changes much what a restart is known to cost.
    pub(crate) fn add(&mut self, cost: Time) -> bool {
        if self.recent.len() == MAX_RESTARTS {
            self.recent.pop_front();
        }
        self.recent.push_back(cost.clamp(Time::ZERO, MAX_COST));
        let mut sorted: Vec<Time> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted[(sorted.len() - 1) / 2];
        let is_news = self.known.is_none_or(|known| {
            median.0.abs_diff(known.0) * 100 > known.0.unsigned_abs() * TOLERANCE_PERCENT
        });
        if is_news {
            self.known = Some(median);
        }
        is_news
    }

    /// Returns what it costs to stop a job and to start it again: the median of the latest restarts, at most an hour; none
    /// before the first.
    pub fn cost(&self) -> Option<Time> {
        self.known
    }

    /// Returns the number of latest restarts.
    pub fn count(&self) -> usize {
        self.recent.len()
    }

    /// Whether no restart was measured.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LearnedProfiles;

    #[test]
    fn what_a_restart_costs_is_a_median_and_small_changes_are_no_news() {
        let mut all = LearnedProfiles::default();
        let restart = |all: &mut LearnedProfiles, seconds: i64| {
            all.record_restart(Time(1), "bert", Time::from_secs(seconds))
        };
        assert!(restart(&mut all, 20));
        assert!(!restart(&mut all, 21) && !restart(&mut all, 21));
        assert_eq!(
            all.get("bert").unwrap().restarts.cost(),
            Some(Time::from_secs(20))
        );
        assert!(!restart(&mut all, 900), "one slow restart");
        for _ in 0..40 {
            restart(&mut all, 1_000_000);
        }
        let restarts = &all.get("bert").unwrap().restarts;
        assert_eq!(
            (restarts.cost(), restarts.count()),
            (Some(MAX_COST), MAX_RESTARTS)
        );
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<LearnedProfiles>(&text).unwrap(), all);
        let old = r#"{"bert": {"jobs": 1, "updated": 5, "measurements": []}}"#;
        let old: LearnedProfiles = serde_json::from_str(old).unwrap();
        assert!(old.get("bert").unwrap().restarts.is_empty());
    }
}
