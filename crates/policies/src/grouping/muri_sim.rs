//! Muri's grouping step by step as in its simulator, for comparison job by job. Differences from grouping `muri`: jobs are
//! chosen as they would fit on nodes, pairs are merged in the order in which the matching lists them and not best first, and
//! of equally good matchings it takes the one that Muri's code finds first.

use std::collections::BTreeMap;

use dovetail_engine::{Claim, Feature, Grouping, Job, Need, NeedSet, Part};
use dovetail_model::Time;
use dovetail_model::stages::{Contention, Ordering, Stages, period_s};
use dovetail_solve::matching::first_found;

use super::free_by_node::FreeByNode;
use super::sharing_knobs;
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "muri-sim",
    what: "Muri's grouping with the choices, merges and ties of its own simulator",
    source: "Muri (SIGCOMM'22), simulator; for discipline afresh, needs stage times in the trace",
    key: "as muri; pairs merge in order of width and position, ties go to the matching found first",
    companions: &[(Kind::Discipline, "replan")],
    knobs: &[
        sharing_knobs::SIZE,
        sharing_knobs::AUTOPACK,
        sharing_knobs::MATCHING,
        sharing_knobs::ORDERING,
        Knob {
            name: "nodes",
            default: "8x8",
            what: "the cluster on which jobs are chosen: nodes x GPUs",
        },
    ],
    build: |knobs| {
        let (size, ordering) = (sharing_knobs::size(knobs)?, sharing_knobs::ordering(knobs)?);
        let matching: bool = knobs.get("matching", "true or false")?;
        Ok(Box::new(MuriSim {
            size,
            ordering,
            matching,
            autopack: knobs.get("autopack", "true or false")?,
            free_by_node: knobs
                .text("nodes")
                .parse()
                .map_err(|()| knobs.invalid("nodes", "nodes x GPUs such as 8x8"))?,
            contention: MuriSim::contention(matching),
            kinds: Vec::new(),
            weights: BTreeMap::new(),
            name: knobs.name(),
        }))
    },
};

/// The grouping of Muri's simulator.
#[derive(Debug, Clone)]
pub struct MuriSim {
    size: usize,
    ordering: Ordering,
    matching: bool,
    autopack: bool,
    free_by_node: FreeByNode,
    contention: Contention,
    /// Every kind of job seen; a group is identified by the kinds of its members in order.
    kinds: Vec<Stages>,
    /// Edge weights already computed, by the kinds of both groups.
    weights: BTreeMap<(MemberCode, MemberCode), f64>,
    name: String,
}

impl Part for MuriSim {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::Stages, Need::Sharing].into()
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::JointPlanning]
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::WholeGroups]
    }
}

/// The kinds of a group's members in order, sixteen bits each, counted from one.
type MemberCode = u64;

/// Jobs that share, by their positions in the queue, in the order in which they were merged.
#[derive(Debug, Clone)]
struct Packing {
    positions: Vec<usize>,
    code: MemberCode,
}

impl Packing {
    fn add(&mut self, other: Packing) {
        self.code |= other.code << (16 * self.positions.len());
        self.positions.extend(other.positions);
    }
}

/// Groups of one width.
#[derive(Debug)]
struct Bucket {
    width: u32,
    /// Number of times that a job of this width fitted.
    fitted: usize,
    groups: Vec<Packing>,
}

impl Grouping for MuriSim {
    fn interleaving(&self) -> Option<Ordering> {
        Some(self.ordering)
    }

    fn group(&mut self, queue: &[(&Job, u32)], gpus: u32, now: Time) -> Vec<Claim> {
        let mut buckets = self.choose(queue);
        let total = |b: &Bucket| b.groups.len() as u64 * u64::from(b.width);
        let mut demand: u64 = buckets.iter().map(total).sum();
        if self.matching {
            for _ in 0..self.size {
                self.merge_matched(&mut buckets, &mut demand, gpus.into());
                if demand <= gpus.into() {
                    break;
                }
            }
        } else {
            buckets
                .iter_mut()
                .for_each(|b| merge_neighbours(b, self.size, &mut demand, gpus.into()));
        }
        let mut packed: Vec<(u32, Packing)> = Vec::new();
        for bucket in buckets {
            for group in bucket.groups {
                packed.extend(self.unpack(group).into_iter().map(|p| (bucket.width, p)));
            }
        }
        let key = |position: &usize| {
            let queue = queue[*position].0.sort_key;
            (queue.band, queue.value(now))
        };
        packed.sort_by_key(|(_, p)| p.positions.iter().map(key).min());
        let claim = |(gpus, p): (u32, Packing)| Claim {
            members: p.positions.iter().map(|i| queue[*i].0.spec.id).collect(),
            gpus,
        };
        packed.into_iter().map(claim).collect()
    }
}

impl MuriSim {
    /// The contention of Muri's simulator, whose ablation without matching assumes less of it for groups of four.
    pub fn contention(matching: bool) -> Contention {
        let mut contention = Contention::default();
        if !matching {
            contention.factors[3] = 1.3 / 1.015;
        }
        contention
    }

    /// The jobs that could run if each set of GPUs took `size` jobs of the same width, by width in order of appearance.
    fn choose(&mut self, queue: &[(&Job, u32)]) -> Vec<Bucket> {
        let mut free_by_node = self.free_by_node.clone();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        for (i, (job, width)) in queue.iter().enumerate() {
            let at = buckets.iter().position(|b| b.width == *width);
            let at = at.unwrap_or_else(|| {
                buckets.push(Bucket {
                    width: *width,
                    fitted: 0,
                    groups: Vec::new(),
                });
                buckets.len() - 1
            });
            let room = room.entry(*width).or_default();
            if *room > 0 {
                *room -= 1;
            } else if free_by_node.take(*width) {
                *room = self.size - 1;
                buckets[at].fitted += 1;
            } else {
                continue;
            }
            let code = job.spec.stages.map_or(0, |stages| self.kind(stages));
            buckets[at].groups.push(Packing {
                positions: vec![i],
                code,
            });
        }
        buckets
    }

    fn kind(&mut self, stages: Stages) -> MemberCode {
        let known = self.kinds.iter().position(|k| *k == stages);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(stages);
            self.kinds.len() - 1
        });
        index as MemberCode + 1
    }

    /// One round: a matching in every bucket, then pairs merge in the order listed until all fit.
    fn merge_matched(&mut self, buckets: &mut [Bucket], demand: &mut u64, gpus: u64) {
        let mates: Vec<Vec<Option<usize>>> = buckets.iter().map(|b| self.matched(&b.groups)).collect();
        for (bucket, mates) in buckets.iter_mut().zip(mates) {
            let mut old: Vec<Option<Packing>> =
                std::mem::take(&mut bucket.groups).into_iter().map(Some).collect();
            for i in 0..old.len() {
                // A pair is listed at the position of its second group.
                let first = match mates[i] {
                    Some(mate) if mate > i => continue,
                    mate => mate.and_then(|m| old[m].take()),
                };
                let this = old[i].take().expect("every group is listed once");
                match first {
                    Some(mut first) if *demand > gpus => {
                        first.add(this);
                        *demand -= u64::from(bucket.width);
                        bucket.groups.push(first);
                    }
                    first => bucket.groups.extend(first.into_iter().chain([this])),
                }
            }
        }
    }

    fn matched(&mut self, groups: &[Packing]) -> Vec<Option<usize>> {
        let mut codes: Vec<MemberCode> = groups.iter().map(|g| g.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let mut table = vec![0.0; codes.len() * codes.len()];
        for (a, first) in codes.iter().enumerate() {
            for (b, second) in codes.iter().enumerate() {
                table[a * codes.len() + b] = self.weight(*first, *second);
            }
        }
        let of = |g: &Packing| codes.binary_search(&g.code).expect("every code is in the table");
        let index: Vec<usize> = groups.iter().map(of).collect();
        first_found(groups.len(), |a, b| table[index[a] * codes.len() + index[b]])
    }

    /// The efficiency of two groups merged; zero if they are too large or were not measured.
    fn weight(&mut self, first: MemberCode, second: MemberCode) -> f64 {
        if let Some(known) = self.weights.get(&(first, second)) {
            return *known;
        }
        let (a, b) = (self.stages(first), self.stages(second));
        let members = [a.as_slice(), b.as_slice()].concat();
        let weight = if a.is_empty() || b.is_empty() || members.len() > self.size {
            0.0
        } else {
            let period = period_s(&members, self.ordering) * self.contention.factors[members.len() - 1];
            let busy = |m: &Stages| m.times_us.iter().fold(0.0, |sum, t| sum + f64::from(*t) / 1e6);
            members.iter().fold(0.0, |sum, m| sum + busy(m)) / (period * 4.0)
        };
        self.weights.insert((first, second), weight);
        weight
    }

    fn stages(&self, code: MemberCode) -> Vec<Stages> {
        (0..4)
            .map(|i| (code >> (16 * i)) & 0xffff)
            .take_while(|kind| *kind > 0)
            .map(|kind| self.kinds[kind as usize - 1])
            .collect()
    }

    /// The group, or its members alone if they would be faster one after the other, in the best order.
    fn unpack(&self, group: Packing) -> Vec<Packing> {
        let members = self.stages(group.code);
        if !self.autopack || members.len() < 2 {
            return vec![group];
        }
        let together = period_s(&members, Ordering::Best) * self.contention.factors[members.len() - 1];
        let alone = |m: &Stages| f64::from(m.iteration_us) / 1000.0 * 1.015 / 1000.0;
        let in_turn = members.iter().fold(0.0, |sum, m| sum + alone(m));
        if together / in_turn <= 1.0 {
            return vec![group];
        }
        let single = |(i, position): (usize, &usize)| Packing {
            positions: vec![*position],
            code: (group.code >> (16 * i)) & 0xffff,
        };
        group.positions.iter().enumerate().map(single).collect()
    }
}

/// Without matching: as many groups as widths fitted, each of the next jobs in the queue, while demand exceeds the GPUs.
fn merge_neighbours(bucket: &mut Bucket, size: usize, demand: &mut u64, gpus: u64) {
    let mut jobs = std::mem::take(&mut bucket.groups).into_iter();
    for _ in 0..bucket.fitted {
        let Some(mut group) = jobs.next() else { return };
        for other in jobs.by_ref().take(size - 1) {
            if *demand > gpus {
                group.add(other);
                *demand -= u64::from(bucket.width);
            } else {
                bucket.groups.push(other);
            }
        }
        bucket.groups.push(group);
    }
}
