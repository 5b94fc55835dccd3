//! Borrowers: groups that use whatever is idle, in any virtual cluster, and disturb nobody.

use smallvec::SmallVec;

use super::Picked;
use super::fit::Sized;
use super::guaranteed::ascending;
use super::leaves::pick;
use super::pack::pack;
use crate::layout::ChainId;
use crate::request::{Part, Request, Terms, Wait};
use crate::state::Cells;

/// Pods on one machine.
type Load = (u32, SmallVec<[u32; 8]>);

impl Cells {
    pub(crate) fn place_roaming(
        &mut self,
        request: &Request,
        part: &Part,
        terms: &Terms<'_>,
    ) -> Result<Vec<Picked>, Wait> {
        let pods = ascending(&part.pods);
        let chains = self.chains_for(part.target);
        for &chain in &chains {
            if let Some(loads) = self.roam(chain, &pods, terms) {
                return Ok(self.settle_down(chain, loads, &part.pods));
            }
        }
        if request.several_chains {
            let mut left = pods.clone();
            let mut all = Vec::new();
            for &chain in chains.iter().filter(|_| chains.len() > 1) {
                if left.is_empty() {
                    break;
                }
                let loads = self.roam_sweep(chain, &left, terms);
                left.retain(|(_, pod)| !loads.iter().any(|(_, taken)| taken.contains(pod)));
                all.extend(self.settle_down(chain, loads, &part.pods));
            }
            if left.is_empty() {
                return Ok(all);
            }
        }
        let (mut available, mut unusable) = (0, 0);
        for &chain in &chains {
            let c = &self.chains[chain.index()];
            let size = self.layout.chain(chain).node_leaves();
            for (at, node) in c.nodes.iter().enumerate() {
                let free = size - node.guaranteed - node.lent;
                available += free;
                if !self.allowed(chain, at as u32, terms) {
                    unusable += free;
                }
            }
        }
        Err(Wait::NoRoom {
            borrower: true,
            asked: part.pods.iter().sum(),
            available,
            unusable,
        })
    }

    fn roam(&self, chain: ChainId, pods: &[Sized], terms: &Terms<'_>) -> Option<Vec<Load>> {
        let loads = self.roam_sweep(chain, pods, terms);
        let placed: usize = loads.iter().map(|(_, taken)| taken.len()).sum();
        if placed == pods.len() {
            return Some(loads);
        }
        if pods.first().map(|p| p.0) == pods.last().map(|p| p.0) {
            return None;
        }
        let mut nodes: Vec<(u32, u32)> = Vec::new();
        let mut seen: Vec<usize> = Vec::new();
        self.each_roaming(chain, pods[0].0, terms, &mut |node, room| {
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
        let descending: Vec<Sized> = pods.iter().rev().copied().collect();
        let sizes: Vec<u32> = descending.iter().map(|p| p.0).collect();
        let chosen = pack(&rooms, &sizes)?;
        let mut loads: Vec<Load> = nodes.iter().map(|n| (n.0, SmallVec::new())).collect();
        for (at, pod) in chosen.into_iter().zip(descending) {
            loads[at].1.push(pod.1);
        }
        loads.retain(|(_, taken)| !taken.is_empty());
        Some(loads)
    }

    fn roam_sweep(&self, chain: ChainId, pods: &[Sized], terms: &Terms<'_>) -> Vec<Load> {
        let mut loads = Vec::new();
        let mut next = 0;
        self.each_roaming(chain, pods[0].0, terms, &mut |node, room| {
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

    /// Shows machines with room: most borrowers first, then fewest guaranteed leaves. So borrowers stay together and
    /// away from those who may throw them out.
    fn each_roaming(
        &self,
        chain: ChainId,
        least: u32,
        terms: &Terms<'_>,
        visit: &mut dyn FnMut(u32, u32) -> Option<u32>,
    ) {
        let roaming = &self.chains[chain.index()].roaming;
        let mut least = least;
        let mut from = (0, 0, 0);
        'jump: loop {
            for &(unlent, guaranteed, node) in roaming.range(from..) {
                if unlent - guaranteed < least {
                    // More guaranteed leaves leave even less room.
                    from = (unlent + 1, 0, 0);
                    continue 'jump;
                }
                if !self.allowed(chain, node, terms) {
                    continue;
                }
                match visit(node, unlent - guaranteed) {
                    Some(more) => least = more,
                    None => return,
                }
            }
            return;
        }
    }

    fn settle_down(&self, chain: ChainId, loads: Vec<Load>, sizes: &[u32]) -> Vec<Picked> {
        let node_level = self.layout.chain(chain).node_level;
        let mut picked = Vec::with_capacity(sizes.len());
        for (node, pods) in loads {
            let mut taken: SmallVec<[u32; 16]> = SmallVec::new();
            for pod in pods {
                let free =
                    |leaf: u32| (self.owner(chain, leaf).is_none() && !taken.contains(&leaf)).then_some(0);
                let size = sizes[pod as usize];
                let leaves = pick(self, chain, (node_level, node), size, free).expect("the machine has room");
                taken.extend_from_slice(&leaves);
                picked.push(Picked {
                    pod,
                    chain,
                    home: None,
                    leaves,
                });
            }
        }
        picked
    }
}
