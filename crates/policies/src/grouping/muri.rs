//! Muri: jobs that use storage, CPU, GPU and network at different moments share GPUs, grouped by weighted matching.
//!
//! Jobs of equal width form buckets. In the order of the line, as many jobs are chosen as could run if every set of
//! GPUs took `size` of them. If they ask for no more GPUs than there are, nobody shares. Otherwise groups are merged in
//! rounds: inside each bucket a maximum-weight matching pairs groups by the interleaving efficiency of the merged
//! group, and pairs are merged, most efficient first, until all fit. `autopack` takes groups apart again whose members
//! would be faster one after the other.

use std::collections::BTreeMap;

use dovetail_engine::{Claim, Cluster, Grouping, Job, Knowledge, Part};
use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use dovetail_model::{NodeId, Terms, Time};
use dovetail_solve::matching::by_type;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "muri",
    what: "interleave up to four jobs of equal width on the same GPUs, paired by matching",
    source: "Muri (SIGCOMM'22); needs discipline replan and stage times in the trace",
    key: "maximum-weight matching on efficiency = busy time of four resources / (4 × period)",
    knowledge: Knowledge::None,
    knobs: &[
        Knob {
            name: "size",
            default: "4",
            what: "jobs that share GPUs at most; 2, 3 or 4",
        },
        Knob {
            name: "autopack",
            default: "true",
            what: "take groups apart that are slower than their jobs in turn",
        },
        Knob {
            name: "stable",
            default: "0",
            what: "running groups stay together unless new ones are faster by this share; 0: plan anew, inf: always stay",
        },
        Knob {
            name: "matching",
            default: "true",
            what: "false: neighbours in line share (ablation)",
        },
        Knob {
            name: "ordering",
            default: "best",
            what: "best, or worst (ablation)",
        },
    ],
    build: |knobs| {
        let size = match knobs.get("size", "2, 3 or 4")? {
            size @ 2..=MOST_SHARERS => size,
            _ => return Err(knobs.bad("size", "2, 3 or 4")),
        };
        let ordering = match knobs.text("ordering") {
            "best" => Ordering::Best,
            "worst" => Ordering::Worst,
            _ => return Err(knobs.bad("ordering", "best or worst")),
        };
        Ok(Box::new(Muri {
            size,
            ordering,
            autopack: knobs.get("autopack", "true or false")?,
            stable: match knobs.get("stable", "a number of at least 0, or inf")? {
                stable if stable >= 0.0 => stable,
                _ => return Err(knobs.bad("stable", "a number of at least 0, or inf")),
            },
            matching: knobs.get("matching", "true or false")?,
            contention: Contention::default(),
            periods: BTreeMap::new(),
            gpu_memory_mib: None,
            name: knobs.name(),
        }))
    },
};

/// Interleaving by matching.
#[derive(Debug, Clone)]
pub struct Muri {
    size: usize,
    ordering: Ordering,
    autopack: bool,
    /// How much faster new groups must be, all together, before running ones are taken apart for them.
    stable: f64,
    matching: bool,
    contention: Contention,
    /// Periods already computed, by sorted members: there are few models, so few groups.
    periods: BTreeMap<Vec<Stages>, f64>,
    /// The memory of the smallest GPU, where nodes say it; a group has to fit into it.
    gpu_memory_mib: Option<u64>,
    name: String,
}

impl Part for Muri {
    fn name(&self) -> String {
        self.name.clone()
    }
}

/// Jobs that share, by their places in line, with the stages of each.
#[derive(Debug, Clone)]
struct Group {
    places: Vec<usize>,
    stages: Vec<Stages>,
    /// Memory they fill together on each GPU, in MiB; zero where GPUs do not say what they have.
    fills_mib: u64,
}

impl Grouping for Muri {
    fn terms(&self) -> Terms {
        Terms {
            most: self.size as u32,
            ..Terms::GROUPS
        }
    }

    fn see(&mut self, cluster: &Cluster) {
        self.gpu_memory_mib = cluster.least_gpu_memory_mib();
    }

    fn group(&mut self, line: &[(&Job, u32)], gpus: u32, _now: Time) -> Vec<Claim> {
        let chosen = self.choose(line, gpus);
        let wanted: u64 = chosen.iter().map(|i| u64::from(line[*i].1)).sum();
        let alone = chosen.iter().map(|i| vec![*i]).collect();
        if wanted <= u64::from(gpus) {
            return self.plan(line, alone, gpus).claims(line);
        }
        let running = running_groups(line, &chosen);
        let shared = running.iter().any(|places| places.len() > 1);
        let kept = (self.stable > 0.0 && shared).then(|| self.plan(line, running, gpus));
        let kept = kept.filter(|plan| plan.wanted <= u64::from(gpus));
        match kept {
            Some(kept) if self.stable.is_infinite() => kept.claims(line),
            Some(kept) => {
                let fresh = self.plan(line, alone, gpus);
                let is_worth_it = fresh.speed > kept.speed * (1.0 + self.stable);
                if is_worth_it { fresh } else { kept }.claims(line)
            }
            None => self.plan(line, alone, gpus).claims(line),
        }
    }
}

/// Who runs with whom.
struct Plan {
    /// Places in line, best first, and the width.
    groups: Vec<(Vec<usize>, u32)>,
    /// GPUs for all of them.
    wanted: u64,
    /// GPUs × the share of full speed, over all jobs.
    speed: f64,
}

impl Plan {
    fn claims(mut self, line: &[(&Job, u32)]) -> Vec<Claim> {
        self.groups.sort_unstable();
        let claim = |(places, gpus): (Vec<usize>, u32)| Claim {
            members: places.iter().map(|i| line[*i].0.spec.id).collect(),
            gpus,
        };
        self.groups.into_iter().map(claim).collect()
    }
}

/// The chosen jobs, those together that share GPUs now.
fn running_groups(line: &[(&Job, u32)], chosen: &[usize]) -> Vec<Vec<usize>> {
    let mut seats: BTreeMap<(NodeId, Option<u32>), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in chosen {
        let (job, width) = line[*i];
        let held = job.allocation.as_ref().filter(|a| a.gpus() == width);
        let seat = held.map(|a| (a.shares[0].node, a.shares[0].gpus.iter().next()));
        match seat.and_then(|seat| seats.get(&seat)) {
            Some(group) if job.spec.stages.is_some() => groups[*group].push(*i),
            _ => {
                groups.push(vec![*i]);
                if let Some(seat) = seat.filter(|_| job.spec.stages.is_some()) {
                    seats.insert(seat, groups.len() - 1);
                }
            }
        }
    }
    groups
}

impl Muri {
    /// Merges these groups until they fit, takes some apart where there is room to spare, and weighs the result.
    fn plan(&mut self, line: &[(&Job, u32)], groups: Vec<Vec<usize>>, gpus: u32) -> Plan {
        let mut plan = Plan {
            groups: Vec::new(),
            wanted: 0,
            speed: 0.0,
        };
        let mut buckets: BTreeMap<u32, Vec<Group>> = BTreeMap::new();
        for places in groups {
            let width = line[places[0]].1;
            plan.wanted += u64::from(width);
            let members = places.iter().map(|i| &line[*i].0.spec);
            match members
                .clone()
                .map(|spec| spec.stages)
                .collect::<Option<Vec<Stages>>>()
            {
                Some(stages) => buckets.entry(width).or_default().push(Group {
                    fills_mib: self
                        .gpu_memory_mib
                        .map_or(0, |_| members.map(|s| s.gpu_memory_mib).sum()),
                    places,
                    stages,
                }),
                None => {
                    plan.speed += f64::from(width);
                    plan.groups.push((places, width));
                }
            }
        }
        if plan.wanted > u64::from(gpus) {
            self.merge_until_fits(&mut buckets, &mut plan.wanted, u64::from(gpus));
        } else {
            self.spread_out(&mut buckets, &mut plan.wanted, u64::from(gpus));
        }
        for (width, groups) in buckets {
            for group in groups {
                plan.speed += f64::from(width) * self.speed(&group.stages);
                let unpacked = self.unpack(group).into_iter();
                plan.groups.extend(unpacked.map(|places| (places, width)));
            }
        }
        plan
    }

    /// Takes the last in line out of the slowest groups, as long as there are GPUs for it. Nothing is merged after that,
    /// so what a single job fills does not matter any more.
    fn spread_out(&mut self, buckets: &mut BTreeMap<u32, Vec<Group>>, wanted: &mut u64, gpus: u64) {
        for (width, groups) in buckets.iter_mut().rev() {
            while *wanted + u64::from(*width) <= gpus {
                let slowest = (0..groups.len())
                    .filter(|i| groups[*i].places.len() > 1)
                    .map(|i| (self.mean_speed_ppm(&groups[i].stages), i))
                    .min();
                let Some((_, slowest)) = slowest else { break };
                let group = &mut groups[slowest];
                let last = |list: &[usize]| (0..list.len()).max_by_key(|i| list[*i]);
                let Some(last) = last(&group.places) else { break };
                let alone = Group {
                    places: vec![group.places.remove(last)],
                    stages: vec![group.stages.remove(last)],
                    fills_mib: 0,
                };
                groups.push(alone);
                *wanted += u64::from(*width);
            }
        }
    }

    /// The speeds of all members together, as shares of full speed.
    fn speed(&mut self, stages: &[Stages]) -> f64 {
        match stages {
            [_] => 1.0,
            _ => {
                let alone: f64 = stages.iter().map(|s| f64::from(s.iteration_us)).sum();
                alone / self.period(stages.to_vec())
            }
        }
    }

    fn mean_speed_ppm(&mut self, stages: &[Stages]) -> u64 {
        (self.speed(stages) / stages.len() as f64 * 1e6) as u64
    }

    /// Places in line of the jobs that could run if every set of GPUs took `size` jobs of the same width.
    fn choose(&self, line: &[(&Job, u32)], gpus: u32) -> Vec<usize> {
        let mut left = gpus;
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (i, (job, width)) in line.iter().enumerate() {
            let shares = job.spec.stages.is_some();
            let room = room.entry(*width).or_default();
            if shares && *room > 0 {
                *room -= 1;
            } else if *width <= left {
                left -= width;
                *room += if shares { self.size - 1 } else { 0 };
            } else {
                continue;
            }
            chosen.push(i);
        }
        chosen
    }

    /// Rounds of pairing, in every bucket, until no more GPUs are wanted than there are.
    fn merge_until_fits(&mut self, buckets: &mut BTreeMap<u32, Vec<Group>>, wanted: &mut u64, gpus: u64) {
        for _ in 0..self.size {
            let mut pairs: Vec<(std::cmp::Reverse<i64>, u32, usize, usize)> = Vec::new();
            for (width, groups) in buckets.iter() {
                let found = if self.matching {
                    self.matched(groups)
                } else {
                    self.neighbours(groups)
                };
                pairs.extend(
                    found
                        .into_iter()
                        .map(|(a, b, gain)| (std::cmp::Reverse(gain), *width, a, b)),
                );
            }
            if pairs.is_empty() {
                return;
            }
            pairs.sort_unstable();
            let mut gone: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for (_, width, a, b) in pairs {
                if *wanted <= gpus {
                    break;
                }
                let groups = buckets.get_mut(&width).expect("the pair is from this bucket");
                let second = groups[b].clone();
                groups[a].places.extend(second.places);
                groups[a].stages.extend(second.stages);
                groups[a].fills_mib += second.fills_mib;
                gone.entry(width).or_default().push(b);
                *wanted -= u64::from(width);
            }
            for (width, mut places) in gone {
                places.sort_unstable();
                let groups = buckets
                    .get_mut(&width)
                    .expect("something was merged in this bucket");
                places.into_iter().rev().for_each(|i| drop(groups.remove(i)));
            }
            if *wanted <= gpus {
                return;
            }
        }
    }

    /// Pairs of groups by maximum-weight matching, with the efficiency they reach, in millionths. Groups of the same
    /// models are alike, so the matching is over kinds of groups, which are few, not over groups.
    fn matched(&mut self, groups: &[Group]) -> Vec<(usize, usize, i64)> {
        let mut kinds: BTreeMap<(Vec<Stages>, u64), Vec<u32>> = BTreeMap::new();
        for (i, group) in groups.iter().enumerate() {
            let mut stages = group.stages.clone();
            stages.sort_unstable();
            kinds.entry((stages, group.fills_mib)).or_default().push(i as u32);
        }
        let counts: Vec<u32> = kinds.values().map(|members| members.len() as u32).collect();
        let keys: Vec<&(Vec<Stages>, u64)> = kinds.keys().collect();
        let mut weight = vec![vec![0; keys.len()]; keys.len()];
        for (a, first) in keys.iter().enumerate() {
            for (b, second) in keys.iter().enumerate().take(a + 1) {
                let fits = self.fits(first.1 + second.1);
                let gain = if fits {
                    self.efficiency(&first.0, &second.0)
                } else {
                    0
                };
                (weight[a][b], weight[b][a]) = (gain, gain);
            }
        }
        let members: Vec<Vec<u32>> = kinds.into_values().collect();
        let pairs = by_type(&counts, &weight).assign(&members);
        let ordered = |(a, b): (u32, u32)| (a.min(b) as usize, a.max(b) as usize);
        pairs
            .into_iter()
            .map(ordered)
            .map(|(a, b)| (a, b, self.efficiency(&groups[a].stages, &groups[b].stages)))
            .collect()
    }

    /// Neighbours in line, without matching.
    fn neighbours(&mut self, groups: &[Group]) -> Vec<(usize, usize, i64)> {
        let mut pairs = Vec::new();
        let mut last: Option<usize> = None;
        for (i, group) in groups.iter().enumerate() {
            match last.take() {
                Some(a)
                    if groups[a].places.len() + group.places.len() <= self.size
                        && self.fits(groups[a].fills_mib + group.fills_mib) =>
                {
                    pairs.push((a, i, self.efficiency(&groups[a].stages, &group.stages)));
                }
                _ => last = Some(i),
            }
        }
        pairs
    }

    /// Whether every GPU has so much memory.
    fn fits(&self, mib: u64) -> bool {
        self.gpu_memory_mib.is_none_or(|has| mib <= has)
    }

    /// The efficiency of two groups together, in millionths; zero if they are too many.
    fn efficiency(&mut self, first: &[Stages], second: &[Stages]) -> i64 {
        if first.len() + second.len() > self.size {
            return 0;
        }
        let members: Vec<Stages> = first.iter().chain(second).copied().collect();
        let used: u64 = members.iter().map(Stages::sum_us).sum();
        (used as f64 / (4.0 * self.period(members)) * 1e6) as i64
    }

    fn period(&mut self, mut members: Vec<Stages>) -> f64 {
        members.sort_unstable();
        let (ordering, contention) = (self.ordering, self.contention);
        *self
            .periods
            .entry(members)
            .or_insert_with_key(|m| shared_period_us(m, ordering, &contention))
    }

    /// The group, or its members alone if they would be faster one after the other.
    fn unpack(&mut self, group: Group) -> Vec<Vec<usize>> {
        let in_turn: f64 = group.stages.iter().map(|s| f64::from(s.iteration_us)).sum();
        if self.autopack && group.places.len() > 1 && self.period(group.stages) > in_turn {
            return group.places.into_iter().map(|i| vec![i]).collect();
        }
        let mut places = group.places;
        places.sort_unstable();
        vec![places]
    }
}
