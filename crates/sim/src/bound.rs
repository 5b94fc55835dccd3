//! A lower bound on the average completion time that no schedule can beat.
//!
//! Valid for every preemptive, clairvoyant schedule of rigid gangs on `gpus` GPUs, whatever its placement. A job is done
//! no sooner than half its run time after its mean busy time. The sum of mean busy times is least on one fluid machine
//! of speed `gpus` that always serves the job of smallest area (GPUs × run time) (Goemans; Turek et al.). In each busy
//! period of that machine the bound counts the best prefix of jobs by area this way, and the rest by run time alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A job: submission time, run time and width. Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundJob {
    /// Submission time.
    pub submit_s: f64,
    /// Run time at full speed.
    pub duration_s: f64,
    /// Width.
    pub gpus: u32,
}

/// Returns the bound on the mean completion time in seconds. Jobs wider than the cluster are ignored; zero without jobs.
pub fn lower_bound_avg_jct(jobs: &[BoundJob], gpus: u32) -> f64 {
    let mut jobs: Vec<BoundJob> = jobs
        .iter()
        .copied()
        .filter(|j| j.gpus <= gpus && j.gpus > 0)
        .collect();
    if jobs.is_empty() {
        return 0.0;
    }
    if !jobs.is_sorted_by(|a, b| a.submit_s <= b.submit_s) {
        jobs.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s));
    }
    let speed = f64::from(gpus);
    let alone: f64 = jobs.iter().map(|j| j.duration_s).sum();
    let mut more = 0.0;
    let mut next = 0;
    while next < jobs.len() {
        next = busy_period(&jobs, next, speed, &mut more);
    }
    (alone + more) / jobs.len() as f64
}

/// Serves one busy period that starts with job `first`, adds the bound it gives beyond run times, and returns the first
/// job after it.
fn busy_period(jobs: &[BoundJob], first: usize, speed: f64, more: &mut f64) -> usize {
    // (area, index), smallest area first; the bits of a positive float sort like the float.
    let area = |i: usize| jobs[i].duration_s * f64::from(jobs[i].gpus);
    let mut ready: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut left: Vec<f64> = Vec::new();
    let mut busy: Vec<f64> = Vec::new();
    let mut now = jobs[first].submit_s;
    let mut next = first;
    loop {
        while next < jobs.len() && jobs[next].submit_s <= now {
            ready.push(Reverse((area(next).to_bits(), next)));
            left.push(area(next));
            busy.push(0.0);
            next += 1;
        }
        let Some(&Reverse((_, i))) = ready.peek() else {
            break;
        };
        let k = i - first;
        let until = now + left[k] / speed;
        let end = if next < jobs.len() {
            until.min(jobs[next].submit_s)
        } else {
            until
        };
        // The share of the job served in [now, end), times the middle of that interval after its submission.
        let served = (end - now) * speed;
        busy[k] += served * ((now + end) / 2.0 - jobs[i].submit_s);
        if end >= until {
            left[k] = 0.0;
            ready.pop();
        } else {
            left[k] -= served;
        }
        now = end;
    }
    let mut by_area: Vec<usize> = (first..next).collect();
    by_area.sort_unstable_by(|a, b| area(*a).total_cmp(&area(*b)).then(a.cmp(b)));
    let (mut sum, mut best) = (0.0, 0.0f64);
    for i in by_area {
        let mean_busy = busy[i - first] / area(i).max(f64::MIN_POSITIVE);
        sum += mean_busy - jobs[i].duration_s / 2.0;
        best = best.max(sum);
    }
    *more += best;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_s: f64, duration_s: f64, gpus: u32) -> BoundJob {
        BoundJob {
            submit_s,
            duration_s,
            gpus,
        }
    }

    #[test]
    fn a_job_alone_takes_its_run_time() {
        assert_eq!(lower_bound_avg_jct(&[job(5.0, 10.0, 1)], 4), 10.0);
        assert_eq!(lower_bound_avg_jct(&[], 4), 0.0);
        assert_eq!(lower_bound_avg_jct(&[job(0.0, 10.0, 8)], 4), 0.0);
    }

    #[test]
    fn full_width_jobs_are_served_one_after_the_other() {
        // Two jobs that each take the whole machine: 10 then 20 seconds, the exact optimum.
        let jobs = [job(0.0, 10.0, 4), job(0.0, 10.0, 4)];
        assert!((lower_bound_avg_jct(&jobs, 4) - 15.0).abs() < 1e-9);
    }
}
