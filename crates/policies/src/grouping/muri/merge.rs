//! Merges groups of one width by matching, until all fit. Of equally efficient groups, those whose jobs already share GPUs
//! stay together, so that no job is restarted needlessly.

use dovetail_model::{NodeId, SharedGroupFactors};
use dovetail_solve::matching::{TypePair, by_type};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::kinds::{GroupKind, Kinds, merged};

/// The first GPU of a job.
pub(super) type FirstGpu = (NodeId, u32);

/// Jobs that share, by their positions in the queue.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) positions: SmallVec<[usize; 4]>,
    pub(super) code: GroupKind,
    /// The first GPU of its members, if they are running.
    pub(super) first_gpu: Option<FirstGpu>,
}

impl Group {
    pub(super) fn one(position: usize, code: GroupKind, first_gpu: Option<FirstGpu>) -> Self {
        Self {
            positions: smallvec![position],
            code,
            first_gpu,
        }
    }
}

/// Groups of equal width.
pub(super) type Buckets = BTreeMap<u32, Vec<Group>>;

/// Merges groups.
#[derive(Debug, Clone)]
pub(super) struct Merger {
    pub(super) size: usize,
    matching: bool,
    /// Whether groups are split again whose jobs are faster one after the other.
    pub(super) autopack: bool,
    pub(super) gpu_memory_mib: Option<u64>,
    pub(super) kinds: Kinds,
    /// Matchings already computed, by the number of groups of each kind, for GPUs of `solved_for` memory.
    solved: FxHashMap<Vec<(GroupKind, u32)>, Vec<TypePair>>,
    solved_for: Option<u64>,
}

/// Matchings that are cached before the cache is cleared.
const MOST_SOLVED: usize = 1 << 14;

/// Two groups of a bucket that could be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CandidatePair {
    efficiency_ppm: Reverse<i64>,
    /// Whether they run on different GPUs now.
    apart: bool,
    width: u32,
    first: usize,
    second: usize,
}

impl Merger {
    pub(super) fn new(size: usize, matching: bool, autopack: bool, kinds: Kinds) -> Self {
        Self {
            size,
            matching,
            autopack,
            gpu_memory_mib: None,
            kinds,
            solved: FxHashMap::default(),
            solved_for: None,
        }
    }

    /// Uses these measured factors, if any, from now on.
    pub(super) fn set_factors(&mut self, factors: Option<&SharedGroupFactors>) {
        if self.kinds.set_factors(factors) {
            self.solved.clear();
        }
    }

    /// Rounds of pairing, in every bucket, until the demand does not exceed the GPUs.
    pub(super) fn merge_until_fits(&mut self, buckets: &mut Buckets, demand: &mut u64, gpus: u64) {
        for _ in 0..self.size {
            let mut pairs: Vec<CandidatePair> = Vec::new();
            for (width, groups) in buckets.iter() {
                let found = if self.matching {
                    self.matched(groups)
                } else {
                    self.neighbours(groups)
                };
                for (first, second) in found {
                    let (a, b) = (&groups[first], &groups[second]);
                    pairs.push(CandidatePair {
                        efficiency_ppm: Reverse(self.efficiency_ppm(a.code, b.code)),
                        apart: a.first_gpu.is_none() || a.first_gpu != b.first_gpu,
                        width: *width,
                        first,
                        second,
                    });
                }
            }
            if pairs.is_empty() {
                return;
            }
            pairs.sort_unstable();
            for pair in pairs {
                if *demand <= gpus {
                    break;
                }
                let groups = buckets
                    .get_mut(&pair.width)
                    .expect("the pair is from this bucket");
                self.join(groups, pair.first, pair.second);
                *demand -= u64::from(pair.width);
            }
            buckets
                .values_mut()
                .for_each(|g| g.retain(|g| !g.positions.is_empty()));
            if *demand <= gpus {
                return;
            }
        }
    }

    /// Adds a job to the one of these groups with which it is most efficient. Returns whether there is one.
    pub(super) fn add_to_best(&mut self, groups: &mut [Group], among: &[usize], job: Group) -> bool {
        let mut best: Option<(i64, usize)> = None;
        for i in among {
            let efficiency_ppm = self.efficiency_ppm(groups[*i].code, job.code);
            if efficiency_ppm > best.map_or(0, |(known, _)| known) {
                best = Some((efficiency_ppm, *i));
            }
        }
        let Some((_, i)) = best else {
            return false;
        };
        groups[i].code =
            merged(groups[i].code, job.code, self.size).expect("a group that is too large has no efficiency");
        groups[i].positions.extend(job.positions);
        true
    }

    /// Moves the members of the second group into the first.
    fn join(&self, groups: &mut [Group], first: usize, second: usize) {
        let moved = std::mem::take(&mut groups[second].positions);
        let (code, first_gpu) = (groups[second].code, groups[second].first_gpu);
        let group = &mut groups[first];
        group.positions.extend(moved);
        group.code = merged(group.code, code, self.size).expect("a pair that is too large is never made");
        group.first_gpu = group.first_gpu.or(first_gpu);
    }

    /// The efficiency of two groups merged, in millionths; zero if they are too large, need too much memory, or were measured
    /// to be slower than their jobs one after the other.
    fn efficiency_ppm(&mut self, a: GroupKind, b: GroupKind) -> i64 {
        let Some(code) = merged(a, b, self.size) else {
            return 0;
        };
        let timing = match self.gpu_memory_mib {
            Some(has) if self.kinds.memory_mib(code) > has => return 0,
            _ => self.kinds.timing(code),
        };
        // Splitting such a group at the end would leave its jobs without other partners. Muri itself does that.
        let is_refused = self.autopack && self.kinds.are_measured() && timing.is_slower_than_in_turn();
        if is_refused { 0 } else { timing.efficiency_ppm }
    }

    /// Pairs groups by maximum-weight matching. Groups of the same kind are interchangeable, so the few kinds of groups are
    /// matched instead of all groups.
    fn matched(&mut self, groups: &[Group]) -> Vec<(usize, usize)> {
        let mut order: Vec<u32> = (0..groups.len() as u32).collect();
        order.sort_by_key(|i| groups[*i as usize].code);
        let mut kinds: Vec<(GroupKind, u32)> = Vec::new();
        let mut kind_of = vec![0; groups.len()];
        for i in &order {
            let code = groups[*i as usize].code;
            match kinds.last_mut() {
                Some((last, count)) if *last == code => *count += 1,
                _ => kinds.push((code, 1)),
            }
            kind_of[*i as usize] = kinds.len() as u32 - 1;
        }
        let pairs = self.solve(kinds);
        name_pairs(groups, &order, &kind_of, pairs)
    }

    /// Returns how many pairs to make of which kinds.
    fn solve(&mut self, kinds: Vec<(GroupKind, u32)>) -> Vec<TypePair> {
        if self.solved_for != self.gpu_memory_mib || self.solved.len() >= MOST_SOLVED {
            self.solved.clear();
            self.solved_for = self.gpu_memory_mib;
        }
        if let Some(pairs) = self.solved.get(&kinds) {
            return pairs.clone();
        }
        let counts: Vec<u32> = kinds.iter().map(|(_, count)| *count).collect();
        let mut weight = vec![vec![0; kinds.len()]; kinds.len()];
        for a in 0..kinds.len() {
            for b in 0..=a {
                let efficiency = self.efficiency_ppm(kinds[a].0, kinds[b].0);
                (weight[a][b], weight[b][a]) = (efficiency, efficiency);
            }
        }
        let pairs = by_type(&counts, &weight).pairs;
        self.solved.insert(kinds, pairs.clone());
        pairs
    }

    /// Pairs neighbours in the queue, without matching.
    fn neighbours(&mut self, groups: &[Group]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let mut last: Option<usize> = None;
        for (i, group) in groups.iter().enumerate() {
            match last.take() {
                Some(a) if self.efficiency_ppm(groups[a].code, group.code) > 0 => pairs.push((a, i)),
                _ => last = Some(i),
            }
        }
        pairs
    }
}

/// Names the groups of each pair of kinds: first those that already run on the same GPUs, then in queue order. `order` lists
/// the groups by kind.
fn name_pairs(
    groups: &[Group],
    order: &[u32],
    kind_of: &[u32],
    mut pairs: Vec<TypePair>,
) -> Vec<(usize, usize)> {
    let mut single = vec![true; groups.len()];
    let mut named: Vec<(usize, usize)> = Vec::new();
    let mut at_gpu: BTreeMap<FirstGpu, SmallVec<[usize; 4]>> = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        let Some(first_gpu) = group.first_gpu else {
            continue;
        };
        let here = at_gpu.entry(first_gpu).or_default();
        let partner = here.iter().position(|other| {
            let (a, b) = (kind_of[i].min(kind_of[*other]), kind_of[i].max(kind_of[*other]));
            let demand = pairs.binary_search_by_key(&(a, b), |p| (p.first, p.second));
            demand.is_ok_and(|at| {
                let left = &mut pairs[at].count;
                let some = *left > 0;
                *left -= u32::from(some);
                some
            })
        });
        match partner {
            Some(at) => {
                let other = here.remove(at);
                (single[i], single[other]) = (false, false);
                named.push((other, i));
            }
            None => here.push(i),
        }
    }
    let mut next: Vec<usize> = Vec::new();
    for (at, i) in order.iter().enumerate() {
        if kind_of[*i as usize] as usize == next.len() {
            next.push(at);
        }
    }
    let mut take = |kind: u32| {
        let at = &mut next[kind as usize];
        while !single[order[*at] as usize] {
            *at += 1;
        }
        *at += 1;
        order[*at - 1] as usize
    };
    for pair in pairs {
        for _ in 0..pair.count {
            let (a, b) = (take(pair.first), take(pair.second));
            named.push((a.min(b), a.max(b)));
        }
    }
    named
}
