//! Jobs in line: sets of lines of equal slope, sorted once and for all.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{JobId, Time};

use crate::line::{Line, Rank, Spot};

/// Group and slope of a job in line, and its spot there.
pub(crate) type Place<K> = ((K, i64), Spot);

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

    /// Where a job stands.
    pub(crate) fn place(key: K, line: &Line, job: JobId) -> Place<K> {
        ((key, line.slope()), line.spot(job))
    }

    /// Many come at once: sorted together that is cheaper than one by one.
    pub(crate) fn insert_all(&mut self, mut places: Vec<Place<K>>) {
        places.sort_unstable();
        self.len += places.len();
        for come in places.chunk_by(|a, b| a.0 == b.0) {
            let group = self.groups.entry(come[0].0).or_default();
            let spots = come.iter().map(|(_, spot)| *spot);
            let all = group.len() + come.len();
            match come.len() >= group.len() / 8 {
                true => group.append(&mut spots.collect()),
                false => group.extend(spots),
            }
            debug_assert_eq!(group.len(), all, "everyone stands in line once");
        }
    }

    /// Many go at once.
    pub(crate) fn remove_all(&mut self, mut places: Vec<Place<K>>) {
        places.sort_unstable();
        self.len -= places.len();
        for go in places.chunk_by(|a, b| a.0 == b.0) {
            let key = go[0].0;
            let group = self.groups.get_mut(&key).expect("the group of the jobs is there");
            let left = group.len() - go.len();
            if go.len() >= group.len() / 8 {
                let mut gone = go.iter().map(|(_, spot)| spot).peekable();
                group.retain(|spot| gone.next_if_eq(&spot).is_none());
            } else {
                for (_, spot) in go {
                    group.remove(spot);
                }
            }
            assert_eq!(group.len(), left, "everyone stands where his line says");
            if group.is_empty() && key.1 != 0 {
                self.groups.remove(&key);
            }
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
