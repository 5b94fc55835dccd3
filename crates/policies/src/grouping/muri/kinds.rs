//! Kinds of jobs and of groups. There are few models, so few kinds of groups: what one is worth is computed once.

use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use rustc_hash::FxHashMap;

/// The kinds of a group's members, largest number first, zero for no member.
pub(super) type Code = [u32; MOST_SHARERS];

/// Groups that are remembered before all are forgotten: traces in which every job is its own model have too many.
const MOST_KNOWN: usize = 1 << 20;

/// What a group of some kind is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    /// The time of one iteration of all members together, contention included.
    pub(super) period_us: f64,
    /// The time of one iteration of each, one after the other.
    pub(super) in_turn_us: f64,
    /// The average busy share of the four resources, in millionths.
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
    groups: FxHashMap<Code, Worth>,
}

impl Kinds {
    pub(super) fn new(ordering: Ordering) -> Self {
        Self {
            ordering,
            ..Self::default()
        }
    }

    /// The code of a job alone that has these stages and fills so much memory.
    pub(super) fn alone(&mut self, stages: Stages, memory_mib: u64) -> Code {
        let known = self.numbers.get(&(stages, memory_mib));
        let number = known.copied().unwrap_or_else(|| {
            self.jobs.push((stages, memory_mib));
            let number = self.jobs.len() as u32;
            self.numbers.insert((stages, memory_mib), number);
            number
        });
        [number, 0, 0, 0]
    }

    /// The memory a group fills on each GPU.
    pub(super) fn memory_mib(&self, code: Code) -> u64 {
        self.members(code).map(|(_, memory)| memory).sum()
    }

    fn members(&self, code: Code) -> impl Iterator<Item = (Stages, u64)> + '_ {
        code.into_iter()
            .filter(|number| *number > 0)
            .map(|number| self.jobs[number as usize - 1])
    }

    pub(super) fn worth(&mut self, code: Code) -> Worth {
        if let Some(known) = self.groups.get(&code) {
            return *known;
        }
        let stages: Vec<Stages> = self.members(code).map(|(stages, _)| stages).collect();
        let period_us = shared_period_us(&stages, self.ordering, &self.contention);
        let used: u64 = stages.iter().map(Stages::sum_us).sum();
        let worth = Worth {
            period_us,
            in_turn_us: stages.iter().map(|s| f64::from(s.iteration_us)).sum(),
            efficiency_ppm: (used as f64 / (4.0 * period_us) * 1e6) as i64,
        };
        if self.groups.len() >= MOST_KNOWN {
            self.groups.clear();
        }
        self.groups.insert(code, worth);
        worth
    }
}

/// How many members a group has.
pub(super) fn size(code: Code) -> usize {
    code.iter().filter(|number| **number > 0).count()
}

/// Both groups together; none if they are more than `most`.
pub(super) fn together(a: Code, b: Code, most: usize) -> Option<Code> {
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
        let pair = together(a, b, 4);
        assert_eq!(pair, together(b, a, 4));
        let four = together(pair.unwrap(), together(a, a, 4).unwrap(), 4).unwrap();
        assert_eq!(
            Some(four),
            together(a, together(together(a, a, 4).unwrap(), b, 4).unwrap(), 4)
        );
        assert_eq!(size(four), 4);
        assert_eq!(together(four, a, 4), None);
        assert_eq!(together(a, together(a, b, 4).unwrap(), 2), None);
        assert!(kinds.worth(pair.unwrap()).period_us < kinds.worth(pair.unwrap()).in_turn_us);
    }
}
