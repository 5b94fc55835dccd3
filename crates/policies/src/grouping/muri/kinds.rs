//! Kinds of jobs and of groups. There are few models, so few kinds of groups: the timing of each is computed once.

use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use dovetail_model::{JobSpec, ProfileKey, SharedGroupFactors};
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

impl GroupTiming {
    /// Whether its jobs are faster one after the other.
    pub(super) fn is_slower_than_in_turn(&self) -> bool {
        self.period_us > self.in_turn_us
    }
}

/// All kinds seen so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Kinds {
    ordering: Ordering,
    contention: Contention,
    /// Measured factors, which replace contention.
    factors: Option<SharedGroupFactors>,
    jobs: Vec<JobKind>,
    numbers: FxHashMap<JobKind, u32>,
    groups: FxHashMap<GroupKind, GroupTiming>,
}

/// What jobs of one kind have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct JobKind {
    stages: Stages,
    memory_mib: u64,
    /// The profile, where factors are measured.
    profile: Option<ProfileKey>,
}

impl Kinds {
    pub(super) fn new(ordering: Ordering) -> Self {
        Self {
            ordering,
            ..Self::default()
        }
    }

    /// The order in which the members of a group interleave their stages.
    pub(super) fn ordering(&self) -> Ordering {
        self.ordering
    }

    /// Uses these measured factors, if any, from now on. Returns whether they are others than before.
    pub(super) fn set_factors(&mut self, factors: Option<&SharedGroupFactors>) -> bool {
        let is_same = match (&self.factors, factors) {
            (Some(known), Some(new)) => known.is_same(new),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            *self = Self {
                factors: factors.cloned(),
                ..Self::new(self.ordering)
            };
        }
        !is_same
    }

    /// Whether periods of groups are measured.
    pub(super) fn are_measured(&self) -> bool {
        self.factors.is_some()
    }

    /// The kind of a single job that uses this much memory; `None` if it was not measured.
    pub(super) fn alone(&mut self, job: &JobSpec, memory_mib: u64) -> Option<GroupKind> {
        let kind = JobKind {
            stages: job.stages?,
            memory_mib,
            profile: job.profile_key.filter(|_| self.factors.is_some()),
        };
        let known = self.numbers.get(&kind);
        let number = known.copied().unwrap_or_else(|| {
            self.jobs.push(kind);
            let number = self.jobs.len() as u32;
            self.numbers.insert(kind, number);
            number
        });
        Some([number, 0, 0, 0])
    }

    /// The memory that a group uses on each GPU, in MiB.
    pub(super) fn memory_mib(&self, code: GroupKind) -> u64 {
        self.members(code).map(|kind| kind.memory_mib).sum()
    }

    fn members(&self, code: GroupKind) -> impl Iterator<Item = &JobKind> + '_ {
        code.into_iter()
            .filter(|number| *number > 0)
            .map(|number| &self.jobs[number as usize - 1])
    }

    /// How much longer than without contention the period of a group is.
    fn contention(&self, code: GroupKind) -> Contention {
        let Some(factors) = &self.factors else {
            return self.contention;
        };
        let profiles: Option<Vec<ProfileKey>> = self.members(code).map(|kind| kind.profile).collect();
        let ppm = profiles
            .filter(|members| members.len() > 1)
            .map(|members| factors.ppm(&members));
        let factor = ppm.map_or(1.0, |ppm| f64::from(ppm) / 1e6);
        Contention {
            factors: [factor; MOST_SHARERS],
        }
    }

    pub(super) fn timing(&mut self, code: GroupKind) -> GroupTiming {
        if let Some(known) = self.groups.get(&code) {
            return *known;
        }
        let stages: Vec<Stages> = self.members(code).map(|kind| kind.stages).collect();
        let period_us = shared_period_us(&stages, self.ordering, &self.contention(code));
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
    use dovetail_model::GroupFactors;
    use dovetail_model::JobKey;

    fn job(profile: &str, data_us: u32, gpu_us: u32) -> JobSpec {
        JobSpec {
            stages: Some(Stages::three(data_us, gpu_us, 0, data_us + gpu_us)),
            profile_key: Some(ProfileKey::of(profile)),
            ..JobSpec::new(JobKey(0), 1)
        }
    }

    #[test]
    fn measured_factors_replace_contention_and_belong_to_profiles() {
        let mut kinds = Kinds::new(Ordering::Best);
        let pair = |kinds: &mut Kinds, other: &str| {
            let a = kinds.alone(&job("a", 80, 20), 0).unwrap();
            let b = kinds.alone(&job(other, 20, 80), 0).unwrap();
            kinds.timing(merged(a, b, 4).unwrap()).period_us
        };
        let modelled = 100.0 * Contention::default().factors[1];
        assert_eq!([pair(&mut kinds, "b"), pair(&mut kinds, "c")], [modelled; 2]);
        let mut factors = GroupFactors::default();
        factors.set(["b", "a"].map(ProfileKey::of).to_vec(), Some(1_500_000));
        let factors = SharedGroupFactors::from(factors);
        assert!(kinds.set_factors(Some(&factors)) && !kinds.set_factors(Some(&factors)));
        assert_eq!([pair(&mut kinds, "b"), pair(&mut kinds, "c")], [150.0, 100.0]);
        assert!(kinds.set_factors(None));
        assert_eq!(pair(&mut kinds, "b"), modelled);
    }

    #[test]
    fn groups_of_the_same_members_have_one_code() {
        let mut kinds = Kinds::new(Ordering::Best);
        let a = kinds.alone(&job("a", 500_000, 10_000), 0).unwrap();
        let b = kinds.alone(&job("b", 1_000, 160_000), 0).unwrap();
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
