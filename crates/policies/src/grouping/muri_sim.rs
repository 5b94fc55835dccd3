//! Muri's grouping step by step as its simulator does it, to compare with it job by job. What differs from grouping
//! `muri`: jobs are chosen as they would fit on nodes, pairs are merged in the order in which the matching lists them
//! and not best first, and of equally good matchings the one is taken that its code finds first.

use std::collections::BTreeMap;

use dovetail_engine::{Claim, Grouping, Job, Knowledge, Part};
use dovetail_model::Time;
use dovetail_model::stages::{Contention, Ordering, Stages, period_s};
use dovetail_solve::matching::first_found;

use super::sharing_knobs;
use super::shelves::Shelves;
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "muri-sim",
    what: "Muri's grouping with the choices, merges and ties of its own simulator",
    source: "Muri (SIGCOMM'22), simulator; needs discipline afresh and stage times in the trace",
    key: "as muri; pairs merge in order of width and place, ties go to the matching found first",
    knowledge: Knowledge::None,
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
            shelves: knobs
                .text("nodes")
                .parse()
                .map_err(|()| knobs.bad("nodes", "nodes x GPUs such as 8x8"))?,
            contention: MuriSim::contention(matching),
            kinds: Vec::new(),
            weights: BTreeMap::new(),
            name: knobs.name(),
        }))
    },
};

/// Muri's simulator's grouping.
#[derive(Debug, Clone)]
pub struct MuriSim {
    size: usize,
    ordering: Ordering,
    matching: bool,
    autopack: bool,
    shelves: Shelves,
    contention: Contention,
    /// Every kind of job seen; a group is told by the kinds of its members in order.
    kinds: Vec<Stages>,
    /// Edge weights already computed, by the kinds of both groups.
    weights: BTreeMap<(Code, Code), f64>,
    name: String,
}

impl Part for MuriSim {
    fn name(&self) -> String {
        self.name.clone()
    }
}

/// The kinds of a group's members in order, sixteen bits each, from one on.
type Code = u64;

/// Jobs that share, by their places in line, in the order in which they were put together.
#[derive(Debug, Clone)]
struct Packing {
    places: Vec<usize>,
    code: Code,
}

impl Packing {
    fn add(&mut self, other: Packing) {
        self.code |= other.code << (16 * self.places.len());
        self.places.extend(other.places);
    }
}

/// Groups of one width.
#[derive(Debug)]
struct Bucket {
    width: u32,
    /// How many times a job of this width found a place.
    found: usize,
    groups: Vec<Packing>,
}

impl Grouping for MuriSim {
    fn group(&mut self, line: &[(&Job, u32)], gpus: u32, now: Time) -> Vec<Claim> {
        let mut buckets = self.choose(line);
        let total = |b: &Bucket| b.groups.len() as u64 * u64::from(b.width);
        let mut wanted: u64 = buckets.iter().map(total).sum();
        if self.matching {
            for _ in 0..self.size {
                self.merge_matched(&mut buckets, &mut wanted, gpus.into());
                if wanted <= gpus.into() {
                    break;
                }
            }
        } else {
            buckets
                .iter_mut()
                .for_each(|b| merge_neighbours(b, self.size, &mut wanted, gpus.into()));
        }
        let mut packed: Vec<(u32, Packing)> = Vec::new();
        for bucket in buckets {
            for group in bucket.groups {
                packed.extend(self.unpack(group).into_iter().map(|p| (bucket.width, p)));
            }
        }
        let key = |place: &usize| {
            let line = line[*place].0.line;
            (line.band, line.value(now))
        };
        packed.sort_by_key(|(_, p)| p.places.iter().map(key).min());
        let claim = |(gpus, p): (u32, Packing)| Claim {
            members: p.places.iter().map(|i| line[*i].0.spec.id).collect(),
            gpus,
        };
        packed.into_iter().map(claim).collect()
    }
}

impl MuriSim {
    /// The contention of Muri's simulator, whose ablation without matching is granted less of it for groups of four.
    pub fn contention(matching: bool) -> Contention {
        let mut contention = Contention::default();
        if !matching {
            contention.factors[3] = 1.3 / 1.015;
        }
        contention
    }

    /// The jobs that could run if every place took `size` jobs of the same width, by width in order of appearance.
    fn choose(&mut self, line: &[(&Job, u32)]) -> Vec<Bucket> {
        let mut shelves = self.shelves.clone();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        for (i, (job, width)) in line.iter().enumerate() {
            let at = buckets.iter().position(|b| b.width == *width);
            let at = at.unwrap_or_else(|| {
                buckets.push(Bucket {
                    width: *width,
                    found: 0,
                    groups: Vec::new(),
                });
                buckets.len() - 1
            });
            let room = room.entry(*width).or_default();
            if *room > 0 {
                *room -= 1;
            } else if shelves.take(*width) {
                *room = self.size - 1;
                buckets[at].found += 1;
            } else {
                continue;
            }
            let code = job.spec.stages.map_or(0, |stages| self.kind(stages));
            buckets[at].groups.push(Packing {
                places: vec![i],
                code,
            });
        }
        buckets
    }

    fn kind(&mut self, stages: Stages) -> Code {
        let known = self.kinds.iter().position(|k| *k == stages);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(stages);
            self.kinds.len() - 1
        });
        index as Code + 1
    }

    /// One round: a matching in every bucket, then pairs merge in the order listed until all fit.
    fn merge_matched(&mut self, buckets: &mut [Bucket], wanted: &mut u64, gpus: u64) {
        let mates: Vec<Vec<Option<usize>>> = buckets.iter().map(|b| self.matched(&b.groups)).collect();
        for (bucket, mates) in buckets.iter_mut().zip(mates) {
            let mut old: Vec<Option<Packing>> =
                std::mem::take(&mut bucket.groups).into_iter().map(Some).collect();
            for i in 0..old.len() {
                // A pair is listed at the place of its second group.
                let first = match mates[i] {
                    Some(mate) if mate > i => continue,
                    mate => mate.and_then(|m| old[m].take()),
                };
                let this = old[i].take().expect("every group is listed once");
                match first {
                    Some(mut first) if *wanted > gpus => {
                        first.add(this);
                        *wanted -= u64::from(bucket.width);
                        bucket.groups.push(first);
                    }
                    first => bucket.groups.extend(first.into_iter().chain([this])),
                }
            }
        }
    }

    fn matched(&mut self, groups: &[Packing]) -> Vec<Option<usize>> {
        let mut codes: Vec<Code> = groups.iter().map(|g| g.code).collect();
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

    /// The efficiency of two groups together; zero if they are too many or not measured.
    fn weight(&mut self, first: Code, second: Code) -> f64 {
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

    fn stages(&self, code: Code) -> Vec<Stages> {
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
        let single = |(i, place): (usize, &usize)| Packing {
            places: vec![*place],
            code: (group.code >> (16 * i)) & 0xffff,
        };
        group.places.iter().enumerate().map(single).collect()
    }
}

/// Without matching: as many groups as places were found, each of the next jobs in line while more is wanted than
/// there is.
fn merge_neighbours(bucket: &mut Bucket, size: usize, wanted: &mut u64, gpus: u64) {
    let mut jobs = std::mem::take(&mut bucket.groups).into_iter();
    for _ in 0..bucket.found {
        let Some(mut group) = jobs.next() else { return };
        for other in jobs.by_ref().take(size - 1) {
            if *wanted > gpus {
                group.add(other);
                *wanted -= u64::from(bucket.width);
            } else {
                bucket.groups.push(other);
            }
        }
        bucket.groups.push(group);
    }
}
