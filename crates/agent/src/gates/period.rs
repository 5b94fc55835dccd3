//! Measures how long the cycles of a group take.

use std::collections::VecDeque;

use super::Micros;

/// Number of latest cycles that are kept.
const MAX_CYCLES: usize = 16;
/// Number of cycles from which on the period is known.
const MIN_CYCLES: usize = 4;

/// Measures cycles in which all members took part from beginning to end.
#[derive(Debug, Clone, Default)]
pub(super) struct PeriodMeter {
    /// When the current cycle began, if all members take part in it.
    since: Option<Micros>,
    recent: VecDeque<Micros>,
}

impl PeriodMeter {
    /// A cycle has ended, and the next one begins.
    pub(super) fn end_cycle(&mut self, now: Micros, are_all_inside: bool) {
        if let Some(since) = self.since {
            if self.recent.len() == MAX_CYCLES {
                self.recent.pop_front();
            }
            self.recent.push_back(now.saturating_sub(since));
        }
        self.since = are_all_inside.then_some(now);
    }

    /// The current cycle does not count.
    pub(super) fn interrupt(&mut self) {
        self.since = None;
    }

    /// Returns the mean of the latest cycles, once there were enough.
    pub(super) fn period_us(&self) -> Option<Micros> {
        let count = self.recent.len();
        (count >= MIN_CYCLES).then(|| self.recent.iter().sum::<Micros>() / count as Micros)
    }
}
