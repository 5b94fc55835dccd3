//! Kinds of jobs and of groups. There are few models, so few kinds of groups: the timing of each is computed once.

use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use rustc_hash::FxHashMap;

/// The kinds of a group's members, largest number first, zero for no member.
pub(super) type GroupKind = [u32; MOST_SHARERS];

/// Groups that are cached before the cache is cleared: traces in which every job has its own model have too many.
const MOST_KNOWN: usize = 1 << 20;

/// How fast a group of some kind is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GroupTiming {
    /// Time of one iteration of all members together, contention included, in microseconds.
    pub(super) period_us: f64,
    /// Sum of the times of one iteration of each, in microseconds.
    pub(super) in_turn_us: f64,
    /// Average busy fraction of the four resources, in millionths.
    pub(super) efficiency_ppm: i64,
}

/// All kinds seen so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Kinds {
    ordering: Ordering,
    contention: Contention,
    /// Stages and memory of each kind of job.
    jobs: Vec<(Stages, u64)>,
    numbers: FxHashMap<(Stages, u64), u32>,
    groups: FxHashMap<GroupKind, GroupTiming>,
}

impl Kinds {
    pub(super) fn new(ordering: Ordering) -> Self {
        Self {
            ordering,
            ..Self::default()
        }
    }

    /// The kind of a single job with these stages that uses this much memory.
    pub(super) fn alone(&mut self, stages: Stages, memory_mib: u64) -> GroupKind {
        let known = self.numbers.get(&(stages, memory_mib));
        let number = known.copied().unwrap_or_else(|| {
            self.jobs.push((stages, memory_mib));
            let number = self.jobs.len() as u32;
            self.numbers.insert((stages, memory_mib), number);
            number
        });
        [number, 0, 0, 0]
    }

    /// The memory that a group uses on each GPU, in MiB.
    pub(super) fn memory_mib(&self, code: GroupKind) -> u64 {
        self.members(code).map(|(_, memory)| memory).sum()
    }

    fn members(&self, code: GroupKind) -> impl Iterator<Item = (Stages, u64)> + '_ {
        code.into_iter()
            .filter(|number| *number > 0)
            .map(|number| self.jobs[number as usize - 1])
    }

    pub(super) fn timing(&mut self, code: GroupKind) -> GroupTiming {
        if let Some(known) = self.groups.get(&code) {
            return *known;
        }
        let stages: Vec<Stages> = self.members(code).map(|(stages, _)| stages).collect();
        let period_us = shared_period_us(&stages, self.ordering, &self.contention);
        let used: u64 = stages.iter().map(Stages::sum_us).sum();
        let timing = GroupTiming {
            period_us,
            in_turn_us: stages.iter().map(|s| f64::from(s.iteration_us)).sum(),
            efficiency_ppm: (used as f64 / (4.0 * period_us) * 1e6) as i64,
        };
        if self.groups.len() >= MOST_KNOWN {
            self.groups.clear();
        }
        self.groups.insert(code, timing);
        timing
    }
}

/// Number of members of a group.
pub(super) fn size(code: GroupKind) -> usize {
    code.iter().filter(|number| **number > 0).count()
}

/// Both groups merged; `None` if they have more than `most` members.
pub(super) fn merged(a: GroupKind, b: GroupKind, most: usize) -> Option<GroupKind> {
    let (first, second) = (size(a), size(b));
    if first + second > most {
        return None;
    }
    let mut code = a;
    code[first..first + second].copy_from_slice(&b[..second]);
    code.sort_unstable_by(|x, y| y.cmp(x));
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_the_same_members_have_one_code() {
        let mut kinds = Kinds::new(Ordering::Best);
        let a = kinds.alone(Stages::three(500_000, 10_000, 0, 510_000), 0);
        let b = kinds.alone(Stages::three(1_000, 160_000, 0, 178_000), 0);
        let pair = merged(a, b, 4);
        assert_eq!(pair, merged(b, a, 4));
        let four = merged(pair.unwrap(), merged(a, a, 4).unwrap(), 4).unwrap();
        assert_eq!(
            Some(four),
            merged(a, merged(merged(a, a, 4).unwrap(), b, 4).unwrap(), 4)
        );
        assert_eq!(size(four), 4);
        assert_eq!(merged(four, a, 4), None);
        assert_eq!(merged(a, merged(a, b, 4).unwrap(), 2), None);
        assert!(kinds.timing(pair.unwrap()).period_us < kinds.timing(pair.unwrap()).in_turn_us);
    }
}
