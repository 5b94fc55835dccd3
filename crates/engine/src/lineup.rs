//! Jobs in line: sets of lines of equal slope, sorted once and for all.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{JobId, Time};

use crate::line::{Line, Rank, Spot};

/// Jobs in line, in groups of equal key `K` (a shape, or nothing) and equal slope.
#[derive(Debug, Clone)]
pub(crate) struct Lineup<K> {
    groups: BTreeMap<(K, i64), BTreeSet<Spot>>,
    len: usize,
}

impl<K> Default for Lineup<K> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<K: Ord + Copy> Lineup<K> {
    pub(crate) fn insert(&mut self, key: K, line: &Line, job: JobId) {
        let new = self
            .groups
            .entry((key, line.slope()))
            .or_default()
            .insert(line.spot(job));
        debug_assert!(new, "job {job} stands in line once");
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, key: K, line: &Line, job: JobId) {
        let group = self
            .groups
            .get_mut(&(key, line.slope()))
            .expect("the job's group is there");
        let there = group.remove(&line.spot(job));
        assert!(there, "job {job} stands where its line says");
        self.len -= 1;
        if group.is_empty() && line.slope() != 0 {
            self.groups.remove(&(key, line.slope()));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, key: K, line: &Line, job: JobId) -> bool {
        self.groups
            .get(&(key, line.slope()))
            .is_some_and(|g| g.contains(&line.spot(job)))
    }

    /// Every group that is not empty.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'_, K>> {
        self.groups
            .iter()
            .filter(|(_, set)| !set.is_empty())
            .map(|(&(key, slope), set)| Group { key, slope, set })
    }

    /// One group; it must exist.
    pub(crate) fn group(&self, key: K, slope: i64) -> Group<'_, K> {
        Group {
            key,
            slope,
            set: &self.groups[&(key, slope)],
        }
    }

    /// Everyone, group by group.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.groups.values().flatten().map(|spot| spot.job)
    }

    /// Everyone, best first.
    pub(crate) fn sorted(&self, now: Time) -> Vec<Rank> {
        let mut all: Vec<Rank> = self
            .groups()
            .flat_map(|g| g.set.iter().map(move |s| s.rank(g.slope, now)))
            .collect();
        all.sort_unstable();
        all
    }
}

/// Jobs of one group, best first at every moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a, K> {
    pub(crate) key: K,
    pub(crate) slope: i64,
    set: &'a BTreeSet<Spot>,
}

impl<K> Group<'_, K> {
    pub(crate) fn first(&self) -> Option<Spot> {
        self.set.first().copied()
    }

    pub(crate) fn last(&self) -> Option<Spot> {
        self.set.last().copied()
    }

    pub(crate) fn after(&self, spot: Spot) -> Option<Spot> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.set.range((Excluded(spot), Unbounded)).next().copied()
    }

    pub(crate) fn before(&self, spot: Spot) -> Option<Spot> {
        self.set.range(..spot).next_back().copied()
    }
}
