//! Adopts groups that are running already: after a restart, their pods' annotations are all that is known of them.

use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, Pod};
use crate::layout::{ChainId, Level, ViewId};
use crate::occupancy::LeafWrite;
use crate::request::{Request, Target};
use crate::state::{Cells, NONE};

/// A running pod: its leaves, and the cell type it was allocated from.
#[derive(Debug, Clone, Copy)]
pub struct RunningPod<'a> {
    /// Leaves requested.
    pub size: u32,
    /// Name of its machine.
    pub machine: &'a str,
    /// Indices of its leaves on that machine.
    pub indices: &'a [i32],
    /// Type of the virtual cluster's cell it belongs to; empty for borrowers.
    pub kind: &'a str,
}

impl Cells {
    /// Adds a running group. Leaves that do not exist or belong to another group are left out. A guaranteed group gets
    /// its place in its virtual cluster if possible, downgrading lower priorities if necessary; otherwise it becomes a
    /// borrower.
    pub fn adopt(&mut self, request: &Request, chain: &str, pods: &[RunningPod<'_>]) -> GroupId {
        let downgraded = (request.priority >= 0).then_some(Downgrade { by: request.key });
        let id = self.add_group(Group {
            downgraded,
            ..request.new_group()
        });
        for pod in pods {
            let (chain, leaves) = self.leaves_of(chain, pod);
            let home = match request.priority >= 0 {
                true => self.home_of(request, chain, pod.kind),
                false => None,
            };
            let writes: SmallVec<[LeafWrite; 8]> = leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            self.add_pod(
                id,
                Pod {
                    size: pod.size,
                    chain,
                    leaves,
                    home,
                },
            );
            if !writes.is_empty() {
                self.write_leaves(chain, &writes);
            }
        }
        self.emptied_slots.clear();
        if downgraded.is_some() {
            self.restore(id, true);
            self.release_empty_slots();
        }
        self.trim_undo_log();
        id
    }

    /// Finds the leaves of a pod in the given chain, or else in any other.
    fn leaves_of(&self, chain: &str, pod: &RunningPod<'_>) -> (ChainId, SmallVec<[u32; 8]>) {
        let Some(machine) = self.layout.machine_named(pod.machine) else {
            return Default::default();
        };
        let first = self.layout.chain_named(chain);
        let others = (0..self.layout.chains.len() as u32).map(ChainId);
        let chains = first.into_iter().chain(others.filter(|c| Some(*c) != first));
        chains
            .map(|chain| {
                let found = pod.indices.iter().filter_map(|index| {
                    let leaf = self.layout.leaf_at(chain, machine, *index)?;
                    self.owner(chain, leaf).is_none().then_some(leaf)
                });
                let mut leaves: SmallVec<[u32; 8]> = found.collect();
                leaves.sort_unstable();
                leaves.dedup();
                (chain, leaves)
            })
            .find(|(_, leaves)| !leaves.is_empty())
            .unwrap_or_default()
    }

    fn home_of(&self, request: &Request, chain: ChainId, kind: &str) -> Option<(ViewId, Level)> {
        let target = request.pod_sets.first().map(|p| p.target);
        let view = match target {
            Some(Target::Pinned(view)) => view,
            Some(Target::Any | Target::Leaf(_)) | None => {
                *self.layout.vcs[request.vc.index()].views.get(&chain)?
            }
        };
        let types = &self.layout.chains.get(chain.index())?.types;
        Some((view, types.iter().position(|t| t == kind)?))
    }
}
