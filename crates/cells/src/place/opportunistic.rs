//! Places opportunistic groups on idle leaves of any virtual cluster; they never preempt another group.

use smallvec::SmallVec;

use super::pack::pack;
use super::pick_leaves::pick_leaves;
use super::{PlacedPod, SizedPod, ascending};
use crate::NONE;
use crate::layout::ChainId;
use crate::occupancy::Occupancy;
use crate::request::{PlacementOptions, PodSet, WaitReason};

/// A node with the pods assigned to it.
type NodeLoad = (u32, SmallVec<[u32; 8]>);

/// Places the pods of one set of an opportunistic group.
pub(super) struct OpportunisticPlacer<'a> {
    pub(super) cells: &'a Occupancy,
    pub(super) set: &'a PodSet,
    pub(super) may_span_chains: bool,
    pub(super) options: &'a PlacementOptions<'a>,
}

impl OpportunisticPlacer<'_> {
    /// Finds leaves for all pods in the first chain that has enough, or spreads them over several chains.
    pub(super) fn place(&self) -> Result<Vec<PlacedPod>, WaitReason> {
        let sizes = &self.set.pods;
        let pods = ascending(sizes);
        let chains = self.cells.layout.chains_for(self.set.target);
        for &chain in &chains {
            let finder = self.finder(chain);
            if let Some(loads) = finder.fit(&pods) {
                return Ok(finder.pick(loads, sizes));
            }
        }
        if self.may_span_chains && chains.len() > 1 {
            let mut left = pods;
            let mut all = Vec::new();
            for &chain in &chains {
                if left.is_empty() {
                    break;
                }
                let finder = self.finder(chain);
                let loads = finder.sweep(&left);
                left.retain(|(_, pod)| !loads.iter().any(|(_, taken)| taken.contains(pod)));
                all.extend(finder.pick(loads, sizes));
            }
            if left.is_empty() {
                return Ok(all);
            }
        }
        Err(self.no_room(&chains))
    }

    fn finder(&self, chain: ChainId) -> NodeFinder<'_> {
        NodeFinder {
            cells: self.cells,
            chain,
            options: self.options,
        }
    }

    fn no_room(&self, chains: &[ChainId]) -> WaitReason {
        let (mut available, mut unusable) = (0, 0);
        for &chain in chains {
            let size = self.cells.layout.chain(chain).node_leaves();
            for (at, node) in self.cells.chains[chain.index()].nodes.iter().enumerate() {
                let free = size - node.guaranteed - node.borrowed;
                available += free;
                if !self.cells.is_node_allowed(chain, at as u32, self.options) {
                    unusable += free;
                }
            }
        }
        WaitReason::NoRoom {
            borrower: true,
            asked: self.set.pods.iter().sum(),
            available,
            unusable,
        }
    }
}

/// Searches the nodes of one chain for free leaves.
struct NodeFinder<'a> {
    cells: &'a Occupancy,
    chain: ChainId,
    options: &'a PlacementOptions<'a>,
}

impl NodeFinder<'_> {
    /// Assigns all pods, given smallest first, to nodes. Returns `None` if not all pods fit.
    fn fit(&self, pods: &[SizedPod]) -> Option<Vec<NodeLoad>> {
        let loads = self.sweep(pods);
        let placed: usize = loads.iter().map(|(_, taken)| taken.len()).sum();
        if placed == pods.len() {
            return Some(loads);
        }
        let has_many_sizes = pods.first().map(|p| p.0) != pods.last().map(|p| p.0);
        if has_many_sizes {
            self.fit_exactly(pods)
        } else {
            None
        }
    }

    /// Assigns pods of several sizes by search.
    fn fit_exactly(&self, pods: &[SizedPod]) -> Option<Vec<NodeLoad>> {
        let mut nodes: Vec<(u32, u32)> = Vec::new();
        let mut seen: Vec<usize> = Vec::new();
        self.visit_nodes(pods[0].0, &mut |node, room| {
            // More nodes of equal room than there are pods do not help.
            if seen.len() <= room as usize {
                seen.resize(room as usize + 1, 0);
            }
            if seen[room as usize] < pods.len() {
                seen[room as usize] += 1;
                nodes.push((node, room));
            }
            Some(pods[0].0)
        });
        let rooms: Vec<u32> = nodes.iter().map(|n| n.1).collect();
        let descending: Vec<SizedPod> = pods.iter().rev().copied().collect();
        let sizes: Vec<u32> = descending.iter().map(|p| p.0).collect();
        let chosen = pack(&rooms, &sizes)?;
        let mut loads: Vec<NodeLoad> = nodes.iter().map(|n| (n.0, SmallVec::new())).collect();
        for (at, pod) in chosen.into_iter().zip(descending) {
            loads[at].1.push(pod.1);
        }
        loads.retain(|(_, taken)| !taken.is_empty());
        Some(loads)
    }

    /// Assigns as many pods as fit, in order, in one pass over all nodes.
    fn sweep(&self, pods: &[SizedPod]) -> Vec<NodeLoad> {
        let mut loads = Vec::new();
        let mut next = 0;
        self.visit_nodes(pods[0].0, &mut |node, room| {
            let mut room = room;
            let mut taken = SmallVec::new();
            while next < pods.len() && pods[next].0 <= room {
                room -= pods[next].0;
                taken.push(pods[next].1);
                next += 1;
            }
            if !taken.is_empty() {
                loads.push((node, taken));
            }
            (next < pods.len()).then(|| pods[next].0)
        });
        loads
    }

    /// Visits nodes with room for `least` leaves: most borrowed leaves first, then fewest guaranteed leaves. This keeps
    /// borrowers together, and away from groups that may preempt them. The visitor returns the leaves that a later node
    /// must have, or `None` to stop.
    fn visit_nodes(&self, mut least: u32, visit: &mut dyn FnMut(u32, u32) -> Option<u32>) {
        let borrowable = &self.cells.chains[self.chain.index()].borrowable;
        let mut from = (0, 0, 0);
        'skip: loop {
            for &(not_borrowed, guaranteed, node) in borrowable.range(from..) {
                if not_borrowed - guaranteed < least {
                    // The following nodes with as many borrowed leaves have even more guaranteed ones.
                    from = (not_borrowed + 1, 0, 0);
                    continue 'skip;
                }
                if !self.cells.is_node_allowed(self.chain, node, self.options) {
                    continue;
                }
                match visit(node, not_borrowed - guaranteed) {
                    Some(next_least) => least = next_least,
                    None => return,
                }
            }
            return;
        }
    }

    /// Picks the leaves of all pods.
    fn pick(&self, loads: Vec<NodeLoad>, sizes: &[u32]) -> Vec<PlacedPod> {
        let layout = self.cells.layout.chain(self.chain);
        let state = &self.cells.chains[self.chain.index()];
        let mut placed = Vec::with_capacity(sizes.len());
        for (node, pods) in loads {
            let mut taken: SmallVec<[u32; 16]> = SmallVec::new();
            for index in pods {
                let is_free = |leaf: u32| (state.owner(leaf) == NONE && !taken.contains(&leaf)).then_some(0);
                let size = sizes[index as usize];
                let leaves =
                    pick_leaves(layout, (layout.node_level, node), size, is_free).expect("the node has room");
                taken.extend_from_slice(&leaves);
                placed.push(PlacedPod {
                    index,
                    chain: self.chain,
                    home: None,
                    leaves,
                });
            }
        }
        placed
    }
}
