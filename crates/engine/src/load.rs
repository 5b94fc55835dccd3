//! The load of the cluster, on which the keys of fair-share orders depend.

use dovetail_model::Time;

use crate::job::Job;

/// The number of unfinished jobs, now and integrated over the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLoad {
    /// Jobs that were submitted and have not ended: held, queued or running.
    pub jobs: u32,
    /// GPUs of all nodes that ever joined, up or down.
    pub gpus: u32,
    /// Integral over time of the number of unfinished jobs, in job-microseconds.
    pub job_time: i128,
}

impl ClusterLoad {
    /// Returns the mean number of unfinished jobs between the submission of the job and its end, if it ends `ahead` from
    /// now and the number stays what it is now.
    pub fn mean_over_life(&self, job: &Job, now: Time, ahead: Time) -> f64 {
        let past = (self.job_time - job.job_time_before) as f64;
        let jobs = f64::from(self.jobs);
        let life = now.since(job.spec.submit).0 as f64 + ahead.0 as f64;
        if life > 0.0 {
            (past + jobs * ahead.0 as f64) / life
        } else {
            jobs
        }
    }
}
