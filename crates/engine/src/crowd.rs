//! How many jobs there are: what a policy of fair shares has to know beside a job itself.

use dovetail_model::Time;

use crate::job::Job;

/// The jobs alive at a moment, and over all the time before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// Jobs that were submitted and are not over: held, waiting or running.
    pub jobs: u32,
    /// GPUs of all nodes that ever joined, up or down.
    pub gpus: u32,
    /// The sum over all time so far of the jobs alive, in job-microseconds.
    pub job_time: i128,
}

impl Crowd {
    /// The mean number of jobs alive over the whole life of the job, if it ends `ahead` from now: what it was up to
    /// now, and what it is now for the time ahead.
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
