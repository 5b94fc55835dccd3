//! When the number of GPUs of a running job may change, because that costs a restart.
//!
//! A job keeps its width for an interval. Where it is known what a restart costs, it also keeps its width for so long that
//! restarts take no more than a small part of its time, and changes that would gain less than they cost are not made.

use std::collections::BTreeMap;
use std::ops::Bound;

use dovetail_engine::{Job, Widths};
use dovetail_model::Time;

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs};

/// The knob for the share of time that restarts may take.
pub(super) const OVERHEAD: Knob = Knob {
    name: "overhead",
    default: "0.05",
    what: "where the cost of a restart is known: most of its time that a job spends on changes of its size, as a fraction; \
           changes that gain less than they cost are not made; 0: only `interval` counts",
};

/// Longest time for which the cost of a restart alone keeps the width of a job.
const MAX_HOLD: Time = Time::from_secs(3_600);

/// Decides which running jobs keep their width.
#[derive(Debug, Clone)]
pub(super) struct Resizing {
    interval: Time,
    overhead_ppm: i64,
    /// Whether all that a change of width is for is to shorten remaining times.
    pub(super) by_gain: bool,
}

/// Jobs of a higher class take GPUs from those of a lower one, whatever restarts cost.
type Class = (bool, i32);

fn class(job: &Job) -> Class {
    (!job.spec.best_effort, job.spec.priority)
}

/// The jobs of a queue, and which of them keep their width.
pub(super) struct SizedQueue<'q> {
    pub(super) jobs: &'q [&'q Job],
    keeps: Vec<bool>,
    pub(super) now: Time,
}

impl SizedQueue<'_> {
    /// Whether the width of a job that runs may change.
    pub(super) fn may_change(&self, position: usize) -> bool {
        !self.keeps[position]
    }
}

impl Resizing {
    pub(super) fn of(knobs: &Knobs, by_gain: bool) -> Result<Self, PolicyError> {
        let overhead: f64 = knobs.at_least("overhead", 0.0)?;
        if overhead > 1.0 {
            return Err(knobs.invalid("overhead", "a number of 0 to 1"));
        }
        Ok(Self {
            interval: knobs.span("interval")?,
            overhead_ppm: (overhead * 1e6) as i64,
            by_gain,
        })
    }

    /// Returns what a restart of the job costs, if that is known and counts.
    fn cost(&self, job: &Job) -> Option<Time> {
        job.spec
            .restart_cost
            .filter(|cost| *cost > Time::ZERO && self.overhead_ppm > 0)
    }

    /// Returns how long the job keeps its width.
    fn hold(&self, job: &Job) -> Time {
        let by_cost = self.cost(job).map_or(Time::ZERO, |cost| {
            let micros = i128::from(cost.0) * 1_000_000 / i128::from(self.overhead_ppm);
            Time(i64::try_from(micros).unwrap_or(i64::MAX)).min(MAX_HOLD)
        });
        self.interval.max(by_cost)
    }

    /// Whether the width of the job changed so recently that it must not change again yet.
    fn is_settled(&self, job: &Job, now: Time) -> bool {
        is_placed(job) && now.since(job.held_since) < self.hold(job)
    }

    /// Returns when the first elastic job that keeps its width for now may be resized again.
    fn settled_until(&self, queue: &[&Job], now: Time) -> Option<Time> {
        let elastic = queue.iter().filter(|job| is_elastic(job));
        let settled = elastic.filter(|job| self.is_settled(job, now));
        settled.map(|job| job.held_since + self.hold(job)).min()
    }

    /// Returns the widths of all jobs: the minimum for each in queue order, and what `distribute` adds to them from the
    /// GPUs that are left, where it is worth a restart.
    pub(super) fn widths(
        &self,
        jobs: &[&Job],
        gpus: u32,
        now: Time,
        distribute: impl Fn(&SizedQueue<'_>, &mut [u32], &mut u32),
    ) -> Widths {
        let mut queue = SizedQueue {
            jobs,
            keeps: jobs.iter().map(|job| self.is_settled(job, now)).collect(),
            now,
        };
        let plan = |queue: &SizedQueue<'_>| {
            let mut left = gpus;
            let mut widths = self.least(queue, &mut left);
            distribute(queue, &mut widths, &mut left);
            (widths, left)
        };
        let (mut widths, mut left) = plan(&queue);
        let wasteful = self.wasteful(&queue, &widths);
        if !wasteful.is_empty() {
            // Others may have use for these GPUs.
            wasteful.iter().for_each(|i| queue.keeps[*i] = true);
            (widths, left) = plan(&queue);
        }
        self.keep_where_no_other_gains(&queue, &mut widths, &mut left);
        if self.by_gain && !self.is_worth_it(&queue, &widths) {
            let held: Vec<u32> = jobs.iter().map(|job| held_width(job)).collect();
            if held.iter().sum::<u32>() <= gpus {
                widths = held;
            }
        }
        Widths {
            gpus: widths,
            valid_until: self.settled_until(jobs, now),
        }
    }

    /// Returns the minimum for every job, in order, while GPUs last; a job that keeps its width has that. Where that is so
    /// because of what a restart costs, only jobs of a higher class take GPUs from it, and leave it what they do not need.
    fn least(&self, queue: &SizedQueue<'_>, left: &mut u32) -> Vec<u32> {
        let is_reserved = |i: usize, job: &Job| queue.keeps[i] && is_elastic(job) && self.cost(job).is_some();
        let mut reserved: BTreeMap<Class, u32> = BTreeMap::new();
        for (i, job) in queue.jobs.iter().enumerate() {
            if is_reserved(i, job) {
                *reserved.entry(class(job)).or_default() += job.width();
            }
        }
        let mut widths = Vec::with_capacity(queue.jobs.len());
        for (i, job) in queue.jobs.iter().enumerate() {
            let (class, mut from) = (class(job), Bound::Included(class(job)));
            if is_reserved(i, job) {
                from = Bound::Excluded(class);
                reserved.entry(class).and_modify(|sum| *sum -= job.width());
            }
            let for_others: u32 = reserved.range((from, Bound::Unbounded)).map(|(_, sum)| sum).sum();
            let available = left.saturating_sub(for_others);
            let least = if queue.keeps[i] {
                job.width()
            } else {
                job.spec.min_gpus
            };
            let width = match least <= available {
                true => least,
                // It would be stopped, and started again with fewer GPUs.
                false if is_reserved(i, job) && job.spec.min_gpus <= available => available,
                false => 0,
            };
            *left -= width;
            widths.push(width);
        }
        widths
    }

    /// Returns the jobs that would grow and gain less than their restart costs.
    fn wasteful(&self, queue: &SizedQueue<'_>, widths: &[u32]) -> Vec<usize> {
        let is_wasteful = |i: &usize| {
            let job = queue.jobs[*i];
            let grows = is_placed(job) && widths[*i] > job.width();
            let (Some(cost), true) = (self.cost(job), grows) else {
                return false;
            };
            gain(job, widths[*i], queue.now).is_some_and(|gain| gain <= cost.0)
        };
        (0..queue.jobs.len()).filter(is_wasteful).collect()
    }

    /// Lets jobs whose restart has a cost keep a width that is larger than planned, while GPUs are left.
    fn keep_where_no_other_gains(&self, queue: &SizedQueue<'_>, widths: &mut [u32], left: &mut u32) {
        for (width, job) in widths.iter_mut().zip(queue.jobs) {
            let more = job.width().saturating_sub(*width);
            if *width > 0 && is_placed(job) && self.cost(job).is_some() && more <= *left {
                *width += more;
                *left -= more;
            }
        }
    }

    /// Whether the changes of width of all jobs together shorten their remaining times by more than restarts cost. A plan in
    /// which a job starts or stops is for more than that.
    fn is_worth_it(&self, queue: &SizedQueue<'_>, widths: &[u32]) -> bool {
        let (mut gained, mut costs) = (0_i128, 0_i128);
        for (job, width) in queue.jobs.iter().zip(widths) {
            if is_placed(job) != (*width > 0) {
                return true;
            }
            if *width == 0 || *width == job.width() {
                continue;
            }
            let (Some(cost), Some(gain)) = (self.cost(job), gain(job, *width, queue.now)) else {
                return true;
            };
            gained += i128::from(gain);
            costs += i128::from(cost.0);
        }
        costs == 0 || gained > costs
    }
}

/// Whether the job has GPUs and was not told to stop.
fn is_placed(job: &Job) -> bool {
    job.holds_gpus() && job.allocation.is_some()
}

/// The GPUs that the job has; zero if it has none or was told to stop.
fn held_width(job: &Job) -> u32 {
    if is_placed(job) { job.width() } else { 0 }
}

fn is_elastic(job: &Job) -> bool {
    job.spec.min_gpus < job.spec.max_gpus
}

/// How much sooner the job would finish with this width, in microseconds, restart not included; none if its length is
/// unknown.
fn gain(job: &Job, width: u32, now: Time) -> Option<i64> {
    let left = job.remaining(now)?;
    let time = |gpus| job.spec.scaling.rate(gpus, job.spec.gpus).time_for(left).0;
    Some(time(job.width()).saturating_sub(time(width)))
}
