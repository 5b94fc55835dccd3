//! How long jobs ran here, and how long one like them will.

use std::collections::BTreeMap;

use dovetail_model::{JobSpec, Time};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::state::{ClusterState, End, JobRecord, JobState};

/// A job that is over: what is known of jobs like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Who sent it.
    pub user: String,
    /// Its name.
    pub name: String,
    /// GPUs it asked for.
    pub gpus: u32,
    /// How long it ran.
    pub ran: Time,
}

/// Jobs that count at most, the latest.
const MOST: usize = 5_000;
/// So many make a kind of their own.
const KIND: usize = 8;

/// How long jobs ran, by kind.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    by_name: BTreeMap<(String, String), Vec<Time>>,
    by_user: BTreeMap<(String, u32), Vec<Time>>,
    by_width: BTreeMap<u32, Vec<Time>>,
    all: Vec<Time>,
}

impl Lengths {
    /// Of these jobs.
    pub fn new(past: impl IntoIterator<Item = Past>) -> Self {
        let mut lengths = Self::default();
        for job in past {
            let width = job.gpus.next_power_of_two();
            lengths
                .by_name
                .entry((job.user.clone(), job.name))
                .or_default()
                .push(job.ran);
            lengths
                .by_user
                .entry((job.user, width))
                .or_default()
                .push(job.ran);
            lengths.by_width.entry(width).or_default().push(job.ran);
            lengths.all.push(job.ran);
        }
        let tables = lengths.by_name.values_mut().chain(lengths.by_user.values_mut());
        let tables = tables.chain(lengths.by_width.values_mut());
        tables.for_each(|times| times.sort_unstable());
        lengths.all.sort_unstable();
        lengths
    }

    /// Of the jobs that ended in the book.
    pub(super) fn of(state: &ClusterState) -> Self {
        let past = |job: &JobRecord| {
            let JobState::Ended(End::Completed | End::Failed { .. } | End::TimeLimit) = &job.state else {
                return None;
            };
            let spans = job
                .attempts
                .iter()
                .map(|a| a.until.unwrap_or(job.since).since(a.since).0);
            let ran = Time(spans.sum());
            (ran.0 > 0).then(|| Past {
                user: job.user.clone(),
                name: job.request.name.clone(),
                gpus: job.request.gpus,
                ran,
            })
        };
        Self::new(state.jobs().rev().filter_map(past).take(MOST))
    }

    /// How many jobs it knows.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn based_on(&self) -> String {
        format!("run times of the last {} jobs that ended here", self.all.len())
    }

    /// The run times of jobs like this.
    fn like(&self, user: &str, name: &str, gpus: u32) -> &[Time] {
        let width = gpus.next_power_of_two();
        let named = self
            .by_name
            .get(&(user.to_owned(), name.to_owned()))
            .filter(|_| !name.is_empty());
        let of_user = || self.by_user.get(&(user.to_owned(), width));
        let of_width = || self.by_width.get(&width);
        let enough = |times: &&Vec<Time>| times.len() >= KIND;
        let found = named.filter(enough).or_else(|| of_user().filter(enough));
        found.or_else(|| of_width().filter(enough)).unwrap_or(&self.all)
    }

    /// How long a job runs on that has run for so long: as one of those like it that ran longer.
    pub fn left(&self, like: (&str, &str, u32), ran: Time, rng: &mut ChaCha8Rng) -> Time {
        let times = self.like(like.0, like.1, like.2);
        let from = times.partition_point(|t| *t <= ran);
        let longer = &times[from..];
        if longer.is_empty() {
            // It has outrun all of them: it may go on for as long again, or not.
            return Time((ran.0 as f64 * rng.random_range(0.05..1.5)) as i64 + 1);
        }
        let drawn = longer[rng.random_range(0..longer.len())];
        // Times that were seen are not the only ones there are.
        let drawn = Time((drawn.0 as f64 * rng.random_range(0.9..1.1)) as i64);
        Time((drawn.0 - ran.0).max(1))
    }
}

/// Arrivals that count at most, the latest.
pub(super) const LATELY: usize = 2_000;

/// Who came lately, and when.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    past: Vec<(Time, JobSpec)>,
    at: usize,
}

impl Arrivals {
    /// These, oldest first.
    pub fn new(past: Vec<(Time, JobSpec)>) -> Self {
        Self { past, at: 0 }
    }

    /// Goes on from somewhere else.
    pub fn anew(&mut self, rng: &mut ChaCha8Rng) {
        if !self.past.is_empty() {
            self.at = rng.random_range(0..self.past.len());
        }
    }

    /// Who comes next, and how long after the one before: as it was once.
    pub fn following(&mut self) -> Option<(Time, JobSpec)> {
        if self.past.len() < KIND {
            return None;
        }
        let before = self.past[self.at].0;
        self.at = (self.at + 1) % self.past.len();
        let (at, spec) = &self.past[self.at];
        let mean = Time(self.past[self.past.len() - 1].0.since(self.past[0].0).0 / self.past.len() as i64);
        let gap = if self.at == 0 { mean } else { at.since(before) };
        Some((gap, spec.clone()))
    }
}
