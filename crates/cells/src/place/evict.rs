//! Room in a virtual cluster if lower priorities gave way: whom to stop so that little is lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use smallvec::SmallVec;

use super::fit::Sized;
use super::pack::pack;
use super::{Bin, Use};
use crate::group::{GroupId, GroupState};
use crate::layout::{ChainId, SlotId, ViewId};
use crate::request::Terms;
use crate::state::{Cells, NONE};

/// What stopping a group costs: work that is lost, then leaves that stop.
type Cost = (u64, u64);

/// A machine or smaller cell, with those who could be thrown out of it.
struct Candidate {
    bin: Bin,
    free: u32,
    /// (cost, group, leaves here), cheapest first.
    tenants: SmallVec<[(Cost, u32, u32); 4]>,
    taken: u32,
    pods: SmallVec<[u32; 8]>,
}

struct Plan {
    bins: Vec<Candidate>,
    victims: BTreeSet<u32>,
    /// Which bins a group is in: (group, bin), sorted.
    places: Vec<(u32, usize)>,
}

impl Cells {
    /// Bins for all pods and the groups that have to give way, or nothing.
    pub(crate) fn evict(
        &self,
        id: GroupId,
        view: ViewId,
        pods: &[Sized],
        priority: i16,
        terms: &Terms<'_>,
    ) -> Option<(Vec<Use>, Vec<u32>)> {
        let lower: u32 = self.views[view.index()]
            .used_at
            .range(..priority)
            .map(|(_, n)| *n)
            .sum();
        if lower == 0 {
            return None;
        }
        let mut plan = self.candidates(id, view, priority, terms);
        let descending: Vec<Sized> = pods.iter().rev().copied().collect();
        if !plan.choose(&descending) {
            plan.pack_all(&descending)?;
        }
        plan.spare_the_superfluous();
        let chain = self.layout.views[view.index()].chain;
        let used = plan.bins.iter().filter(|b| !b.pods.is_empty());
        let uses = used.map(|b| Use {
            view: Some(view),
            chain,
            bin: b.bin,
            pods: b.pods.clone(),
        });
        Some((uses.collect(), plan.victims.into_iter().collect()))
    }

    fn candidates(&self, id: GroupId, view: ViewId, priority: i16, terms: &Terms<'_>) -> Plan {
        let spec = &self.layout.views[view.index()];
        let (chain, layout) = (spec.chain, self.layout.chain(spec.chain));
        let mut costs: BTreeMap<u32, Cost> = BTreeMap::new();
        let mut bins = Vec::new();
        for &slot in &spec.slots {
            let level = self.layout.slots[slot.index()].level;
            let cell = self.slots[slot.index()].cell;
            let small = level < layout.node_level;
            if cell == NONE {
                let number = if small {
                    1
                } else {
                    layout.cells_in(level, layout.node_level)
                };
                for _ in 0..number {
                    bins.push(Candidate::empty(
                        Bin::Fresh(slot),
                        layout.leaves[level.min(layout.node_level)],
                    ));
                }
            } else if small {
                let node = layout.ancestor(cell, level, layout.node_level);
                if self.allowed(chain, node, terms) {
                    let bin = (level, cell);
                    bins.push(self.candidate(id, chain, slot, bin, priority, &mut costs, terms));
                }
            } else {
                for node in layout.inside(cell, level, layout.node_level) {
                    if self.allowed(chain, node, terms) {
                        let bin = (layout.node_level, node);
                        bins.push(self.candidate(id, chain, slot, bin, priority, &mut costs, terms));
                    }
                }
            }
        }
        let mut places: Vec<(u32, usize)> = Vec::new();
        for (at, bin) in bins.iter().enumerate() {
            places.extend(bin.tenants.iter().map(|(_, group, _)| (*group, at)));
        }
        places.sort_unstable();
        Plan {
            bins,
            victims: BTreeSet::new(),
            places,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one bin")]
    fn candidate(
        &self,
        id: GroupId,
        chain: ChainId,
        slot: SlotId,
        (level, index): (usize, u32),
        priority: i16,
        costs: &mut BTreeMap<u32, Cost>,
        terms: &Terms<'_>,
    ) -> Candidate {
        let layout = self.layout.chain(chain);
        let idle =
            level == layout.node_level && self.chains[chain.index()].nodes[index as usize].guaranteed == 0;
        let bin = if idle {
            Bin::Idle(slot)
        } else {
            Bin::Cell(level, index)
        };
        let mut candidate = Candidate::empty(bin, 0);
        let c = &self.chains[chain.index()];
        // Leaves beside each other mostly have the same owner.
        let mut last = (NONE, false);
        for leaf in layout.inside(index, level, 0) {
            let owner = match c.holding[leaf as usize] {
                NONE => c.using[leaf as usize],
                holder => holder,
            };
            if owner == NONE {
                candidate.free += 1;
                continue;
            }
            if owner == last.0 {
                match candidate.tenants.iter_mut().find(|t| t.1 == owner) {
                    Some(tenant) => tenant.2 += 1,
                    None => candidate.free += u32::from(last.1),
                }
                continue;
            }
            let group = self.group_at(owner);
            let held_at = group.effective();
            last = (owner, held_at < 0);
            if held_at < 0 {
                candidate.free += 1;
            } else if held_at < priority && owner != id.0 {
                match candidate.tenants.iter_mut().find(|t| t.1 == owner) {
                    Some(tenant) => tenant.2 += 1,
                    None => {
                        let cost = if group.pods.len() == 1 {
                            self.cost(owner, terms)
                        } else {
                            *costs.entry(owner).or_insert_with(|| self.cost(owner, terms))
                        };
                        candidate.tenants.push((cost, owner, 1));
                    }
                }
            }
        }
        candidate.tenants.sort_unstable();
        candidate
    }

    /// What it costs to make a group give way: nothing is lost by a claim, nor by a downgrade.
    fn cost(&self, group: u32, terms: &Terms<'_>) -> Cost {
        let g = self.group_at(group);
        let gentle = g.state == GroupState::Preempting || g.lazy && g.state == GroupState::Allocated;
        let lost = if gentle { 0 } else { self.lost(group, terms) };
        (lost, u64::from(g.leaves()))
    }
}

impl Candidate {
    fn empty(bin: Bin, free: u32) -> Self {
        Self {
            bin,
            free,
            tenants: SmallVec::new(),
            taken: 0,
            pods: SmallVec::new(),
        }
    }

    /// Leaves that can be had if all these groups go.
    fn room(&self, victims: &BTreeSet<u32>) -> u32 {
        let freed = self
            .tenants
            .iter()
            .filter(|t| victims.contains(&t.1))
            .map(|t| t.2);
        (self.free + freed.sum::<u32>()).saturating_sub(self.taken)
    }

    /// Whom to throw out besides for `size` leaves, and what that costs; nothing if it cannot be had.
    fn quote(&self, size: u32, victims: &BTreeSet<u32>) -> Option<(Cost, SmallVec<[u32; 4]>)> {
        let mut room = self.room(victims);
        let mut chosen: SmallVec<[(Cost, u32, u32); 4]> = SmallVec::new();
        for tenant in self.tenants.iter().filter(|t| !victims.contains(&t.1)) {
            if room >= size {
                break;
            }
            room += tenant.2;
            chosen.push(*tenant);
        }
        if room < size {
            return None;
        }
        // A cheap one may have become superfluous when a larger one was added.
        for at in (0..chosen.len()).rev() {
            if room - chosen[at].2 >= size {
                room -= chosen[at].2;
                chosen.remove(at);
            }
        }
        let cost = chosen
            .iter()
            .fold((0, 0), |sum, t| (sum.0 + t.0.0, sum.1 + t.0.1));
        Some((cost, chosen.iter().map(|t| t.1).collect()))
    }
}

impl Plan {
    /// Puts each pod, largest first, where it costs least.
    fn choose(&mut self, pods: &[Sized]) -> bool {
        let mut heap: BinaryHeap<Reverse<(Cost, u32, usize)>> = BinaryHeap::new();
        let mut size = 0;
        for &(wanted, pod) in pods {
            if wanted != size {
                size = wanted;
                heap = (0..self.bins.len())
                    .filter_map(|at| self.entry(at, size))
                    .collect();
            }
            let (at, chosen) = loop {
                let Some(Reverse((cost, room, at))) = heap.pop() else {
                    return false;
                };
                // What was written down may be out of date.
                let Some((now, chosen)) = self.bins[at].quote(size, &self.victims) else {
                    continue;
                };
                if (now, self.bins[at].room(&self.victims)) == (cost, room) {
                    break (at, chosen);
                }
                heap.push(Reverse((now, self.bins[at].room(&self.victims), at)));
            };
            self.bins[at].taken += size;
            self.bins[at].pods.push(pod);
            heap.extend(self.entry(at, size));
            for victim in chosen {
                self.victims.insert(victim);
                heap.extend(
                    self.places_of(victim)
                        .iter()
                        .filter_map(|(_, place)| self.entry(*place, size)),
                );
            }
        }
        true
    }

    /// The bins a group is in.
    fn places_of(&self, group: u32) -> &[(u32, usize)] {
        let from = self.places.partition_point(|(g, _)| *g < group);
        let to = self.places.partition_point(|(g, _)| *g <= group);
        &self.places[from..to]
    }

    /// Cost first, then the fullest bin.
    fn entry(&self, at: usize, size: u32) -> Option<Reverse<(Cost, u32, usize)>> {
        let (cost, _) = self.bins[at].quote(size, &self.victims)?;
        Some(Reverse((cost, self.bins[at].room(&self.victims), at)))
    }

    /// Packs as if everybody who may be thrown out were: for groups of several sizes that just fit.
    fn pack_all(&mut self, pods: &[Sized]) -> Option<()> {
        self.victims = self.places.iter().map(|(group, _)| *group).collect();
        for bin in &mut self.bins {
            bin.taken = 0;
            bin.pods.clear();
        }
        let rooms: Vec<u32> = self.bins.iter().map(|b| b.room(&self.victims)).collect();
        let sizes: Vec<u32> = pods.iter().map(|p| p.0).collect();
        for (bin, (size, pod)) in pack(&rooms, &sizes)?.into_iter().zip(pods) {
            self.bins[bin].taken += size;
            self.bins[bin].pods.push(*pod);
        }
        Some(())
    }

    /// Lets everybody stay who need not go, the dearest first.
    fn spare_the_superfluous(&mut self) {
        let mut order: Vec<(Cost, u32)> = Vec::new();
        for bin in &self.bins {
            order.extend(
                bin.tenants
                    .iter()
                    .filter(|t| self.victims.contains(&t.1))
                    .map(|t| (t.0, t.1)),
            );
        }
        order.sort_unstable();
        order.dedup();
        for (_, victim) in order.into_iter().rev() {
            self.victims.remove(&victim);
            let fits = |at: &usize| {
                let bin = &self.bins[*at];
                let freed = bin
                    .tenants
                    .iter()
                    .filter(|t| self.victims.contains(&t.1))
                    .map(|t| t.2);
                bin.free + freed.sum::<u32>() >= bin.taken
            };
            if !self.places_of(victim).iter().map(|(_, at)| at).all(fits) {
                self.victims.insert(victim);
            }
        }
    }
}
