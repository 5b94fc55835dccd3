//! Run times of finished jobs, from which those of similar jobs are drawn.

use std::collections::BTreeMap;

use dovetail_model::{JobSpec, Time};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::state::{ClusterState, End, JobRecord, JobState};

/// A finished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedJob {
    /// User who submitted it.
    pub user: String,
    /// Name of the job.
    pub name: String,
    /// Number of GPUs it requested.
    pub gpus: u32,
    /// Run time.
    pub run_time: Time,
}

/// Number of latest jobs that count.
const MAX_JOBS: usize = 5_000;
/// Number of similar jobs from which run times are drawn; with fewer, less similar ones are used.
const MIN_SIMILAR: usize = 8;

/// Run times of finished jobs, by similarity.
#[derive(Debug, Clone, Default)]
pub struct RunTimes {
    by_name: BTreeMap<(String, String), Vec<Time>>,
    by_user: BTreeMap<(String, u32), Vec<Time>>,
    by_width: BTreeMap<u32, Vec<Time>>,
    all: Vec<Time>,
}

impl RunTimes {
    /// Collects the run times of jobs.
    pub fn new(jobs: impl IntoIterator<Item = FinishedJob>) -> Self {
        let mut run_times = Self::default();
        for job in jobs {
            let width = job.gpus.next_power_of_two();
            run_times
                .by_name
                .entry((job.user.clone(), job.name))
                .or_default()
                .push(job.run_time);
            run_times
                .by_user
                .entry((job.user, width))
                .or_default()
                .push(job.run_time);
            run_times.by_width.entry(width).or_default().push(job.run_time);
            run_times.all.push(job.run_time);
        }
        let tables = run_times
            .by_name
            .values_mut()
            .chain(run_times.by_user.values_mut());
        let tables = tables.chain(run_times.by_width.values_mut());
        tables.for_each(|times| times.sort_unstable());
        run_times.all.sort_unstable();
        run_times
    }

    /// Collects the run times of the finished jobs of a cluster.
    pub(super) fn of_cluster(state: &ClusterState) -> Self {
        let finished = |job: &JobRecord| {
            let JobState::Ended(End::Completed | End::Failed { .. } | End::TimeLimit) = &job.state else {
                return None;
            };
            let spans = job
                .attempts
                .iter()
                .map(|a| a.until.unwrap_or(job.since).since(a.since).0);
            let run_time = Time(spans.sum());
            (run_time.0 > 0).then(|| FinishedJob {
                user: job.user.clone(),
                name: job.request.name.clone(),
                gpus: job.request.gpus,
                run_time,
            })
        };
        Self::new(state.jobs().rev().filter_map(finished).take(MAX_JOBS))
    }

    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn based_on(&self) -> String {
        format!("run times of the last {} finished jobs", self.all.len())
    }

    /// Returns the run times of the most similar jobs: of the same user and name, of the same user and size, of the same
    /// size, or all.
    fn similar(&self, user: &str, name: &str, gpus: u32) -> &[Time] {
        let width = gpus.next_power_of_two();
        let named = self
            .by_name
            .get(&(user.to_owned(), name.to_owned()))
            .filter(|_| !name.is_empty());
        let of_user = || self.by_user.get(&(user.to_owned(), width));
        let of_width = || self.by_width.get(&width);
        let enough = |times: &&Vec<Time>| times.len() >= MIN_SIMILAR;
        let found = named.filter(enough).or_else(|| of_user().filter(enough));
        found.or_else(|| of_width().filter(enough)).unwrap_or(&self.all)
    }

    /// Draws the remaining run time of a job with this user, name and number of GPUs: that of a similar job that ran
    /// longer.
    pub fn draw_remaining(&self, job: (&str, &str, u32), elapsed: Time, rng: &mut ChaCha8Rng) -> Time {
        let times = self.similar(job.0, job.1, job.2);
        let from = times.partition_point(|t| *t <= elapsed);
        let longer = &times[from..];
        if longer.is_empty() {
            // It has run longer than all of them, so the remaining time is proportional to the elapsed time.
            return Time((elapsed.0 as f64 * rng.random_range(0.05..1.5)) as i64 + 1);
        }
        let drawn = longer[rng.random_range(0..longer.len())];
        // Run times are not limited to those that were observed.
        let drawn = Time((drawn.0 as f64 * rng.random_range(0.9..1.1)) as i64);
        Time((drawn.0 - elapsed.0).max(1))
    }
}

/// Number of latest arrivals that count.
pub(super) const MAX_ARRIVALS: usize = 2_000;

/// Recent arrivals, which are repeated as future ones.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    recent: Vec<(Time, JobSpec)>,
    position: usize,
}

impl Arrivals {
    /// Repeats these arrivals, oldest first.
    pub fn new(recent: Vec<(Time, JobSpec)>) -> Self {
        Self { recent, position: 0 }
    }

    /// Continues from a random position.
    pub fn restart(&mut self, rng: &mut ChaCha8Rng) {
        if !self.recent.is_empty() {
            self.position = rng.random_range(0..self.recent.len());
        }
    }

    /// Returns the next job and the time since the one before.
    pub fn next_arrival(&mut self) -> Option<(Time, JobSpec)> {
        if self.recent.len() < MIN_SIMILAR {
            return None;
        }
        let before = self.recent[self.position].0;
        self.position = (self.position + 1) % self.recent.len();
        let (at, spec) = &self.recent[self.position];
        let mean =
            Time(self.recent[self.recent.len() - 1].0.since(self.recent[0].0).0 / self.recent.len() as i64);
        let gap = if self.position == 0 {
            mean
        } else {
            at.since(before)
        };
        Some((gap, spec.clone()))
    }
}
