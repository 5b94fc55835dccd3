//! Themis: the job that is treated worst comes first. Key: −ρ to a hundredth, with ρ the finish-time fairness that the job
//! would have at its end if it held its GPUs from now on.
//!
//! ρ = shared / ideal. *Shared* is the time since submission plus the time left at the job's speed. *Ideal* is its total run
//! time on an equal share of the cluster, 1/n, with n the mean number of jobs alive over its lifetime: the past mean up to
//! now, and the current number for the time left. At the end of the job this equals the ρ that reports show.

use dovetail_engine::{ClusterLoad, Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;
use dovetail_model::fairness::fair_time;

use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "themis",
    what: "finish-time fairness: the job that is worst off compared with an equal share of the cluster first",
    source: "Themis (NSDI'20)",
    key: "−ρ = −(time since submission + run time left) / run time on a 1/n share of the cluster",
    companions: &[(Kind::Discipline, "auction")],
    knobs: &[],
    build: |_| Ok(Box::new(Themis)),
};

/// Worst finish-time fairness first.
#[derive(Debug, Clone)]
pub(super) struct Themis;

impl Part for Themis {
    fn name(&self) -> String {
        "themis".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }
}

/// Keys are whole hundredths of the logarithm of ρ: jobs within a hundredth of one another are served in order of
/// submission. A key then stays constant for a while, and not every auction has to sort the queue again.
const RESOLUTION: f64 = 100.0;

impl QueueOrder for Themis {
    /// Without other jobs: time since submission plus run time left, over the total run time.
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let no_load = ClusterLoad {
            jobs: 0,
            gpus: 1,
            job_time: job.job_time_before,
        };
        self.key_under_load(job, &no_load, now)
    }

    fn key_under_load(&self, job: &Job, load: &ClusterLoad, now: Time) -> QueueKey {
        match rho(job, load, now) {
            Some(rho) => QueueKey::fixed(-((libm::log(rho.max(1e-12)) * RESOLUTION).floor() as i128)),
            None => QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }

    fn depends_on_all_jobs(&self) -> bool {
        true
    }
}

/// The finish-time fairness that the job would have at its end if it held its GPUs from now on; `None` if its length is
/// unknown.
fn rho(job: &Job, load: &ClusterLoad, now: Time) -> Option<f64> {
    let ahead = job.expected_end(now)?.since(now);
    let shared = (now.since(job.spec.submit) + ahead).0 as f64;
    let alive = load.mean_over_life(job, now, ahead);
    let work = job.spec.expected?.0.max(1) as f64;
    Some(shared / fair_time(work, job.spec.gpus, alive, load.gpus))
}
