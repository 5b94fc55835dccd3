//! Muri: jobs that use storage, CPU, GPU and network at different times share GPUs, grouped by weighted matching.
//!
//! Jobs of equal width form buckets. In queue order, as many jobs are chosen as could run if every set of GPUs took `size`
//! of them. If they ask for no more GPUs than there are, no jobs share. Otherwise groups are merged in rounds: inside each
//! bucket a maximum-weight matching pairs groups by the interleaving efficiency of the merged group, and pairs are merged,
//! most efficient first, until all fit; of equal ones those that run together stay together. `autopack` splits groups again
//! whose members would be faster one after the other. Where periods of groups are measured, measurements replace the model
//! of contention, and `autopack` does not merge such groups in the first place. With `unequal`, the remaining jobs run
//! beside wider groups.

mod guests;
mod kinds;
mod merge;

use dovetail_engine::{Ask, Claim, Cluster, Feature, Grouping, Job, Need, NeedSet, Occupancy, Part};
use dovetail_model::stages::{MOST_SHARERS, Ordering};
use dovetail_model::{Allocation, SharedGroupFactors, SharingTerms, Time};
use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

use guests::Guests;
use kinds::{Kinds, size};
use merge::{Buckets, FirstGpu, Group, Merger};

use super::sharing_knobs;
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "muri",
    what: "interleave up to four jobs of equal width on the same GPUs, paired by matching",
    source: "Muri (SIGCOMM'22); needs stage times in the trace",
    key: "maximum-weight matching on efficiency = busy time of four resources / (4 × period)",
    companions: &[(Kind::Discipline, "replan")],
    knobs: &[
        sharing_knobs::SIZE,
        sharing_knobs::AUTOPACK,
        Knob {
            name: "stable",
            default: "0",
            what: "keep running groups unless new ones are faster by this fraction; 0: plan from scratch, inf: always keep",
        },
        Knob {
            name: "unequal",
            default: "false",
            what: "true: a job without a group of its own width runs on some GPUs of a wider one, if all jobs gain",
        },
        sharing_knobs::MATCHING,
        sharing_knobs::ORDERING,
    ],
    build: |knobs| {
        let (size, ordering) = (sharing_knobs::size(knobs)?, sharing_knobs::ordering(knobs)?);
        Ok(Box::new(Muri {
            stable: match knobs.get("stable", "a number of at least 0, or inf")? {
                stable if stable >= 0.0 => stable,
                _ => return Err(knobs.invalid("stable", "a number of at least 0, or inf")),
            },
            guests: knobs
                .get::<bool>("unequal", "true or false")?
                .then(Guests::default),
            merger: Merger::new(
                size,
                knobs.get("matching", "true or false")?,
                knobs.get("autopack", "true or false")?,
                Kinds::new(ordering),
            ),
            name: knobs.name(),
        }))
    },
};

/// Interleaves jobs by matching.
#[derive(Debug, Clone)]
struct Muri {
    /// How much faster new groups must be, all together, to replace running ones, as a fraction.
    stable: f64,
    /// Places jobs beside wider groups, if enabled.
    guests: Option<Guests>,
    merger: Merger,
    name: String,
}

impl Part for Muri {
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
        match self.guests {
            None => &[Feature::WholeGroups],
            Some(_) => &[],
        }
    }
}

impl Grouping for Muri {
    fn terms(&self) -> SharingTerms {
        SharingTerms {
            max_jobs: self.merger.size as u32,
            overlap: self.guests.is_some(),
            ..SharingTerms::GROUPS
        }
    }

    fn interleaving(&self) -> Option<Ordering> {
        Some(self.merger.kinds.ordering())
    }

    fn observe(&mut self, cluster: &Cluster, factors: Option<&SharedGroupFactors>) {
        self.merger.set_factors(factors);
        self.merger.gpu_memory_mib = cluster.least_gpu_memory_mib();
        if let Some(guests) = &mut self.guests {
            guests.begin();
        }
    }

    fn place_beside(&mut self, job: &Job, ask: &Ask, view: &Occupancy<'_>, _now: Time) -> Option<Allocation> {
        let Merger { size, kinds, .. } = &mut self.merger;
        self.guests.as_mut()?.place(kinds, *size, job, ask, view)
    }

    fn group(&mut self, queue: &[(&Job, u32)], gpus: u32, _now: Time) -> Vec<Claim> {
        let chosen = self.choose(queue, gpus);
        if self.stable == 0.0 {
            return self
                .plan(queue, chosen.into_iter().map(alone), gpus)
                .claims(queue);
        }
        let demand: u64 = chosen.iter().map(|i| u64::from(queue[*i].1)).sum();
        let running = running_groups(queue, &chosen);
        let shared = demand > u64::from(gpus) && running.iter().any(|positions| positions.len() > 1);
        let kept = shared.then(|| self.plan(queue, running.into_iter(), gpus));
        let kept = kept.filter(|plan| plan.demand <= u64::from(gpus));
        match kept {
            Some(kept) if self.stable.is_infinite() => kept.claims(queue),
            Some(kept) => {
                let fresh = self.plan(queue, chosen.into_iter().map(alone), gpus);
                let is_worth_it = fresh.speed > kept.speed * (1.0 + self.stable);
                if is_worth_it { fresh } else { kept }.claims(queue)
            }
            None => self
                .plan(queue, chosen.into_iter().map(alone), gpus)
                .claims(queue),
        }
    }
}

/// Positions in the queue of jobs that run together.
type Positions = SmallVec<[usize; MOST_SHARERS]>;

fn alone(position: usize) -> Positions {
    smallvec![position]
}

/// Which jobs run together.
struct Plan {
    /// Positions in the queue, best first, and the width.
    groups: Vec<(Positions, u32)>,
    /// GPUs for all of them.
    demand: u64,
    /// GPUs × fraction of full speed, over all jobs; only where plans are compared.
    speed: f64,
}

impl Plan {
    fn claims(mut self, queue: &[(&Job, u32)]) -> Vec<Claim> {
        self.groups.sort_unstable();
        let claim = |(positions, gpus): (Positions, u32)| Claim {
            members: positions.iter().map(|i| queue[*i].0.spec.id).collect(),
            gpus,
        };
        self.groups.into_iter().map(claim).collect()
    }
}

/// The first GPU of a job that holds exactly `width` GPUs.
fn first_gpu(job: &Job, width: u32) -> Option<FirstGpu> {
    let held = job.allocation.as_ref().filter(|a| a.gpus() == width)?;
    let first = held.shares.first()?;
    Some((first.node, first.gpus.iter().next()?))
}

/// The chosen jobs, grouped by the GPUs that they share now.
fn running_groups(queue: &[(&Job, u32)], chosen: &[usize]) -> Vec<Positions> {
    let mut at_gpu: BTreeMap<(FirstGpu, u32), usize> = BTreeMap::new();
    let mut groups: Vec<Positions> = Vec::new();
    for i in chosen {
        let (job, width) = queue[*i];
        let first_gpu = first_gpu(job, width)
            .filter(|_| job.spec.stages.is_some())
            .map(|first_gpu| (first_gpu, width));
        match first_gpu.and_then(|first_gpu| at_gpu.get(&first_gpu)) {
            Some(group) => groups[*group].push(*i),
            None => {
                groups.push(alone(*i));
                if let Some(first_gpu) = first_gpu {
                    at_gpu.insert(first_gpu, groups.len() - 1);
                }
            }
        }
    }
    groups
}

impl Muri {
    /// Merges these groups until they fit, splits some if GPUs are left, and computes the total speed.
    fn plan(&mut self, queue: &[(&Job, u32)], groups: impl Iterator<Item = Positions>, gpus: u32) -> Plan {
        let mut plan = Plan {
            groups: Vec::new(),
            demand: 0,
            speed: 0.0,
        };
        let mut buckets = Buckets::new();
        for positions in groups {
            let width = queue[positions[0]].1;
            plan.demand += u64::from(width);
            match self.running(queue, &positions, width) {
                Some(group) => buckets.entry(width).or_default().push(group),
                None => {
                    plan.speed += f64::from(width);
                    plan.groups.push((positions, width));
                }
            }
        }
        if plan.demand > u64::from(gpus) {
            self.merger
                .merge_until_fits(&mut buckets, &mut plan.demand, u64::from(gpus));
            if plan.demand > u64::from(gpus) {
                self.absorb_waiting(queue, &mut buckets, &plan.groups, gpus);
            }
        } else {
            self.spread_out(queue, &mut buckets, &mut plan.demand, u64::from(gpus));
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

    /// These jobs as a group; `None` if one of them was not measured.
    fn running(&mut self, queue: &[(&Job, u32)], positions: &[usize], width: u32) -> Option<Group> {
        let mut group: Option<Group> = None;
        for position in positions {
            let one = self.one(queue, *position, width)?;
            group = Some(match group {
                None => one,
                Some(mut known) => {
                    known.code = kinds::merged(known.code, one.code, self.merger.size)?;
                    known.positions.push(*position);
                    known
                }
            });
        }
        group
    }

    /// A job as a group of its own; `None` if it was not measured.
    fn one(&mut self, queue: &[(&Job, u32)], position: usize, width: u32) -> Option<Group> {
        let job = queue[position].0;
        let memory_mib = match self.merger.gpu_memory_mib {
            Some(_) => job.spec.gpu_memory_mib,
            None => 0,
        };
        let code = self.merger.kinds.alone(&job.spec, memory_mib)?;
        Some(Group::one(position, code, first_gpu(job, width)))
    }

    /// Removes the last job in the queue from the slowest groups, as long as there are GPUs for it.
    fn spread_out(&mut self, queue: &[(&Job, u32)], buckets: &mut Buckets, demand: &mut u64, gpus: u64) {
        for (width, groups) in buckets.iter_mut().rev() {
            while *demand + u64::from(*width) <= gpus {
                let slowest = (0..groups.len())
                    .filter(|i| groups[*i].positions.len() > 1)
                    .map(|i| (self.mean_speed_ppm(&groups[i]), i))
                    .min();
                let Some((_, slowest)) = slowest else { break };
                let mut positions = groups[slowest].positions.to_vec();
                positions.sort_unstable();
                let Some(last) = positions.pop() else { break };
                let parts = [
                    self.running(queue, &positions, *width),
                    self.one(queue, last, *width),
                ];
                groups.remove(slowest);
                groups.extend(parts.into_iter().flatten());
                *demand += u64::from(*width);
            }
        }
    }

    /// Where measured groups were refused, not all groups fit: lets jobs of groups that would wait run beside those that are
    /// served.
    fn absorb_waiting(
        &mut self,
        queue: &[(&Job, u32)],
        buckets: &mut Buckets,
        others: &[(Positions, u32)],
        gpus: u32,
    ) {
        let mut order: Vec<(usize, u32, Option<usize>)> = others
            .iter()
            .map(|(positions, width)| (positions[0], *width, None))
            .collect();
        for (width, groups) in buckets.iter() {
            let first = |group: &Group| group.positions.iter().copied().min().unwrap_or(usize::MAX);
            order.extend(
                groups
                    .iter()
                    .enumerate()
                    .map(|(i, group)| (first(group), *width, Some(i))),
            );
        }
        order.sort_unstable();
        let mut left = gpus;
        let mut served: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut waiting: Vec<(u32, usize)> = Vec::new();
        for (_, width, group) in order {
            let is_served = width <= left;
            left -= if is_served { width } else { 0 };
            match group {
                Some(group) if is_served => served.entry(width).or_default().push(group),
                Some(group) => waiting.push((width, group)),
                None => {}
            }
        }
        for (width, group) in waiting {
            let groups = buckets.get_mut(&width).expect("the group is from this bucket");
            let served = served.get(&width).map_or(&[][..], Vec::as_slice);
            let mut positions = std::mem::take(&mut groups[group].positions);
            positions.sort_unstable();
            positions.retain(|position| {
                let Some(job) = self.one(queue, *position, width) else {
                    return true;
                };
                !self.merger.add_to_best(groups, served, job)
            });
            if let Some(rest) = self.running(queue, &positions, width) {
                groups[group] = rest;
            }
        }
        buckets
            .values_mut()
            .for_each(|groups| groups.retain(|group| !group.positions.is_empty()));
    }

    /// The sum of the speeds of all members, as fractions of full speed.
    fn speed(&mut self, group: &Group) -> f64 {
        if group.positions.len() == 1 {
            return 1.0;
        }
        let timing = self.merger.kinds.timing(group.code);
        timing.in_turn_us / timing.period_us
    }

    fn mean_speed_ppm(&mut self, group: &Group) -> u64 {
        (self.speed(group) / group.positions.len() as f64 * 1e6) as u64
    }

    /// Positions in the queue of the jobs that could run if every set of GPUs took `size` jobs of the same width.
    fn choose(&self, queue: &[(&Job, u32)], gpus: u32) -> Vec<usize> {
        let (mut left, mut positions) = (gpus, 0);
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (i, (job, width)) in queue.iter().enumerate() {
            if left == 0 && positions == 0 {
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
                positions -= 1;
            } else if *width <= left {
                left -= width;
                *room += more;
                positions += more;
            } else {
                continue;
            }
            chosen.push(i);
        }
        chosen
    }

    /// Lists the group, or its members alone if they would be faster one after the other.
    fn unpack(&mut self, group: Group, width: u32, groups: &mut Vec<(Positions, u32)>) {
        let mut positions = group.positions;
        if self.merger.autopack && size(group.code) > 1 {
            let timing = self.merger.kinds.timing(group.code);
            if timing.is_slower_than_in_turn() {
                return groups.extend(positions.into_iter().map(|i| (alone(i), width)));
            }
        }
        positions.sort_unstable();
        groups.push((positions, width));
    }
}
