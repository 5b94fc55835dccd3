//! Jobs that were submitted next to each other and look the same often take equally long: parts of a sweep, a job that was
//! resubmitted.

use std::collections::BTreeMap;

use dovetail_model::{JobKey, Time, Work};

use crate::history::JobTraits;

/// Difference of run times, as a ratio, up to which they are equal.
const TOLERANCE: f64 = 1.1;
/// Number of pairs of finished neighbours below which a share is assumed.
const MIN_PAIRS: u32 = 20;
/// Share of neighbours that take equally long, where it is not known.
const DEFAULT_SHARE: f64 = 0.3;

/// A job, in order of submission.
#[derive(Debug, Clone)]
pub struct SubmittedJob {
    /// Its key; `None` if the engine does not have it.
    pub key: Option<JobKey>,
    /// When it was submitted.
    pub submitted: Time,
    /// What it has in common with others.
    pub traits: JobTraits,
    /// Its work, if it has finished.
    pub work: Option<Work>,
}

/// Whose work that of a job is often equal to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// The work of the neighbour, if it has finished; otherwise its key.
    pub work: Result<Work, JobKey>,
    /// Probability that the run times are equal.
    pub share: f64,
}

/// Counts of pairs of neighbours, and of those that took equally long.
#[derive(Debug, Clone, Copy, Default)]
struct Pairs {
    all: u32,
    equal: u32,
}

impl Pairs {
    fn share(self) -> f64 {
        match self.all < MIN_PAIRS {
            true => DEFAULT_SHARE,
            false => f64::from(self.equal) / f64::from(self.all),
        }
    }
}

/// Returns the neighbour of each job that has not finished. Jobs are in order of submission.
pub fn neighbours(jobs: &[SubmittedJob]) -> BTreeMap<JobKey, Neighbour> {
    let mut kinds: BTreeMap<&JobTraits, Vec<&SubmittedJob>> = BTreeMap::new();
    for job in jobs {
        kinds.entry(&job.traits).or_default().push(job);
    }
    let near_gap = median_gap(&kinds);
    let is_near = |a: &SubmittedJob, b: &SubmittedJob| a.submitted.since(b.submitted).0.abs() <= near_gap.0;
    let mut pairs = [Pairs::default(); 2];
    for kind in kinds.values() {
        for pair in kind.windows(2) {
            if let (Some(a), Some(b)) = (pair[0].work, pair[1].work) {
                let counts = &mut pairs[usize::from(is_near(pair[0], pair[1]))];
                counts.all += 1;
                counts.equal += u32::from(are_equal(a, b));
            }
        }
    }
    let mut found = BTreeMap::new();
    for kind in kinds.values() {
        for (i, job) in kind.iter().enumerate() {
            let (None, Some(key)) = (job.work, job.key) else {
                continue;
            };
            if let Some(neighbour) = nearest(kind, i) {
                let share = pairs[usize::from(is_near(job, neighbour))].share();
                let work = match (neighbour.work, neighbour.key) {
                    (Some(work), _) => Ok(work),
                    (None, Some(key)) => Err(key),
                    (None, None) => continue,
                };
                found.insert(key, Neighbour { work, share });
            }
        }
    }
    found
}

/// Returns the nearest finished job of the same kind, or else the one before.
fn nearest<'a>(kind: &[&'a SubmittedJob], i: usize) -> Option<&'a SubmittedJob> {
    let before = i.checked_sub(1).map(|j| kind[j]);
    let after = kind.get(i + 1).copied();
    let finished = |job: &&SubmittedJob| job.work.is_some();
    before.filter(finished).or(after.filter(finished)).or(before)
}

fn are_equal(a: Work, b: Work) -> bool {
    let (low, high) = (a.min(b).0 as f64, a.max(b).0 as f64);
    high <= low * TOLERANCE
}

fn median_gap(kinds: &BTreeMap<&JobTraits, Vec<&SubmittedJob>>) -> Time {
    let pairs = kinds.values().flat_map(|kind| kind.windows(2));
    let mut gaps: Vec<Time> = pairs.map(|p| p[1].submitted.since(p[0].submitted)).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(Time::ZERO)
}
