//! Places opportunistic groups on idle leaves of any virtual cluster; they never preempt another group.

use smallvec::SmallVec;

use super::pack::pack;
use super::pick_leaves::pick_leaves;
use super::{PlacedPod, Placer, SizedPod, ascending};
use crate::layout::ChainId;
use crate::request::{PlacementOptions, PodSet, WaitReason};
use crate::state::Cells;

/// A node with the pods assigned to it.
type NodeLoad = (u32, SmallVec<[u32; 8]>);

impl Placer<'_> {
    pub(super) fn place_opportunistic(&self, set: &PodSet) -> Result<Vec<PlacedPod>, WaitReason> {
        let pods = ascending(&set.pods);
        let chains = self.cells.layout.chains_for(set.target);
        let finder = |chain: ChainId| NodeFinder {
            cells: self.cells,
            chain,
            options: self.options,
        };
        for &chain in &chains {
            if let Some(loads) = finder(chain).fit(&pods) {
                return Ok(finder(chain).pick(loads, &set.pods));
            }
        }
        if self.request.may_span_chains && chains.len() > 1 {
            let mut left = pods;
            let mut all = Vec::new();
            for &chain in &chains {
                if left.is_empty() {
                    break;
                }
                let loads = finder(chain).sweep(&left);
                left.retain(|(_, pod)| !loads.iter().any(|(_, taken)| taken.contains(pod)));
                all.extend(finder(chain).pick(loads, &set.pods));
            }
            if left.is_empty() {
                return Ok(all);
            }
        }
        Err(self.no_borrowable_room(&chains, set))
    }

    fn no_borrowable_room(&self, chains: &[ChainId], set: &PodSet) -> WaitReason {
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
            asked: set.pods.iter().sum(),
            available,
            unusable,
        }
    }
}

/// Searches the nodes of one chain for free leaves.
struct NodeFinder<'a> {
    cells: &'a Cells,
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
        let node_level = self.cells.layout.chain(self.chain).node_level;
        let mut placed = Vec::with_capacity(sizes.len());
        for (node, pods) in loads {
            let mut taken: SmallVec<[u32; 16]> = SmallVec::new();
            for index in pods {
                let is_free = |leaf: u32| {
                    (self.cells.owner(self.chain, leaf).is_none() && !taken.contains(&leaf)).then_some(0)
                };
                let size = sizes[index as usize];
                let leaves = pick_leaves(self.cells, self.chain, (node_level, node), size, is_free)
                    .expect("the node has room");
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
