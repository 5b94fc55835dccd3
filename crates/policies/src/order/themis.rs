//! Themis: the job that sharing has served worst goes first. Key: −ρ to a hundredth, with ρ the finish-time fairness it
//! would end with if it had its GPUs from now on.
//!
//! ρ = shared / ideal. *Shared* is the time since submission and what is left at the job's speed. *Ideal* is its whole
//! run time on an equal share of the cluster, a 1/n part with n the mean number of jobs alive over its life: as it was
//! up to now, and as it is now for the time ahead. At the end of the job this is the ρ that the figures of a run have.

use dovetail_engine::{Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;
use dovetail_model::fairness::fair_time;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "themis",
    what: "finish-time fairness: who is worst off against an equal share of the cluster goes first",
    source: "Themis (NSDI'20)",
    key: "−ρ = −(time since submission + run time left) / run time on a 1/n share of the cluster",
    knowledge: Knowledge::Estimate,
    knobs: &[],
    build: |_| Ok(Box::new(Themis)),
};

/// Worst finish-time fairness first.
#[derive(Debug, Clone)]
pub struct Themis;

impl Part for Themis {
    fn name(&self) -> String {
        "themis".to_owned()
    }
}

/// Keys are whole hundredths of the logarithm of ρ: who is within a hundredth of another is as badly off, and whoever
/// came first goes first. A key then stays the same for a while, and the line need not be drawn anew for every auction.
const FINE: f64 = 100.0;

impl Order for Themis {
    /// Among nobody: time since submission and run time left, over the whole run time.
    fn line(&self, job: &Job, now: Time) -> Line {
        let nobody = Crowd {
            jobs: 0,
            gpus: 1,
            job_time: job.job_time_before,
        };
        self.line_among(job, &nobody, now)
    }

    fn line_among(&self, job: &Job, crowd: &Crowd, now: Time) -> Line {
        match rho(job, crowd, now) {
            Some(rho) => Line::fixed(-((libm::log(rho.max(1e-12)) * FINE).floor() as i128)),
            None => Line::fixed(i128::from(job.spec.submit.0)).in_band(1),
        }
    }

    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}

/// The finish-time fairness the job would end with if it had its GPUs from now on; none if its size is not known.
pub fn rho(job: &Job, crowd: &Crowd, now: Time) -> Option<f64> {
    let ahead = job.expected_end(now)?.since(now);
    let shared = (now.since(job.spec.submit) + ahead).0 as f64;
    let alive = crowd.mean_over_life(job, now, ahead);
    let work = job.spec.expected?.0.max(1) as f64;
    Some(shared / fair_time(work, job.spec.gpus, alive, crowd.gpus))
}
