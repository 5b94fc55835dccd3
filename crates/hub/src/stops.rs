//! Coordinated stops: all ranks of a job stop after the same step, the last one that any of them has begun.

use std::collections::BTreeMap;

use dovetail_cluster::{AttemptId, JobId};

/// Steps that the ranks of stopping jobs have reached.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    steps: BTreeMap<(JobId, AttemptId), BTreeMap<u32, u64>>,
}

/// Largest number of stopping jobs; the oldest ones have ended by then.
const MAX_JOBS: usize = 10_000;

impl Stops {
    /// Records the step of a rank. Returns the step after which all ranks stop, once all have reported theirs.
    pub(crate) fn at_step(
        &mut self,
        task: (JobId, AttemptId),
        rank: u32,
        step: u64,
        world_size: u32,
    ) -> Option<u64> {
        if self.steps.len() >= MAX_JOBS {
            self.steps.pop_first();
        }
        let steps = self.steps.entry(task).or_default();
        steps.insert(rank, step);
        let all_reported = steps.len() as u32 >= world_size.max(1);
        all_reported.then(|| steps.values().copied().max().unwrap_or(step))
    }

    /// Removes an attempt that has ended.
    pub(crate) fn forget(&mut self, task: (JobId, AttemptId)) {
        self.steps.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_is_returned_when_all_ranks_have_reported_and_to_later_reports() {
        let mut stops = Stops::default();
        assert_eq!(stops.at_step((1, 1), 0, 7, 3), None);
        assert_eq!(stops.at_step((1, 1), 2, 8, 3), None);
        assert_eq!(
            stops.at_step((1, 1), 2, 8, 3),
            None,
            "a second report of the same rank does not count"
        );
        assert_eq!(stops.at_step((1, 1), 1, 7, 3), Some(8));
        assert_eq!(stops.at_step((1, 1), 0, 7, 3), Some(8));
        stops.forget((1, 1));
        assert_eq!(stops.at_step((1, 1), 0, 7, 2), None);
        assert_eq!(stops.at_step((2, 1), 0, 3, 0), Some(3));
    }
}
