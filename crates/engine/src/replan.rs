//! Planning everything anew: sizes and groups for all jobs in line at once, kept in place where nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::{Allocation, GpuSet, JobId, NodeId};

use crate::job::Job;
use crate::line::Rank;
use crate::parts::{Ask, Claim};
use crate::round::Round;
use crate::sharers::Sharers;

impl Round<'_> {
    /// Plans everything anew: sizes and groups for all jobs in line, kept in place where nothing changes for them. Where
    /// tenants have limits, account by account.
    pub fn replan(&mut self) {
        let line = self.everyone();
        if self.tenancy.limits() {
            return self.replan_accounts(&line);
        }
        let gpus = self.state.cluster.total_gpus(None) + self.held_on_closed_nodes(&line);
        let (claims, rigid) = self.size_and_group(&line, gpus);
        let chosen = select(claims, gpus);
        let before = self.clear_all_but(&chosen, &line);
        self.start_claims(&chosen, &before);
        if rigid && self.grouping.terms().overlap {
            self.seat_guests(&line, &before);
        }
    }

    /// Sizes and groups for these jobs on so many GPUs, best first, and whether every job keeps its own size.
    pub(crate) fn size_and_group(&mut self, line: &[Rank], gpus: u32) -> (Vec<Claim>, bool) {
        let now = self.state.now;
        let jobs: Vec<&Job> = line.iter().map(|r| self.state.known(r.job)).collect();
        let widths = self.sizing.widths(&jobs, gpus, now);
        let rigid = widths.is_none();
        let again = self.sizing.changes_at(&jobs, now);
        let sized: Vec<(&Job, u32)> = match widths {
            None => jobs
                .iter()
                .map(|j| (*j, self.sizing.ask(j, &self.state.cluster).gpus))
                .collect(),
            Some(widths) => jobs.iter().copied().zip(widths).filter(|(_, w)| *w > 0).collect(),
        };
        self.grouping.see(&self.state.cluster);
        let claims = self.grouping.group(&sized, gpus, now);
        if let Some(at) = again {
            self.wake_at(at);
        }
        (claims, rigid)
    }

    /// Gives all claims GPUs that do not have theirs yet, as far as there is a place.
    pub(crate) fn start_claims(&mut self, chosen: &[Claim], before: &BTreeMap<JobId, Allocation>) {
        for claim in chosen {
            let first = self.state.known(claim.members[0]);
            if first.allocation.is_some() {
                continue;
            }
            match claim.members.len() {
                1 => {
                    let least = self.sizing.least(&first.spec).min(claim.gpus);
                    self.start_claim(claim, least, before.get(&claim.members[0]));
                }
                _ => self.start_group(claim, before),
            }
        }
    }

    /// Puts jobs for which there was no place beside others, as the grouping chooses: where they were, if they can.
    fn seat_guests(&mut self, line: &[Rank], before: &BTreeMap<JobId, Allocation>) {
        for rank in line {
            let job = self.state.known(rank.job);
            if job.allocation.is_some() {
                continue;
            }
            let gpus = self.sizing.ask(job, &self.state.cluster).gpus;
            let own = before.get(&rank.job).filter(|a| {
                let fits = a.gpus() == gpus && !self.state.cluster.is_free(a);
                fits && self.is_as_left(a, job.spec.gpu_memory_mib)
            });
            let place = match own {
                Some(own) => Some(own.clone()),
                None => self.find_beside(rank.job),
            };
            if let Some(place) = place {
                self.draft.assign(self.state, self.tenancy, rank.job, place, true);
            }
        }
    }

    /// GPUs that jobs hold on nodes that take no new ones: theirs to keep, though they are not in the total. GPUs that
    /// several jobs share count once.
    pub(crate) fn held_on_closed_nodes(&self, line: &[Rank]) -> u32 {
        let mut held: BTreeMap<NodeId, GpuSet> = BTreeMap::new();
        let allocations = line
            .iter()
            .filter_map(|r| self.state.known(r.job).allocation.as_ref());
        for share in allocations.flat_map(|a| &a.shares) {
            if !self.state.cluster.is_open(share.node) {
                held.entry(share.node)
                    .and_modify(|set| set.add(&share.gpus))
                    .or_insert_with(|| share.gpus.clone());
            }
        }
        held.values().map(GpuSet::count).sum()
    }

    /// Takes the GPUs of every holder that does not go on exactly as it is, and tells what they were.
    pub(crate) fn clear_all_but(&mut self, chosen: &[Claim], line: &[Rank]) -> BTreeMap<JobId, Allocation> {
        let stays: BTreeSet<JobId> = chosen
            .iter()
            .filter(|c| self.stands(c))
            .flat_map(|c| c.members.iter().copied())
            .collect();
        let mut before = BTreeMap::new();
        for rank in line.iter().rev() {
            if self.state.known(rank.job).allocation.is_some() && !stays.contains(&rank.job) {
                before.insert(rank.job, self.draft.unassign(self.state, self.tenancy, rank.job));
            }
        }
        before
    }

    /// Whether the claim's members already hold just these GPUs together, and nobody else as wide holds any of them.
    fn stands(&self, claim: &Claim) -> bool {
        let Some(held) = &self.state.known(claim.members[0]).allocation else {
            return false;
        };
        let gpus_of = |id: &JobId| self.state.known(*id).allocation.as_ref();
        let members = claim.members.len() as u32;
        held.gpus() == claim.gpus
            && claim
                .members
                .iter()
                .all(|m| gpus_of(m).is_some_and(|a| same_gpus(a, held)))
            && match self.grouping.terms().overlap {
                false => self.state.cluster.holders_of(held) == (members, members),
                true => self.others_are_narrower(claim, held),
            }
    }

    /// Whether all others on these GPUs are guests, which give way.
    fn others_are_narrower(&self, claim: &Claim, held: &Allocation) -> bool {
        let view = Sharers::new(self.state);
        let gives_way = |id: &JobId| claim.members.contains(id) || self.state.known(*id).width() < claim.gpus;
        held.shares.iter().all(|share| {
            let mut slots = share.gpus.iter();
            slots.all(|slot| view.on(share.node, slot).iter().all(gives_way))
        })
    }

    /// Puts a group on one set of GPUs: those of a member that had as many, else wherever there is a place. A member
    /// for whom there is no CPU or memory beside the others waits.
    fn start_group(&mut self, claim: &Claim, before: &BTreeMap<JobId, Allocation>) {
        let first = self.state.known(claim.members[0]);
        let fills = |m: &JobId| self.state.known(*m).spec.gpu_memory_mib;
        let ask = Ask {
            gpus: claim.gpus,
            gpus_per_task: self.bundle(claim),
            gpu_memory_mib: claim.members.iter().map(fills).sum(),
            ..self.sizing.ask(first, &self.state.cluster)
        };
        let fits = |a: &&Allocation| {
            a.gpus() == claim.gpus
                && a.is_in_bundles_of(ask.gpus_per_task)
                && self.state.cluster.is_free(&resized(a, &ask))
                && self.state.cluster.has_room_beside(a, ask.gpu_memory_mib)
                && self.state.cluster.admits(a, ask.fence)
                && self.may_use(claim, a, before)
        };
        let had = claim.members.iter().filter_map(|m| before.get(m));
        let had: Vec<&Allocation> = had.filter(fits).collect();
        let own = had.into_iter().find(|a| self.tenancy.may_use(first, a));
        let place = match own {
            Some(own) => Some(resized(own, &ask)),
            None if self.state.cluster.free_gpus(ask.gpu_type) < ask.gpus => None,
            None => {
                let found = self
                    .tenancy
                    .place(first, &ask, &self.state.cluster, self.placement);
                found.ok()
            }
        };
        let Some(place) = place else {
            return self.stay(claim, before);
        };
        for (i, member) in claim.members.iter().enumerate() {
            let share = resized(
                &place,
                &self.sizing.ask(self.state.known(*member), &self.state.cluster),
            );
            let spec = &self.state.known(*member).spec;
            let (fills, fence) = (spec.gpu_memory_mib, spec.fence);
            let cluster = &self.state.cluster;
            if i == 0 || (cluster.has_room_beside(&share, fills) && cluster.admits(&share, fence)) {
                self.draft.assign(self.state, self.tenancy, *member, share, i > 0);
            }
        }
    }

    /// There is no place for the group: whoever had GPUs that are still free goes on there.
    fn stay(&mut self, claim: &Claim, before: &BTreeMap<JobId, Allocation>) {
        for member in &claim.members {
            let (state, tenancy) = (&*self.state, &mut *self.tenancy);
            let mut may_stay =
                |a: &&Allocation| state.cluster.is_free(a) && tenancy.may_use(state.known(*member), a);
            if let Some(own) = before.get(member).filter(|a| may_stay(a)) {
                self.draft
                    .assign(self.state, self.tenancy, *member, own.clone(), false);
            }
        }
    }

    /// Whether nobody of the group would be new on a node that takes no new jobs.
    fn may_use(&self, claim: &Claim, place: &Allocation, before: &BTreeMap<JobId, Allocation>) -> bool {
        let was_here = |m: &JobId| before.get(m).is_some_and(|a| same_gpus(a, place));
        place.shares.iter().all(|s| self.state.cluster.is_open(s.node)) || claim.members.iter().all(was_here)
    }

    /// Gives the claim its GPUs, or as many as there is a place for, down to `least`. Where that is what its job had
    /// before, it stays where it was.
    fn start_claim(&mut self, claim: &Claim, least: u32, before: Option<&Allocation>) {
        let job = self.state.known(claim.members[0]);
        let mut ask = self.sizing.ask(job, &self.state.cluster);
        let most = claim.gpus.min(self.state.cluster.free_gpus(ask.gpu_type));
        let found = (least..=most).rev().find_map(|gpus| {
            ask.gpus = gpus;
            // Without limits whoever goes on at full width was never moved.
            let narrower = gpus < claim.gpus || self.tenancy.limits();
            let is_as_before = |a: &&Allocation| narrower && a.gpus() == gpus;
            match before
                .filter(is_as_before)
                .filter(|a| self.state.cluster.is_free(a) && self.tenancy.may_use(job, a))
            {
                Some(own) => Some(own.clone()),
                None => self
                    .tenancy
                    .place(job, &ask, &self.state.cluster, self.placement)
                    .ok(),
            }
        });
        if let Some(allocation) = found {
            self.draft
                .assign(self.state, self.tenancy, claim.members[0], allocation, false);
        }
    }
}

/// Whether both name the same GPUs, whatever is beside them.
pub(crate) fn same_gpus(a: &Allocation, b: &Allocation) -> bool {
    a.shares.len() == b.shares.len()
        && a.shares
            .iter()
            .zip(&b.shares)
            .all(|(x, y)| x.node == y.node && x.gpus == y.gpus)
}

/// The same GPUs with the CPU and memory that this ask wants beside them.
pub(crate) fn resized(allocation: &Allocation, ask: &Ask) -> Allocation {
    let mut sized = allocation.clone();
    for share in &mut sized.shares {
        let gpus = share.gpus.count();
        share.cpu_milli = ask.cpu_milli_per_gpu * gpus;
        share.memory_mib = ask.memory_mib_per_gpu * u64::from(gpus);
    }
    sized
}

/// The claims that run, best first, passing over those that do not fit.
pub(crate) fn select(claims: Vec<Claim>, gpus: u32) -> Vec<Claim> {
    let mut left = gpus;
    let mut chosen = Vec::new();
    for claim in claims {
        if claim.gpus <= left {
            left -= claim.gpus;
            chosen.push(claim);
        }
    }
    chosen
}
