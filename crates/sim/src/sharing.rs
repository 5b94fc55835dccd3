//! Which jobs share GPUs, and at what speed each runs.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::sharing::{Member, SharingTerms, Slowdowns, Speeds};
use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use dovetail_model::{Allocation, JobKey, NodeId, NodeShare, Rate};

/// A GPU; where jobs share all their GPUs, the first one stands for the whole set.
pub(crate) type SlotId = (NodeId, u32);

/// Jobs on the same GPUs.
#[derive(Debug)]
pub(crate) struct Sharing {
    terms: SharingTerms,
    /// Jobs on shared GPUs, in order of their start: by GPU where allocations overlap, else by set of GPUs.
    slots: BTreeMap<SlotId, Vec<JobKey>>,
    /// The GPUs of each job, where allocations overlap.
    places: BTreeMap<JobKey, Vec<SlotId>>,
    /// Slots where a job started or stopped since the last update.
    touched: Vec<SlotId>,
}

impl Sharing {
    pub(crate) fn new(terms: SharingTerms) -> Self {
        Self {
            terms,
            slots: BTreeMap::new(),
            places: BTreeMap::new(),
            touched: Vec::new(),
        }
    }

    /// Adds a job; returns its first GPU, and how many of its GPUs were idle.
    pub(crate) fn join(&mut self, job: JobKey, allocation: &Allocation) -> (SlotId, u32) {
        if !self.terms.overlap {
            let slot = slot(allocation);
            let was_idle = self.occupy(job, slot);
            return (slot, if was_idle { allocation.gpus() } else { 0 });
        }
        let on_node = |s: &NodeShare| -> Vec<SlotId> { s.gpus.iter().map(|slot| (s.node, slot)).collect() };
        let slots: Vec<SlotId> = allocation.shares.iter().flat_map(on_node).collect();
        let idle = slots.iter().filter(|slot| self.occupy(job, **slot)).count();
        let first = slots[0];
        self.places.insert(job, slots);
        (first, idle as u32)
    }

    /// Removes a job that had this many GPUs; returns how many of them are idle now.
    pub(crate) fn leave(&mut self, job: JobKey, slot: SlotId, gpus: u32) -> u32 {
        match self.places.remove(&job) {
            None => u32::from(self.vacate(job, slot)) * gpus,
            Some(slots) => slots.iter().filter(|slot| self.vacate(job, **slot)).count() as u32,
        }
    }

    /// Adds a job to a slot; returns whether the slot was empty before.
    fn occupy(&mut self, job: JobKey, slot: SlotId) -> bool {
        let here = self.slots.entry(slot).or_default();
        here.push(job);
        self.touched.push(slot);
        here.len() == 1
    }

    /// Removes a job from a slot; returns whether the slot is empty now.
    fn vacate(&mut self, job: JobKey, slot: SlotId) -> bool {
        let here = self
            .slots
            .get_mut(&slot)
            .expect("a job leaves the GPUs it was on");
        here.retain(|j| *j != job);
        let idle = here.is_empty();
        if idle {
            self.slots.remove(&slot);
        }
        self.touched.push(slot);
        idle
    }

    /// Returns the share of its exclusive speed that each job keeps on GPUs where a job started or stopped. A gang runs at
    /// the speed of its slowest GPU.
    pub(crate) fn take_touched(
        &mut self,
        rule: &Rule<'_>,
        guest: impl Fn(JobKey) -> Guest,
    ) -> Vec<(JobKey, Rate)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let rates = |here: &Vec<JobKey>| {
            let guests: Vec<Guest> = here.iter().map(|id| guest(*id)).collect();
            rule.kept(&guests)
        };
        let shared_slots = touched.iter().filter_map(|slot| self.slots.get(slot));
        if !self.terms.overlap {
            return shared_slots
                .flat_map(|here| here.iter().copied().zip(rates(here)))
                .collect();
        }
        let jobs: BTreeSet<JobKey> = shared_slots.flatten().copied().collect();
        let slowest = |job: JobKey| {
            let mut least = Rate::FULL;
            let mut last: Option<&Vec<JobKey>> = None;
            for here in self.places[&job].iter().map(|slot| &self.slots[slot]) {
                if last != Some(here) {
                    let position = here
                        .iter()
                        .position(|j| *j == job)
                        .expect("the job is on its GPUs");
                    least = least.min(rates(here)[position]);
                    last = Some(here);
                }
            }
            (job, least)
        };
        jobs.into_iter().map(slowest).collect()
    }
}

/// Returns the slot of an allocation.
pub(crate) fn slot(allocation: &Allocation) -> SlotId {
    let first = &allocation.shares[0];
    (first.node, first.gpus.iter().next().unwrap_or(0))
}

/// The properties of a job that determine its speed on shared GPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    pub(crate) member: Member,
    /// Whether it keeps its full speed where the terms guarantee that to some jobs.
    pub(crate) guaranteed: bool,
}

/// The speed of jobs on one GPU.
#[derive(Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) speeds: Speeds,
    pub(crate) slowdowns: &'a Slowdowns,
    pub(crate) contention: &'a Contention,
    pub(crate) ordering: Ordering,
}

impl Rule<'_> {
    /// Returns the share of its exclusive speed that each job keeps.
    fn kept(&self, guests: &[Guest]) -> Vec<Rate> {
        match (self.speeds, guests) {
            (Speeds::Paired { mps }, [a, b]) => self.paired(a, b, mps).to_vec(),
            (Speeds::Guaranteed { mps }, [a, b]) => match (a.guaranteed, b.guaranteed) {
                (true, false) => vec![Rate::FULL, self.left(a, b, mps)],
                (false, true) => vec![self.left(b, a, mps), Rate::FULL],
                (true, true) | (false, false) => self.paired(a, b, mps).to_vec(),
            },
            (Speeds::Interleaved | Speeds::Paired { .. } | Speeds::Guaranteed { .. }, _) => {
                let stages: Vec<Option<Stages>> = guests.iter().map(|g| g.member.stages).collect();
                kept(&stages, self.contention, self.ordering)
            }
        }
    }

    fn paired(&self, a: &Guest, b: &Guest, mps: bool) -> [Rate; 2] {
        let slowdowns = self.slowdowns.of_pair(&a.member, &b.member, mps, self.contention);
        slowdowns.map(|slowdown| Rate::from_factor(1.0 / slowdown))
    }

    fn left(&self, guaranteed: &Guest, other: &Guest, mps: bool) -> Rate {
        let share = self
            .slowdowns
            .remaining_beside(&guaranteed.member, &other.member, mps);
        Rate::from_factor(share)
    }
}

/// Returns the share of its exclusive speed that each member keeps. Without measured stages, or with more members than
/// resources, members take turns.
fn kept(members: &[Option<Stages>], contention: &Contention, ordering: Ordering) -> Vec<Rate> {
    let known: Option<Vec<Stages>> = members.iter().copied().collect();
    let turns = || vec![Rate::from_factor(1.0 / members.len() as f64); members.len()];
    match known {
        _ if members.len() <= 1 => vec![Rate::FULL; members.len()],
        Some(stages) if stages.len() <= MOST_SHARERS => {
            let period = shared_period_us(&stages, ordering, contention);
            stages
                .iter()
                .map(|s| Rate::from_factor(f64::from(s.iteration_us) / period))
                .collect()
        }
        _ => turns(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::GpuSet;

    #[test]
    fn members_keep_their_share_of_the_period() {
        let a2c = Stages::three(514_000, 14_000, 0, 517_000);
        let bert = Stages::three(500, 160_000, 0, 178_000);
        let rates = kept(&[Some(a2c), Some(bert)], &Contention::default(), Ordering::Best);
        let period = 528_000.0 * 1.33 / 1.015;
        assert_eq!(
            rates,
            [
                Rate::from_factor(517_000.0 / period),
                Rate::from_factor(178_000.0 / period)
            ]
        );
        assert_eq!(
            kept(&[Some(a2c)], &Contention::default(), Ordering::Best),
            [Rate::FULL]
        );
        assert_eq!(
            kept(&[None, None], &Contention::default(), Ordering::Best),
            [Rate(500_000); 2]
        );
    }

    fn plain(_: JobKey) -> Guest {
        Guest {
            member: Member {
                model: None,
                gpus: 1,
                stages: None,
            },
            guaranteed: false,
        }
    }

    fn on(gpus: &[u32]) -> Allocation {
        let mut set = GpuSet::empty(8);
        gpus.iter().for_each(|slot| set.insert(*slot));
        let share = NodeShare {
            node: NodeId(0),
            gpus: set,
            cpu_milli: 0,
            memory_mib: 0,
        };
        Allocation {
            shares: [share].into_iter().collect(),
        }
    }

    fn rule(slowdowns: &Slowdowns, speeds: Speeds) -> Rule<'_> {
        Rule {
            speeds,
            slowdowns,
            contention: &Contention::NONE,
            ordering: Ordering::Best,
        }
    }

    #[test]
    fn a_group_follows_jobs_that_start_and_stop() {
        let (table, mut sharing) = (Slowdowns::default(), Sharing::new(SharingTerms::GROUPS));
        let rule = rule(&table, Speeds::Interleaved);
        let place = on(&[2, 3]);
        let ((slot, first), (_, second)) = (sharing.join(JobKey(1), &place), sharing.join(JobKey(2), &place));
        assert_eq!((slot, first, second), ((NodeId(0), 2), 2, 0));
        let half = Rate(500_000);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobKey(1), half), (JobKey(2), half)]
        );
        assert_eq!(sharing.leave(JobKey(1), slot, 2), 0);
        assert_eq!(sharing.leave(JobKey(2), slot, 2), 2);
        assert!(sharing.take_touched(&rule, plain).is_empty());
    }

    #[test]
    fn a_gang_waits_for_its_slowest_gpu_and_every_gpu_counts_once() {
        let terms = SharingTerms {
            max_jobs: 2,
            overlap: true,
            speeds: Speeds::Paired { mps: false },
        };
        let (table, mut sharing) = (Slowdowns::default(), Sharing::new(terms));
        let rule = rule(&table, terms.speeds);
        assert_eq!(sharing.join(JobKey(1), &on(&[0, 1, 2, 3])).1, 4);
        assert_eq!(sharing.join(JobKey(2), &on(&[3, 4])).1, 1);
        let half = Rate(500_000);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobKey(1), half), (JobKey(2), half)]
        );
        assert_eq!(sharing.join(JobKey(3), &on(&[4])).1, 0);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobKey(2), half), (JobKey(3), half)]
        );
        assert_eq!(sharing.leave(JobKey(2), (NodeId(0), 3), 2), 0);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobKey(1), Rate::FULL), (JobKey(3), Rate::FULL)]
        );
        assert_eq!(sharing.leave(JobKey(3), (NodeId(0), 4), 1), 1);
        assert_eq!(sharing.leave(JobKey(1), (NodeId(0), 0), 4), 4);
    }

    #[test]
    fn a_guaranteed_job_is_not_slowed_down() {
        let speeds = Speeds::Guaranteed { mps: false };
        let table = Slowdowns::default();
        let guest = |guaranteed| Guest {
            guaranteed,
            ..plain(JobKey(0))
        };
        let kept = |a, b| rule(&table, speeds).kept(&[guest(a), guest(b)]);
        assert_eq!(kept(true, false), [Rate::FULL, Rate(500_000)]);
        assert_eq!(kept(false, true), [Rate(500_000), Rate::FULL]);
        assert_eq!(kept(false, false), [Rate(500_000); 2]);
    }
}
