//! Taking over groups that run already: after a restart, what is written on the pods is all that is known of them.

use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Level, ViewId};
use crate::leaves::Write;
use crate::request::{Request, Target};
use crate::state::{Cells, NONE};

/// A pod as it was found: where it runs, and the type of the cell it was given from.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'a> {
    /// Leaves it asked for.
    pub size: u32,
    /// Its machine.
    pub machine: &'a str,
    /// The indices of its leaves there.
    pub indices: &'a [i32],
    /// The type of the cell of its virtual cluster; empty for borrowers.
    pub kind: &'a str,
}

impl Cells {
    /// Takes over a running group. Leaves that are not there, or are somebody else's, are left out. The group gets its place
    /// in its virtual cluster where that can be, if need be before lower priorities; otherwise it runs on as a borrower.
    pub fn adopt(&mut self, request: &Request, chain: &str, pods: &[Sighting<'_>]) -> GroupId {
        let downgraded = (request.priority >= 0).then_some(Downgrade { by: request.key });
        let id = self.add_group(Group {
            key: request.key,
            vc: request.vc,
            user: request.user,
            priority: request.priority,
            lazy: request.lazy,
            state: GroupState::Allocated,
            downgraded,
            sequence: 0,
            pods: Vec::new(),
        });
        for sighting in pods {
            let (chain, leaves) = self.sighted(chain, sighting);
            let home = match request.priority >= 0 {
                true => self.home_of(request, chain, sighting.kind),
                false => None,
            };
            let writes: SmallVec<[Write; 8]> = leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            self.add_pod(
                id,
                Pod {
                    size: sighting.size,
                    chain,
                    leaves,
                    home,
                },
            );
            if !writes.is_empty() {
                self.write(chain, &writes);
            }
        }
        self.loosened.clear();
        if downgraded.is_some() {
            self.restore(id, true);
            self.tidy();
        }
        self.settled();
        id
    }

    /// The leaves of a pod: in the chain that was written down, else in any other.
    fn sighted(&self, chain: &str, pod: &Sighting<'_>) -> (ChainId, SmallVec<[u32; 8]>) {
        let Some(machine) = self.layout.machine_named(pod.machine) else {
            return Default::default();
        };
        let first = self.layout.chain_named(chain);
        let others = (0..self.layout.chains.len() as u32).map(ChainId);
        let tried = first.into_iter().chain(others.filter(|c| Some(*c) != first));
        tried
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
        let target = request.parts.first().map(|p| p.target);
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
