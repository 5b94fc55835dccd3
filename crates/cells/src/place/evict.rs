//! Finds room in a view by preempting lower priorities, with victims that cost least.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use smallvec::SmallVec;

use super::pack::pack;
use super::{Bin, BinAssignment, SizedPod};
use crate::NONE;
use crate::group::{GroupId, GroupState};
use crate::layout::{Level, SlotId, ViewId};
use crate::ledger::Ledger;
use crate::request::PlacementOptions;

/// Cost of preempting a group: lost work, then leaves.
type Cost = (u64, u64);

/// Plans which groups to preempt in one view.
pub(super) struct Evictor<'a> {
    pub(super) ledger: &'a Ledger,
    /// The group to make room for.
    pub(super) group: GroupId,
    pub(super) view: ViewId,
    pub(super) priority: i16,
    pub(super) options: &'a PlacementOptions<'a>,
}

impl Evictor<'_> {
    /// Returns bins for all pods and the groups to preempt, or `None` if there is not enough room.
    pub(super) fn plan(&self, pods: &[SizedPod]) -> Option<(Vec<BinAssignment>, Vec<u32>)> {
        let used_at = &self.ledger.occupancy.views[self.view.index()].used_at;
        let lower: u32 = used_at.range(..self.priority).map(|(_, n)| *n).sum();
        if lower == 0 {
            return None;
        }
        let mut plan = EvictionPlan::new(self.bins());
        let descending: Vec<SizedPod> = pods.iter().rev().copied().collect();
        if !plan.choose(&descending) {
            plan.pack_all(&descending)?;
        }
        plan.drop_unneeded_victims();
        let chain = self.ledger.layout().views[self.view.index()].chain;
        let used = plan.bins.into_iter().filter(|b| !b.pods.is_empty());
        let assignments = used.map(|b| BinAssignment {
            view: self.view,
            chain,
            bin: b.bin,
            pods: b.pods,
        });
        Some((assignments.collect(), plan.victims.into_iter().collect()))
    }

    /// Returns all bins of the view on machines that may be used.
    fn bins(&self) -> Vec<EvictionBin> {
        let spec = &self.ledger.layout().views[self.view.index()];
        let (chain, layout) = (spec.chain, self.ledger.layout().chain(spec.chain));
        let is_allowed = |node: u32| self.ledger.occupancy.is_node_allowed(chain, node, self.options);
        let mut costs: BTreeMap<u32, Cost> = BTreeMap::new();
        let mut bins = Vec::new();
        for &slot in &spec.slots {
            let level = self.ledger.layout().slots[slot.index()].level;
            let cell = self.ledger.occupancy.slots[slot.index()].cell;
            let is_small = level < layout.node_level;
            if cell == NONE {
                let number = match is_small {
                    true => 1,
                    false => layout.cells_in(level, layout.node_level),
                };
                for _ in 0..number {
                    bins.push(EvictionBin::new(
                        Bin::Fresh(slot),
                        layout.leaves[level.min(layout.node_level)],
                    ));
                }
            } else if is_small {
                let node = layout.ancestor(cell, level, layout.node_level);
                if is_allowed(node) {
                    bins.push(self.bin(slot, (level, cell), &mut costs));
                }
            } else {
                let nodes = layout.inside(cell, level, layout.node_level);
                for node in nodes.filter(|n| is_allowed(*n)) {
                    bins.push(self.bin(slot, (layout.node_level, node), &mut costs));
                }
            }
        }
        bins
    }

    /// Returns a bin in a bound slot with the groups that could be preempted there.
    fn bin(
        &self,
        slot: SlotId,
        (level, index): (Level, u32),
        costs: &mut BTreeMap<u32, Cost>,
    ) -> EvictionBin {
        let chain = self.ledger.layout().slots[slot.index()].chain;
        let layout = self.ledger.layout().chain(chain);
        let c = &self.ledger.occupancy.chains[chain.index()];
        let is_idle = level == layout.node_level && c.nodes[index as usize].guaranteed == 0;
        let mut bin = EvictionBin::new(
            match is_idle {
                true => Bin::Idle(slot),
                false => Bin::Cell(level, index),
            },
            0,
        );
        // Adjacent leaves mostly have the same owner, so the last one is remembered with whether it is a borrower.
        let mut last = (NONE, false);
        for leaf in layout.inside(index, level, 0) {
            let owner = c.owner(leaf);
            if owner == NONE {
                bin.free += 1;
            } else if let Some(holder) = bin.holders.iter_mut().find(|h| h.group == owner) {
                holder.leaves += 1;
            } else if owner == last.0 {
                bin.free += u32::from(last.1);
            } else {
                let group = self.ledger.groups.at(owner);
                let priority = group.effective_priority();
                last = (owner, priority < 0);
                if priority < 0 {
                    bin.free += 1;
                } else if priority < self.priority && owner != self.group.0 {
                    let cost = match group.pods.len() {
                        1 => self.cost(owner),
                        _ => *costs.entry(owner).or_insert_with(|| self.cost(owner)),
                    };
                    bin.holders.push(Holder {
                        cost,
                        group: owner,
                        leaves: 1,
                    });
                }
            }
        }
        bin.holders.sort_unstable();
        bin
    }

    /// Returns the cost of a victim. No work is lost when a claim is cancelled or a group is downgraded.
    fn cost(&self, group: u32) -> Cost {
        let g = self.ledger.groups.at(group);
        let loses_nothing = g.state == GroupState::Preempting || g.lazy && g.state == GroupState::Allocated;
        let lost = match loses_nothing {
            true => 0,
            false => self.ledger.preemption_cost(group, self.options),
        };
        (lost, u64::from(g.leaves()))
    }
}

/// A group in a bin that could be preempted. Ordered by cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    cost: Cost,
    group: u32,
    /// Leaves it holds in this bin.
    leaves: u32,
}

/// A machine or smaller cell, with the groups that could be preempted there.
struct EvictionBin {
    bin: Bin,
    free: u32,
    /// Cheapest first.
    holders: SmallVec<[Holder; 4]>,
    /// Leaves of the pods assigned to it.
    taken: u32,
    pods: SmallVec<[u32; 8]>,
}

impl EvictionBin {
    fn new(bin: Bin, free: u32) -> Self {
        Self {
            bin,
            free,
            holders: SmallVec::new(),
            taken: 0,
            pods: SmallVec::new(),
        }
    }

    /// Returns the leaves that are free after these groups are preempted, including those already taken.
    fn capacity(&self, victims: &BTreeSet<u32>) -> u32 {
        let gone = self.holders.iter().filter(|h| victims.contains(&h.group));
        self.free + gone.map(|h| h.leaves).sum::<u32>()
    }

    /// Returns the leaves that are left for further pods after these groups are preempted.
    fn room(&self, victims: &BTreeSet<u32>) -> u32 {
        self.capacity(victims).saturating_sub(self.taken)
    }

    /// Returns the cheapest further victims for a pod of `size` leaves with their cost, or `None` if it does not fit.
    fn cheapest_victims(&self, size: u32, victims: &BTreeSet<u32>) -> Option<(Cost, SmallVec<[u32; 4]>)> {
        let mut room = self.room(victims);
        let mut chosen: SmallVec<[Holder; 4]> = SmallVec::new();
        for holder in self.holders.iter().filter(|h| !victims.contains(&h.group)) {
            if room >= size {
                break;
            }
            room += holder.leaves;
            chosen.push(*holder);
        }
        if room < size {
            return None;
        }
        // A later, larger victim may make earlier ones unnecessary.
        for at in (0..chosen.len()).rev() {
            if room - chosen[at].leaves >= size {
                room -= chosen[at].leaves;
                chosen.remove(at);
            }
        }
        let cost = chosen
            .iter()
            .fold((0, 0), |sum, h| (sum.0 + h.cost.0, sum.1 + h.cost.1));
        Some((cost, chosen.iter().map(|h| h.group).collect()))
    }
}

/// An assignment of pods to bins, and the groups to preempt for it.
struct EvictionPlan {
    bins: Vec<EvictionBin>,
    victims: BTreeSet<u32>,
    /// Bins of each group as (group, bin), sorted.
    places: Vec<(u32, usize)>,
}

impl EvictionPlan {
    fn new(bins: Vec<EvictionBin>) -> Self {
        let mut places: Vec<(u32, usize)> = Vec::new();
        for (at, bin) in bins.iter().enumerate() {
            places.extend(bin.holders.iter().map(|h| (h.group, at)));
        }
        places.sort_unstable();
        Self {
            bins,
            victims: BTreeSet::new(),
            places,
        }
    }

    /// Assigns each pod, largest first, to the bin where it costs least. Returns false if one does not fit.
    fn choose(&mut self, pods: &[SizedPod]) -> bool {
        let mut heap: BinaryHeap<Reverse<(Cost, u32, usize)>> = BinaryHeap::new();
        let mut size = 0;
        for &(pod_size, pod) in pods {
            if pod_size != size {
                size = pod_size;
                heap = (0..self.bins.len())
                    .filter_map(|at| self.heap_entry(at, size))
                    .collect();
            }
            let (at, chosen) = loop {
                let Some(Reverse((cost, room, at))) = heap.pop() else {
                    return false;
                };
                // The entry may be out of date.
                let Some((cost_now, chosen)) = self.bins[at].cheapest_victims(size, &self.victims) else {
                    continue;
                };
                let room_now = self.bins[at].room(&self.victims);
                if (cost_now, room_now) == (cost, room) {
                    break (at, chosen);
                }
                heap.push(Reverse((cost_now, room_now, at)));
            };
            self.bins[at].taken += size;
            self.bins[at].pods.push(pod);
            heap.extend(self.heap_entry(at, size));
            for victim in chosen {
                self.victims.insert(victim);
                let places = self.places_of(victim).iter();
                heap.extend(places.filter_map(|(_, place)| self.heap_entry(*place, size)));
            }
        }
        true
    }

    /// Returns the bins that a group is in.
    fn places_of(&self, group: u32) -> &[(u32, usize)] {
        let from = self.places.partition_point(|(g, _)| *g < group);
        let to = self.places.partition_point(|(g, _)| *g <= group);
        &self.places[from..to]
    }

    /// Returns the sort key of a bin: lowest cost first, then least room.
    fn heap_entry(&self, at: usize, size: u32) -> Option<Reverse<(Cost, u32, usize)>> {
        let (cost, _) = self.bins[at].cheapest_victims(size, &self.victims)?;
        Some(Reverse((cost, self.bins[at].room(&self.victims), at)))
    }

    /// Packs the pods as if all possible victims were preempted, for groups of several sizes that barely fit.
    fn pack_all(&mut self, pods: &[SizedPod]) -> Option<()> {
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

    /// Removes victims that need not be preempted, the most expensive first.
    fn drop_unneeded_victims(&mut self) {
        let holders = self.bins.iter().flat_map(|bin| &bin.holders);
        let chosen = holders.filter(|h| self.victims.contains(&h.group));
        let mut order: Vec<(Cost, u32)> = chosen.map(|h| (h.cost, h.group)).collect();
        order.sort_unstable();
        order.dedup();
        for (_, victim) in order.into_iter().rev() {
            self.victims.remove(&victim);
            let mut places = self.places_of(victim).iter().map(|(_, at)| &self.bins[*at]);
            if !places.all(|bin| bin.capacity(&self.victims) >= bin.taken) {
                self.victims.insert(victim);
            }
        }
    }
}
