//! All ranks of a job stop after the same step: the greatest that any of them has begun.

use std::collections::BTreeMap;

use dovetail_cluster::{AttemptId, JobId};

/// What ranks that were told to stop have said.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    said: BTreeMap<(JobId, AttemptId), BTreeMap<u32, u64>>,
}

/// Jobs about which something is remembered at most; the oldest are over by then.
const MOST: usize = 10_000;

impl Stops {
    /// A rank is at this step. Tells the step after which all stop, once all have said where they are.
    pub(crate) fn at_step(
        &mut self,
        task: (JobId, AttemptId),
        rank: u32,
        step: u64,
        world: u32,
    ) -> Option<u64> {
        if self.said.len() >= MOST {
            self.said.pop_first();
        }
        let said = self.said.entry(task).or_default();
        said.insert(rank, step);
        (said.len() as u32 >= world.max(1)).then(|| said.values().copied().max().unwrap_or(step))
    }

    /// The job is over, or starts again.
    pub(crate) fn forget(&mut self, task: (JobId, AttemptId)) {
        self.said.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_step_is_told_when_all_have_spoken_and_again_to_who_asks_again() {
        let mut stops = Stops::default();
        assert_eq!(stops.at_step((1, 1), 0, 7, 3), None);
        assert_eq!(stops.at_step((1, 1), 2, 8, 3), None);
        assert_eq!(
            stops.at_step((1, 1), 2, 8, 3),
            None,
            "the same rank twice is one rank"
        );
        assert_eq!(stops.at_step((1, 1), 1, 7, 3), Some(8));
        assert_eq!(stops.at_step((1, 1), 0, 7, 3), Some(8));
        stops.forget((1, 1));
        assert_eq!(stops.at_step((1, 1), 0, 7, 2), None);
        assert_eq!(stops.at_step((2, 1), 0, 3, 0), Some(3));
    }
}
