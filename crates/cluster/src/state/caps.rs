//! Caps: the jobs of one user in a virtual cluster have or stand in line for so many GPUs at most.

use super::{ClusterState, Hold, JobRecord, JobState};
use crate::JobId;

impl ClusterState {
    /// GPUs that jobs of the same user in the same virtual cluster have or stand in line for.
    pub(super) fn in_use_beside(&self, job: &JobRecord) -> u64 {
        let same = |other: &&JobRecord| {
            other.id != job.id
                && other.state.is_in_engine()
                && other.user == job.user
                && other.request.tenant == job.request.tenant
        };
        let in_engine = self.tickets_alive().filter_map(|no| self.jobs.get(&no));
        in_engine
            .filter(same)
            .map(|other| u64::from(other.request.gpus))
            .sum()
    }

    fn tickets_alive(&self) -> impl Iterator<Item = JobId> {
        self.engine.jobs().map(|job| self.job_ids[job.spec.id])
    }

    /// Whether the job has to wait because its user has enough already.
    pub(super) fn is_over_cap(&self, no: JobId) -> bool {
        let cap = self.cluster_of(no).and_then(|cluster| cluster.user_cap_gpus);
        let job = &self.jobs[&no];
        cap.is_some_and(|cap| self.in_use_beside(job) + u64::from(job.request.gpus) > u64::from(cap))
    }

    /// Lets jobs into line that waited only because of a cap, oldest first.
    pub(super) fn let_in_below_caps(&mut self) {
        let held: Vec<JobId> = self.capped.iter().copied().collect();
        for no in held {
            if self.jobs[&no].state == JobState::Held(Hold::Cap) && !self.is_over_cap(no) {
                self.line_up(no);
            }
        }
    }
}
