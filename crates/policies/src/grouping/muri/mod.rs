//! Muri: jobs that use storage, CPU, GPU and network at different moments share GPUs, grouped by weighted matching.
//!
//! Jobs of equal width form buckets. In the order of the line, as many jobs are chosen as could run if every set of
//! GPUs took `size` of them. If they ask for no more GPUs than there are, nobody shares. Otherwise groups are merged in
//! rounds: inside each bucket a maximum-weight matching pairs groups by the interleaving efficiency of the merged
//! group, and pairs are merged, most efficient first, until all fit; of equal ones those that run together stay together.
//! `autopack` takes groups apart again whose members would be faster one after the other. With `unequal`, jobs that found
//! no place so run beside wider groups.

mod guests;
mod kinds;
mod merge;

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Claim, Cluster, Grouping, Job, Knowledge, Part, Sharers};
use dovetail_model::stages::MOST_SHARERS;
use dovetail_model::{Allocation, Terms, Time};

use smallvec::{SmallVec, smallvec};

use guests::Guests;
use kinds::{Kinds, size};
use merge::{Buckets, Group, Home, Merger};

use super::sharing_knobs;
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "muri",
    what: "interleave up to four jobs of equal width on the same GPUs, paired by matching",
    source: "Muri (SIGCOMM'22); needs discipline replan and stage times in the trace",
    key: "maximum-weight matching on efficiency = busy time of four resources / (4 × period)",
    knowledge: Knowledge::None,
    knobs: &[
        sharing_knobs::SIZE,
        sharing_knobs::AUTOPACK,
        Knob {
            name: "stable",
            default: "0",
            what: "running groups stay together unless new ones are faster by this share; 0: plan anew, inf: always stay",
        },
        Knob {
            name: "unequal",
            default: "false",
            what: "true: who finds no group of its own width runs on some GPUs of a wider one, where all gain by it",
        },
        sharing_knobs::MATCHING,
        sharing_knobs::ORDERING,
    ],
    build: |knobs| {
        let (size, ordering) = (sharing_knobs::size(knobs)?, sharing_knobs::ordering(knobs)?);
        Ok(Box::new(Muri {
            autopack: knobs.get("autopack", "true or false")?,
            stable: match knobs.get("stable", "a number of at least 0, or inf")? {
                stable if stable >= 0.0 => stable,
                _ => return Err(knobs.bad("stable", "a number of at least 0, or inf")),
            },
            guests: knobs
                .get::<bool>("unequal", "true or false")?
                .then(Guests::default),
            merger: Merger::new(
                size,
                knobs.get("matching", "true or false")?,
                Kinds::new(ordering),
            ),
            name: knobs.name(),
        }))
    },
};

/// Interleaving by matching.
#[derive(Debug, Clone)]
pub struct Muri {
    autopack: bool,
    /// How much faster new groups must be, all together, before running ones are taken apart for them.
    stable: f64,
    /// Jobs beside wider groups, where there are to be any.
    guests: Option<Guests>,
    merger: Merger,
    name: String,
}

impl Part for Muri {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Grouping for Muri {
    fn terms(&self) -> Terms {
        Terms {
            most: self.merger.size as u32,
            overlap: self.guests.is_some(),
            ..Terms::GROUPS
        }
    }

    fn see(&mut self, cluster: &Cluster) {
        self.merger.gpu_memory_mib = cluster.least_gpu_memory_mib();
        if let Some(guests) = &mut self.guests {
            guests.begin();
        }
    }

    fn beside(&mut self, job: &Job, ask: &Ask, view: &Sharers<'_>, _now: Time) -> Option<Allocation> {
        let Merger { size, kinds, .. } = &mut self.merger;
        self.guests.as_mut()?.seat(kinds, *size, job, ask, view)
    }

    fn group(&mut self, line: &[(&Job, u32)], gpus: u32, _now: Time) -> Vec<Claim> {
        let chosen = self.choose(line, gpus);
        if self.stable == 0.0 {
            return self.plan(line, chosen.into_iter().map(alone), gpus).claims(line);
        }
        let wanted: u64 = chosen.iter().map(|i| u64::from(line[*i].1)).sum();
        let running = running_groups(line, &chosen);
        let shared = wanted > u64::from(gpus) && running.iter().any(|places| places.len() > 1);
        let kept = shared.then(|| self.plan(line, running.into_iter(), gpus));
        let kept = kept.filter(|plan| plan.wanted <= u64::from(gpus));
        match kept {
            Some(kept) if self.stable.is_infinite() => kept.claims(line),
            Some(kept) => {
                let fresh = self.plan(line, chosen.into_iter().map(alone), gpus);
                let is_worth_it = fresh.speed > kept.speed * (1.0 + self.stable);
                if is_worth_it { fresh } else { kept }.claims(line)
            }
            None => self.plan(line, chosen.into_iter().map(alone), gpus).claims(line),
        }
    }
}

/// Places in line of jobs that run together.
type Places = SmallVec<[usize; MOST_SHARERS]>;

fn alone(place: usize) -> Places {
    smallvec![place]
}

/// Who runs with whom.
struct Plan {
    /// Places in line, best first, and the width.
    groups: Vec<(Places, u32)>,
    /// GPUs for all of them.
    wanted: u64,
    /// GPUs × the share of full speed, over all jobs; only where plans are compared.
    speed: f64,
}

impl Plan {
    fn claims(mut self, line: &[(&Job, u32)]) -> Vec<Claim> {
        self.groups.sort_unstable();
        let claim = |(places, gpus): (Places, u32)| Claim {
            members: places.iter().map(|i| line[*i].0.spec.id).collect(),
            gpus,
        };
        self.groups.into_iter().map(claim).collect()
    }
}

/// Where a job runs as wide as it should.
fn home(job: &Job, width: u32) -> Option<Home> {
    let held = job.allocation.as_ref().filter(|a| a.gpus() == width)?;
    let first = held.shares.first()?;
    Some((first.node, first.gpus.iter().next()?))
}

/// The chosen jobs, those together that share GPUs now.
fn running_groups(line: &[(&Job, u32)], chosen: &[usize]) -> Vec<Places> {
    let mut homes: BTreeMap<(Home, u32), usize> = BTreeMap::new();
    let mut groups: Vec<Places> = Vec::new();
    for i in chosen {
        let (job, width) = line[*i];
        let home = home(job, width)
            .filter(|_| job.spec.stages.is_some())
            .map(|home| (home, width));
        match home.and_then(|home| homes.get(&home)) {
            Some(group) => groups[*group].push(*i),
            None => {
                groups.push(alone(*i));
                if let Some(home) = home {
                    homes.insert(home, groups.len() - 1);
                }
            }
        }
    }
    groups
}

impl Muri {
    /// Merges these groups until they fit, takes some apart where there is room to spare, and weighs the result.
    fn plan(&mut self, line: &[(&Job, u32)], groups: impl Iterator<Item = Places>, gpus: u32) -> Plan {
        let mut plan = Plan {
            groups: Vec::new(),
            wanted: 0,
            speed: 0.0,
        };
        let mut buckets = Buckets::new();
        for places in groups {
            let width = line[places[0]].1;
            plan.wanted += u64::from(width);
            match self.running(line, &places, width) {
                Some(group) => buckets.entry(width).or_default().push(group),
                None => {
                    plan.speed += f64::from(width);
                    plan.groups.push((places, width));
                }
            }
        }
        if plan.wanted > u64::from(gpus) {
            self.merger
                .merge_until_fits(&mut buckets, &mut plan.wanted, u64::from(gpus));
        } else {
            self.spread_out(line, &mut buckets, &mut plan.wanted, u64::from(gpus));
        }
        for (width, groups) in buckets {
            for group in groups {
                if self.stable > 0.0 {
                    plan.speed += f64::from(width) * self.speed(&group);
                }
                self.unpack(group, width, &mut plan.groups);
            }
        }
        plan
    }

    /// These jobs as a group; none if one of them was not measured.
    fn running(&mut self, line: &[(&Job, u32)], places: &[usize], width: u32) -> Option<Group> {
        let mut group: Option<Group> = None;
        for place in places {
            let one = self.one(line, *place, width)?;
            group = Some(match group {
                None => one,
                Some(mut known) => {
                    known.code = kinds::together(known.code, one.code, self.merger.size)?;
                    known.places.push(*place);
                    known
                }
            });
        }
        group
    }

    /// A job as a group of its own; none if it was not measured.
    fn one(&mut self, line: &[(&Job, u32)], place: usize, width: u32) -> Option<Group> {
        let job = line[place].0;
        let memory_mib = match self.merger.gpu_memory_mib {
            Some(_) => job.spec.gpu_memory_mib,
            None => 0,
        };
        let code = self.merger.kinds.alone(job.spec.stages?, memory_mib);
        Some(Group::one(place, code, home(job, width)))
    }

    /// Takes the last in line out of the slowest groups, as long as there are GPUs for it.
    fn spread_out(&mut self, line: &[(&Job, u32)], buckets: &mut Buckets, wanted: &mut u64, gpus: u64) {
        for (width, groups) in buckets.iter_mut().rev() {
            while *wanted + u64::from(*width) <= gpus {
                let slowest = (0..groups.len())
                    .filter(|i| groups[*i].places.len() > 1)
                    .map(|i| (self.mean_speed_ppm(&groups[i]), i))
                    .min();
                let Some((_, slowest)) = slowest else { break };
                let mut places = groups[slowest].places.to_vec();
                places.sort_unstable();
                let Some(last) = places.pop() else { break };
                let parts = [self.running(line, &places, *width), self.one(line, last, *width)];
                groups.remove(slowest);
                groups.extend(parts.into_iter().flatten());
                *wanted += u64::from(*width);
            }
        }
    }

    /// The speeds of all members together, as shares of full speed.
    fn speed(&mut self, group: &Group) -> f64 {
        if group.places.len() == 1 {
            return 1.0;
        }
        let worth = self.merger.kinds.worth(group.code);
        worth.in_turn_us / worth.period_us
    }

    fn mean_speed_ppm(&mut self, group: &Group) -> u64 {
        (self.speed(group) / group.places.len() as f64 * 1e6) as u64
    }

    /// Places in line of the jobs that could run if every set of GPUs took `size` jobs of the same width.
    fn choose(&self, line: &[(&Job, u32)], gpus: u32) -> Vec<usize> {
        let (mut left, mut places) = (gpus, 0);
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (i, (job, width)) in line.iter().enumerate() {
            if left == 0 && places == 0 {
                break;
            }
            let more = if job.spec.stages.is_some() {
                self.merger.size - 1
            } else {
                0
            };
            let room = room.entry(*width).or_default();
            if more > 0 && *room > 0 {
                *room -= 1;
                places -= 1;
            } else if *width <= left {
                left -= width;
                *room += more;
                places += more;
            } else {
                continue;
            }
            chosen.push(i);
        }
        chosen
    }

    /// Lists the group, or its members alone if they would be faster one after the other.
    fn unpack(&mut self, group: Group, width: u32, groups: &mut Vec<(Places, u32)>) {
        let mut places = group.places;
        if self.autopack && size(group.code) > 1 {
            let worth = self.merger.kinds.worth(group.code);
            if worth.period_us > worth.in_turn_us {
                return groups.extend(places.into_iter().map(|i| (alone(i), width)));
            }
        }
        places.sort_unstable();
        groups.push((places, width));
    }
}
