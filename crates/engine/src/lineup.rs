//! Jobs in line: sets of lines of equal slope, sorted once and for all.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{JobId, Time};

use crate::line::{Line, Rank, Spot};

/// Places in line that many come to or leave at once: the spots in each group.
#[derive(Debug)]
pub(crate) struct Places<K> {
    groups: BTreeMap<(K, i64), Vec<Spot>>,
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Copy> Places<K> {
    /// One more: where the line of this job is.
    pub(crate) fn push(&mut self, key: K, line: &Line, job: JobId) {
        let group = self.groups.entry((key, line.slope())).or_default();
        group.push(line.spot(job));
    }
}

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

    /// Many come at once: sorted together that is cheaper than one by one.
    pub(crate) fn insert_all(&mut self, places: Places<K>) {
        for (key, mut spots) in places.groups {
            spots.sort_unstable();
            let group = self.groups.entry(key).or_default();
            let all = group.len() + spots.len();
            self.len += spots.len();
            match spots.len() >= group.len() / 8 {
                true => group.append(&mut spots.into_iter().collect()),
                false => group.extend(spots),
            }
            debug_assert_eq!(group.len(), all, "everyone stands in line once");
        }
    }

    /// Many go at once.
    pub(crate) fn remove_all(&mut self, places: Places<K>) {
        for (key, spots) in places.groups {
            let group = self.groups.get_mut(&key).expect("the group of the jobs is there");
            let left = group.len() - spots.len();
            self.len -= spots.len();
            if spots.len() >= group.len() / 8 {
                let gone = Jobs::of(&spots);
                let stays = |spot: &Spot| !gone.contains(spot.job);
                *group = std::mem::take(group).into_iter().filter(stays).collect();
            } else {
                for spot in &spots {
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

/// Some jobs, as bits from the first of them on.
struct Jobs {
    first: u32,
    words: Vec<u64>,
}

impl Jobs {
    fn of(spots: &[Spot]) -> Self {
        let ids = || spots.iter().map(|spot| spot.job.0);
        let (first, last) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        let mut words = vec![0; (last - first) as usize / 64 + 1];
        for id in ids() {
            words[(id - first) as usize / 64] |= 1 << ((id - first) % 64);
        }
        Self { first, words }
    }

    fn contains(&self, job: JobId) -> bool {
        let Some(id) = job.0.checked_sub(self.first) else {
            return false;
        };
        let word = self.words.get(id as usize / 64);
        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
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

    /// Those behind a spot, best first.
    pub(crate) fn after(&self, spot: Spot) -> impl Iterator<Item = Spot> + use<'_, K> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.set.range((Excluded(spot), Unbounded)).copied()
    }

    pub(crate) fn before(&self, spot: Spot) -> Option<Spot> {
        self.set.range(..spot).next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_stand_as_they_would_one_by_one() {
        let line = |job: u32| Line::moving(Time(7), i128::from(job * 37 % 101), i64::from(job % 3));
        let key = |job: u32| job % 5;
        let all = |jobs: &[u32]| {
            let mut places = Places::default();
            jobs.iter()
                .for_each(|j| places.push(key(*j), &line(*j), JobId(*j)));
            places
        };
        // Few join many, many join few; few leave many, many leave, and all of a group.
        let come: [Vec<u32>; 3] = [(10..30).collect(), (30..400).collect(), (400..405).collect()];
        let go: [Vec<u32>; 3] = [
            (40..44).collect(),
            (44..300).rev().collect(),
            (300..405).collect(),
        ];
        let (mut together, mut alone) = (Lineup::default(), Lineup::default());
        let same = |a: &Lineup<u32>, b: &Lineup<u32>| {
            assert_eq!((a.sorted(Time(9)), a.len()), (b.sorted(Time(9)), b.len()));
        };
        for jobs in come {
            together.insert_all(all(&jobs));
            jobs.iter()
                .for_each(|j| alone.insert(key(*j), &line(*j), JobId(*j)));
            same(&together, &alone);
        }
        for jobs in go {
            together.remove_all(all(&jobs));
            jobs.iter()
                .for_each(|j| alone.remove(key(*j), &line(*j), JobId(*j)));
            same(&together, &alone);
        }
        assert_eq!(together.len(), 30, "10 to 39");
    }
}
