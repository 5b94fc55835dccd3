//! Who shares GPUs with whom, and how fast each goes then.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::sharing::{Member, Slowdowns, Speeds, Terms};
use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use dovetail_model::{Allocation, JobId, NodeId, NodeShare, Rate};

/// A GPU; where jobs share all their GPUs, the first one stands for the whole set.
pub(crate) type Seat = (NodeId, u32);

/// Jobs on the same GPUs.
#[derive(Debug)]
pub(crate) struct Sharing {
    terms: Terms,
    /// Who is there, in the order they came: by GPU where allocations overlap, else by set of GPUs.
    seats: BTreeMap<Seat, Vec<JobId>>,
    /// The GPUs of each job, where allocations overlap.
    places: BTreeMap<JobId, Vec<Seat>>,
    /// Seats where someone came or went since the last look.
    touched: Vec<Seat>,
}

impl Sharing {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            seats: BTreeMap::new(),
            places: BTreeMap::new(),
            touched: Vec::new(),
        }
    }

    /// A job comes; tells its first GPU, and how many of its GPUs were idle.
    pub(crate) fn join(&mut self, job: JobId, allocation: &Allocation) -> (Seat, u32) {
        if !self.terms.overlap {
            let seat = seat(allocation);
            let was_idle = self.sit_down(job, seat);
            return (seat, if was_idle { allocation.gpus() } else { 0 });
        }
        let on_node = |s: &NodeShare| -> Vec<Seat> { s.gpus.iter().map(|slot| (s.node, slot)).collect() };
        let slots: Vec<Seat> = allocation.shares.iter().flat_map(on_node).collect();
        let idle = slots.iter().filter(|slot| self.sit_down(job, **slot)).count();
        let first = slots[0];
        self.places.insert(job, slots);
        (first, idle as u32)
    }

    /// A job goes that had so many GPUs; tells how many of them are idle now.
    pub(crate) fn leave(&mut self, job: JobId, seat: Seat, gpus: u32) -> u32 {
        match self.places.remove(&job) {
            None => u32::from(self.get_up(job, seat)) * gpus,
            Some(slots) => slots.iter().filter(|slot| self.get_up(job, **slot)).count() as u32,
        }
    }

    /// Whether the seat was empty before.
    fn sit_down(&mut self, job: JobId, seat: Seat) -> bool {
        let here = self.seats.entry(seat).or_default();
        here.push(job);
        self.touched.push(seat);
        here.len() == 1
    }

    /// Whether the seat is empty now.
    fn get_up(&mut self, job: JobId, seat: Seat) -> bool {
        let here = self
            .seats
            .get_mut(&seat)
            .expect("a job leaves the GPUs it was on");
        here.retain(|j| *j != job);
        let idle = here.is_empty();
        if idle {
            self.seats.remove(&seat);
        }
        self.touched.push(seat);
        idle
    }

    /// The share of its own speed that everyone keeps on whose GPUs someone came or went. A gang waits for its slowest
    /// GPU.
    pub(crate) fn take_touched(
        &mut self,
        rule: &Rule<'_>,
        guest: impl Fn(JobId) -> Guest,
    ) -> Vec<(JobId, Rate)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let rates = |here: &Vec<JobId>| {
            let guests: Vec<Guest> = here.iter().map(|id| guest(*id)).collect();
            rule.kept(&guests)
        };
        let companies = touched.iter().filter_map(|seat| self.seats.get(seat));
        if !self.terms.overlap {
            return companies
                .flat_map(|here| here.iter().copied().zip(rates(here)))
                .collect();
        }
        let jobs: BTreeSet<JobId> = companies.flatten().copied().collect();
        let slowest = |job: JobId| {
            let mut least = Rate::FULL;
            let mut last: Option<&Vec<JobId>> = None;
            for here in self.places[&job].iter().map(|slot| &self.seats[slot]) {
                if last != Some(here) {
                    let position = here.iter().position(|j| *j == job).expect("it is on its GPUs");
                    least = least.min(rates(here)[position]);
                    last = Some(here);
                }
            }
            (job, least)
        };
        jobs.into_iter().map(slowest).collect()
    }
}

/// Where an allocation sits.
pub(crate) fn seat(allocation: &Allocation) -> Seat {
    let first = &allocation.shares[0];
    (first.node, first.gpus.iter().next().unwrap_or(0))
}

/// What decides how fast a job is in company.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    pub(crate) member: Member,
    /// Whether it keeps its full speed where the terms guarantee that to some.
    pub(crate) guaranteed: bool,
}

/// How fast jobs go that are on one GPU.
#[derive(Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) speeds: Speeds,
    pub(crate) slowdowns: &'a Slowdowns,
    pub(crate) contention: &'a Contention,
    pub(crate) ordering: Ordering,
}

impl Rule<'_> {
    /// The share of its own speed that each keeps.
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
        let share = self.slowdowns.left_beside(&guaranteed.member, &other.member, mps);
        Rate::from_factor(share)
    }
}

/// The share of its own speed that each member keeps. Without measured stages, or with more members than resources,
/// members take turns.
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

    fn plain(_: JobId) -> Guest {
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
    fn a_group_knows_who_comes_and_goes() {
        let (table, mut sharing) = (Slowdowns::default(), Sharing::new(Terms::GROUPS));
        let rule = rule(&table, Speeds::Interleaved);
        let place = on(&[2, 3]);
        let ((seat, first), (_, second)) = (sharing.join(JobId(1), &place), sharing.join(JobId(2), &place));
        assert_eq!((seat, first, second), ((NodeId(0), 2), 2, 0));
        let half = Rate(500_000);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobId(1), half), (JobId(2), half)]
        );
        assert_eq!(sharing.leave(JobId(1), seat, 2), 0);
        assert_eq!(sharing.leave(JobId(2), seat, 2), 2);
        assert!(sharing.take_touched(&rule, plain).is_empty());
    }

    #[test]
    fn a_gang_waits_for_its_slowest_gpu_and_every_gpu_counts_once() {
        let terms = Terms {
            most: 2,
            overlap: true,
            speeds: Speeds::Paired { mps: false },
        };
        let (table, mut sharing) = (Slowdowns::default(), Sharing::new(terms));
        let rule = rule(&table, terms.speeds);
        assert_eq!(sharing.join(JobId(1), &on(&[0, 1, 2, 3])).1, 4);
        assert_eq!(sharing.join(JobId(2), &on(&[3, 4])).1, 1);
        let half = Rate(500_000);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobId(1), half), (JobId(2), half)]
        );
        assert_eq!(sharing.join(JobId(3), &on(&[4])).1, 0);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobId(2), half), (JobId(3), half)]
        );
        assert_eq!(sharing.leave(JobId(2), (NodeId(0), 3), 2), 0);
        assert_eq!(
            sharing.take_touched(&rule, plain),
            [(JobId(1), Rate::FULL), (JobId(3), Rate::FULL)]
        );
        assert_eq!(sharing.leave(JobId(3), (NodeId(0), 4), 1), 1);
        assert_eq!(sharing.leave(JobId(1), (NodeId(0), 0), 4), 4);
    }

    #[test]
    fn who_has_a_guarantee_is_not_slowed_down() {
        let speeds = Speeds::Guaranteed { mps: false };
        let table = Slowdowns::default();
        let guest = |guaranteed| Guest {
            guaranteed,
            ..plain(JobId(0))
        };
        let kept = |a, b| rule(&table, speeds).kept(&[guest(a), guest(b)]);
        assert_eq!(kept(true, false), [Rate::FULL, Rate(500_000)]);
        assert_eq!(kept(false, true), [Rate(500_000), Rate::FULL]);
        assert_eq!(kept(false, false), [Rate(500_000); 2]);
    }
}
