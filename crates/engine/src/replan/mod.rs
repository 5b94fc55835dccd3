//! Planning all jobs at once: widths and groups for the whole queue; a job stays in place if nothing changes for it.

mod accounts;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{Allocation, GpuSet, JobKey, NodeId, Time};

use crate::job::Job;
use crate::occupancy::Occupancy;
use crate::parts::{Claim, Widths};
use crate::planner::{Planner, same_gpus, with_share_of};
use crate::queue_key::Rank;

/// Plans all jobs at once.
#[derive(Debug)]
pub(crate) struct Replan<'p, 'a> {
    planner: &'p mut Planner<'a>,
    /// What jobs held whose GPUs were taken away in this plan.
    before: BTreeMap<JobKey, Allocation>,
    /// When widths may change although nothing happens until then.
    wake: Option<Time>,
}

/// Jobs sized and grouped together.
#[derive(Debug, Default)]
struct Selection {
    /// The claims that should run, in the order in which they are served.
    chosen: Vec<Claim>,
    /// Whether every job keeps its own width.
    rigid: bool,
}

impl<'p, 'a> Replan<'p, 'a> {
    pub(crate) fn new(planner: &'p mut Planner<'a>) -> Self {
        Self {
            planner,
            before: BTreeMap::new(),
            wake: None,
        }
    }

    /// Plans all jobs. Returns when the plan may change although nothing happens until then.
    pub(crate) fn run(mut self) -> Option<Time> {
        let queue = self.planner.all_jobs();
        if self.planner.steps.limit.has_limits() {
            self.run_by_account(&queue);
        } else {
            let gpus = self.planner.state.cluster.total_gpus(None) + self.held_on_closed_nodes(&queue);
            let selection = self.select(&queue, gpus);
            self.release_all_but(&selection.chosen, &queue);
            self.start_claims(&selection.chosen);
            if selection.rigid && self.planner.steps.group.terms().overlap {
                self.start_beside_others(&queue);
            }
        }
        self.wake
    }

    /// Sizes and groups these jobs, and selects the claims that run on `gpus` GPUs, passing over those that do not fit.
    fn select(&mut self, queue: &[Rank], gpus: u32) -> Selection {
        let planner = &mut *self.planner;
        let (state, now) = (&*planner.state, planner.state.now);
        let jobs: Vec<&Job> = queue.iter().map(|r| state.job(r.job)).collect();
        let (sized, rigid): (Vec<(&Job, u32)>, bool) = match planner.steps.size.widths(&jobs, gpus, now) {
            None => {
                let ask = |job: &Job| planner.steps.size.ask(job, &state.cluster).gpus;
                (jobs.iter().map(|job| (*job, ask(job))).collect(), true)
            }
            Some(Widths { gpus, valid_until }) => {
                self.wake = self.wake.into_iter().chain(valid_until).min();
                let sized = jobs.into_iter().zip(gpus);
                (sized.filter(|(_, width)| *width > 0).collect(), false)
            }
        };
        let factors = state.group_factors.as_ref();
        planner.steps.group.observe(&state.cluster, factors);
        let mut left = gpus;
        let mut fits = |claim: &Claim| {
            let fits = claim.gpus <= left;
            left -= if fits { claim.gpus } else { 0 };
            fits
        };
        let claims = planner.steps.group.group(&sized, gpus, now);
        Selection {
            chosen: claims.into_iter().filter(|claim| fits(claim)).collect(),
            rigid,
        }
    }

    /// Counts the GPUs that jobs hold on nodes that accept no new ones: the jobs may keep them, although they are not in
    /// the total.
    fn held_on_closed_nodes(&self, queue: &[Rank]) -> u32 {
        let cluster = &self.planner.state.cluster;
        self.held_gpus(queue, |node| !cluster.is_open(node))
    }

    /// Counts the GPUs that jobs hold on the nodes that `counts` accepts. GPUs that several jobs share count once.
    fn held_gpus(&self, queue: &[Rank], counts: impl Fn(NodeId) -> bool) -> u32 {
        let state = &*self.planner.state;
        let mut held: BTreeMap<NodeId, GpuSet> = BTreeMap::new();
        let allocations = queue.iter().filter_map(|r| state.job(r.job).allocation.as_ref());
        for share in allocations.flat_map(|a| &a.shares) {
            if counts(share.node) {
                held.entry(share.node)
                    .and_modify(|set| set.add(&share.gpus))
                    .or_insert_with(|| share.gpus.clone());
            }
        }
        held.values().map(GpuSet::count).sum()
    }

    /// Takes the GPUs of every holder away for which something changes.
    fn release_all_but(&mut self, chosen: &[Claim], queue: &[Rank]) {
        let stays: BTreeSet<JobKey> = chosen
            .iter()
            .filter(|c| self.is_in_place(c))
            .flat_map(|c| c.members.iter().copied())
            .collect();
        for rank in queue.iter().rev() {
            if self.planner.job(rank.job).allocation.is_some() && !stays.contains(&rank.job) {
                self.before.insert(rank.job, self.planner.unassign(rank.job));
            }
        }
    }

    /// Whether the members of the claim already hold exactly these GPUs together, and no other job as wide holds any of
    /// them.
    fn is_in_place(&self, claim: &Claim) -> bool {
        let state = &*self.planner.state;
        let Some(held) = &state.job(claim.members[0]).allocation else {
            return false;
        };
        let gpus_of = |id: &JobKey| state.job(*id).allocation.as_ref();
        let members = claim.members.len() as u32;
        held.gpus() == claim.gpus
            && claim
                .members
                .iter()
                .all(|m| gpus_of(m).is_some_and(|a| same_gpus(a, held)))
            && match self.planner.steps.group.terms().overlap {
                false => state.cluster.holders_of(held) == (members, members),
                true => self.others_are_narrower(claim, held),
            }
    }

    /// Whether all other jobs on these GPUs are narrower, so that they are moved instead.
    fn others_are_narrower(&self, claim: &Claim, held: &Allocation) -> bool {
        let occupancy = Occupancy::new(self.planner.state);
        let is_member_or_narrower =
            |id: &JobKey| claim.members.contains(id) || self.planner.job(*id).width() < claim.gpus;
        held.shares.iter().all(|share| {
            let mut slots = share.gpus.iter();
            slots.all(|slot| {
                occupancy
                    .jobs_on(share.node, slot)
                    .iter()
                    .all(is_member_or_narrower)
            })
        })
    }

    /// Gives GPUs to all claims that have none yet, as far as there are placements.
    fn start_claims(&mut self, chosen: &[Claim]) {
        for claim in chosen {
            let first = self.planner.job(claim.members[0]);
            if first.allocation.is_some() {
                continue;
            }
            match claim.members.len() {
                1 => {
                    let least = self.planner.steps.size.min_gpus(&first.spec).min(claim.gpus);
                    self.start_single(claim, least);
                }
                _ => self.start_group(claim),
            }
        }
    }

    /// Gives the only job of a claim its GPUs, or as many as have a placement, down to `least`. It stays where it was if
    /// that is what it held before.
    fn start_single(&mut self, claim: &Claim, least: u32) {
        let id = claim.members[0];
        let mut ask = self.planner.ask(id);
        let most = claim.gpus.min(self.planner.state.cluster.free_gpus(ask.gpu_type));
        let has_limits = self.planner.steps.limit.has_limits();
        let before = self.before.get(&id);
        let found = (least..=most).rev().find_map(|gpus| {
            ask.gpus = gpus;
            // Without limits, a job that keeps its full width was never moved.
            let may_stay = gpus < claim.gpus || has_limits;
            match before
                .filter(|held| may_stay && held.gpus() == gpus)
                .filter(|held| self.planner.may_return_to(id, held))
            {
                Some(held) => Some(held.clone()),
                None => self.planner.place(id, &ask).ok(),
            }
        });
        if let Some(allocation) = found {
            self.planner.assign(id, allocation, false);
        }
    }

    /// Places a group on one set of GPUs: those of a member that held as many, or any others. A member for which CPU or
    /// memory is missing beside the others stays queued.
    fn start_group(&mut self, claim: &Claim) {
        let Some(place) = self.place_group(claim) else {
            return self.return_members(claim);
        };
        for (i, member) in claim.members.iter().enumerate() {
            let share = with_share_of(&place, &self.planner.ask(*member));
            let spec = &self.planner.job(*member).spec;
            let cluster = &self.planner.state.cluster;
            let fits = cluster.has_room_beside(&share, spec.gpu_memory_mib)
                && cluster.admits(&share, spec.constraint);
            if i == 0 || fits {
                self.planner.assign(*member, share, i > 0);
            }
        }
    }

    fn place_group(&mut self, claim: &Claim) -> Option<Allocation> {
        let ask = self.planner.ask_for_claim(claim);
        let cluster = &self.planner.state.cluster;
        let fits = |a: &&Allocation| {
            a.gpus() == claim.gpus
                && a.is_in_bundles_of(ask.gpus_per_task)
                && cluster.is_free(&with_share_of(a, &ask))
                && cluster.has_room_beside(a, ask.gpu_memory_mib)
                && cluster.admits(a, ask.constraint)
                && self.may_hold(claim, a)
        };
        let held = claim.members.iter().filter_map(|m| self.before.get(m));
        let held: Vec<&Allocation> = held.filter(fits).collect();
        let first = self.planner.state.job(claim.members[0]);
        let limit = &mut *self.planner.steps.limit;
        if let Some(own) = held.into_iter().find(|a| limit.may_use(first, a)) {
            return Some(with_share_of(own, &ask));
        }
        if cluster.free_gpus(ask.gpu_type) < ask.gpus {
            return None;
        }
        self.planner.place(claim.members[0], &ask).ok()
    }

    /// Whether no member of the group would be new on a node that accepts no new jobs.
    fn may_hold(&self, claim: &Claim, place: &Allocation) -> bool {
        let was_here = |m: &JobKey| self.before.get(m).is_some_and(|a| same_gpus(a, place));
        let cluster = &self.planner.state.cluster;
        place.shares.iter().all(|s| cluster.is_open(s.node)) || claim.members.iter().all(was_here)
    }

    /// Returns the members of a group without a placement to the GPUs they held, where these are still free.
    fn return_members(&mut self, claim: &Claim) {
        for member in &claim.members {
            if let Some(held) = self.before.get(member)
                && self.planner.may_return_to(*member, held)
            {
                self.planner.assign(*member, held.clone(), false);
            }
        }
    }

    /// Places jobs without free GPUs beside others: where they were if they can stay there, or as the grouping chooses.
    fn start_beside_others(&mut self, queue: &[Rank]) {
        for rank in queue {
            let job = self.planner.job(rank.job);
            if job.allocation.is_some() {
                continue;
            }
            let (gpus, gpu_memory_mib) = (self.planner.ask(rank.job).gpus, job.spec.gpu_memory_mib);
            let own = self.before.get(&rank.job).filter(|held| {
                held.gpus() == gpus
                    && !self.planner.state.cluster.is_free(held)
                    && self.planner.has_room_as_before(held, gpu_memory_mib)
            });
            let place = match own {
                Some(own) => Some(own.clone()),
                None => self.planner.place_beside(rank.job),
            };
            if let Some(place) = place {
                self.planner.assign(rank.job, place, true);
            }
        }
    }
}
