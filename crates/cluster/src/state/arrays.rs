//! Arrays of jobs: so many of one array run at once at most.

use super::{ClusterState, Hold, JobState};
use crate::JobId;

impl ClusterState {
    /// Whether as many of the job's array are in line or up as may be.
    pub(super) fn array_is_full(&self, no: JobId) -> bool {
        let Some(part) = self.jobs[&no].request.array else {
            return false;
        };
        let Some(at_most) = part.at_most else {
            return false;
        };
        let of_array = self.jobs.range(part.array..).map(|(_, job)| job);
        let active = of_array
            .take_while(|job| job.request.array.is_some_and(|p| p.array == part.array))
            .filter(|job| job.id != no && job.state.is_in_engine())
            .count();
        active >= at_most as usize
    }

    /// Lets the next of the job's array into line.
    pub(super) fn next_of_array(&mut self, no: JobId) {
        let Some(part) = self.jobs[&no].request.array.filter(|p| p.at_most.is_some()) else {
            return;
        };
        let mut of_array = self.jobs.range(part.array..).map(|(_, job)| job);
        let next = of_array.find(|job| {
            job.request.array.is_some_and(|p| p.array == part.array)
                && job.state == JobState::Held(Hold::Array)
        });
        if let Some(next) = next.map(|job| job.id) {
            self.line_up(next);
        }
    }
}
