//! A queue of jobs: sets of sort keys of equal slope, each of which stays sorted as time passes.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{JobKey, Time};

use crate::queue_key::{Position, QueueKey, Rank};

/// Positions to insert or remove together, by group.
#[derive(Debug)]
pub(crate) struct Batch<K> {
    groups: BTreeMap<(K, i64), Vec<Position>>,
}

impl<K> Default for Batch<K> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Copy> Batch<K> {
    /// Adds the position of a job.
    pub(crate) fn push(&mut self, key: K, sort_key: &QueueKey, job: JobKey) {
        let group = self.groups.entry((key, sort_key.slope())).or_default();
        group.push(sort_key.position(job));
    }
}

/// A queue of jobs, in groups of equal key `K` (a shape, or nothing) and equal slope.
#[derive(Debug, Clone)]
pub(crate) struct Queue<K> {
    groups: BTreeMap<(K, i64), BTreeSet<Position>>,
    len: usize,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<K: Ord + Copy> Queue<K> {
    pub(crate) fn insert(&mut self, key: K, sort_key: &QueueKey, job: JobKey) {
        let is_new = self
            .groups
            .entry((key, sort_key.slope()))
            .or_default()
            .insert(sort_key.position(job));
        debug_assert!(is_new, "job {job} is queued once");
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, key: K, sort_key: &QueueKey, job: JobKey) {
        let group = self
            .groups
            .get_mut(&(key, sort_key.slope()))
            .expect("the group of a queued job exists");
        let was_there = group.remove(&sort_key.position(job));
        assert!(was_there, "job {job} is at the position of its sort key");
        self.len -= 1;
        if group.is_empty() && sort_key.slope() != 0 {
            self.groups.remove(&(key, sort_key.slope()));
        }
    }

    /// Inserts many jobs; sorting them together is cheaper than inserting them one by one.
    pub(crate) fn insert_all(&mut self, batch: Batch<K>) {
        for (key, mut positions) in batch.groups {
            positions.sort_unstable();
            let group = self.groups.entry(key).or_default();
            let all = group.len() + positions.len();
            self.len += positions.len();
            match positions.len() >= group.len() / 8 {
                true => group.append(&mut positions.into_iter().collect()),
                false => group.extend(positions),
            }
            debug_assert_eq!(group.len(), all, "each job is queued once");
        }
    }

    /// Removes many jobs.
    pub(crate) fn remove_all(&mut self, batch: Batch<K>) {
        for (key, positions) in batch.groups {
            let group = self
                .groups
                .get_mut(&key)
                .expect("the group of queued jobs exists");
            let left = group.len() - positions.len();
            self.len -= positions.len();
            if positions.len() >= group.len() / 8 {
                let removed = JobSet::of(&positions);
                let stays = |position: &Position| !removed.contains(position.job);
                *group = std::mem::take(group).into_iter().filter(stays).collect();
            } else {
                for position in &positions {
                    group.remove(position);
                }
            }
            assert_eq!(group.len(), left, "each job is at the position of its sort key");
            if group.is_empty() && key.1 != 0 {
                self.groups.remove(&key);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, key: K, sort_key: &QueueKey, job: JobKey) -> bool {
        self.groups
            .get(&(key, sort_key.slope()))
            .is_some_and(|g| g.contains(&sort_key.position(job)))
    }

    /// Returns every group that is not empty.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'_, K>> {
        self.groups
            .iter()
            .filter(|(_, set)| !set.is_empty())
            .map(|(&(key, slope), set)| Group { key, slope, set })
    }

    /// Returns one group.
    ///
    /// # Panics
    /// Panics if the group does not exist.
    pub(crate) fn group(&self, key: K, slope: i64) -> Group<'_, K> {
        Group {
            key,
            slope,
            set: &self.groups[&(key, slope)],
        }
    }

    /// Returns all jobs, group by group.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobKey> + '_ {
        self.groups.values().flatten().map(|position| position.job)
    }

    /// Returns all jobs in queue order.
    pub(crate) fn sorted(&self, now: Time) -> Vec<Rank> {
        let mut all: Vec<Rank> = self
            .groups()
            .flat_map(|g| g.set.iter().map(move |s| s.rank(g.slope, now)))
            .collect();
        all.sort_unstable();
        all
    }
}

/// A set of jobs, as bits counted from its first member.
struct JobSet {
    first: u32,
    words: Vec<u64>,
}

impl JobSet {
    fn of(positions: &[Position]) -> Self {
        let ids = || positions.iter().map(|position| position.job.0);
        let (first, last) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        let mut words = vec![0; (last - first) as usize / 64 + 1];
        for id in ids() {
            words[(id - first) as usize / 64] |= 1 << ((id - first) % 64);
        }
        Self { first, words }
    }

    fn contains(&self, job: JobKey) -> bool {
        let Some(id) = job.0.checked_sub(self.first) else {
            return false;
        };
        let word = self.words.get(id as usize / 64);
        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}

/// The jobs of one group, whose order never changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a, K> {
    pub(crate) key: K,
    pub(crate) slope: i64,
    set: &'a BTreeSet<Position>,
}

impl<K> Group<'_, K> {
    pub(crate) fn first(&self) -> Option<Position> {
        self.set.first().copied()
    }

    pub(crate) fn last(&self) -> Option<Position> {
        self.set.last().copied()
    }

    /// Returns the positions behind `position`, in queue order.
    pub(crate) fn after(&self, position: Position) -> impl Iterator<Item = Position> + use<'_, K> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.set.range((Excluded(position), Unbounded)).copied()
    }

    /// Returns the position directly ahead of `position`.
    pub(crate) fn before(&self, position: Position) -> Option<Position> {
        self.set.range(..position).next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_give_the_same_queue_as_single_insertions_and_removals() {
        let sort_key = |job: u32| QueueKey::moving(Time(7), i128::from(job * 37 % 101), i64::from(job % 3));
        let key = |job: u32| job % 5;
        let batch = |jobs: &[u32]| {
            let mut batch = Batch::default();
            jobs.iter()
                .for_each(|j| batch.push(key(*j), &sort_key(*j), JobKey(*j)));
            batch
        };
        // Few join many, many join few; few leave many, many leave, and whole groups leave.
        let joining: [Vec<u32>; 3] = [(10..30).collect(), (30..400).collect(), (400..405).collect()];
        let leaving: [Vec<u32>; 3] = [
            (40..44).collect(),
            (44..300).rev().collect(),
            (300..405).collect(),
        ];
        let (mut batched, mut single) = (Queue::default(), Queue::default());
        let assert_same = |a: &Queue<u32>, b: &Queue<u32>| {
            assert_eq!((a.sorted(Time(9)), a.len()), (b.sorted(Time(9)), b.len()));
        };
        for jobs in joining {
            batched.insert_all(batch(&jobs));
            jobs.iter()
                .for_each(|j| single.insert(key(*j), &sort_key(*j), JobKey(*j)));
            assert_same(&batched, &single);
        }
        for jobs in leaving {
            batched.remove_all(batch(&jobs));
            jobs.iter()
                .for_each(|j| single.remove(key(*j), &sort_key(*j), JobKey(*j)));
            assert_same(&batched, &single);
        }
        assert_eq!(batched.len(), 30, "jobs 10 to 39 remain");
    }
}
