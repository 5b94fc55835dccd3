//! Adopts groups that are running already: after a restart, their pods' annotations are all that is known of them.

use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, Pod};
use crate::health::release_empty_slots;
use crate::layout::{ChainId, Layout, Level, ViewId};
use crate::ledger::Ledger;
use crate::request::{Request, Target};
use crate::restore::Restoration;

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
    pub cell_type: &'a str,
}

/// Adds a running group, with the leaves that exist and have no owner.
pub(crate) fn adopt(ledger: &mut Ledger, request: &Request, chain: &str, pods: &[RunningPod<'_>]) -> GroupId {
    let downgraded = (request.priority >= 0).then_some(Downgrade { by: request.key });
    let id = ledger.add_group(Group {
        downgraded,
        ..request.new_group()
    });
    for pod in pods {
        let (chain, leaves) = find_leaves(ledger, chain, pod);
        let home = match request.priority >= 0 {
            true => find_home(ledger.layout(), request, chain, pod.cell_type),
            false => None,
        };
        ledger.add_running_pod(
            id,
            Pod {
                size: pod.size,
                chain,
                leaves,
                home,
            },
        );
    }
    ledger.occupancy.emptied_slots.clear();
    if downgraded.is_some() {
        Restoration::new(ledger, id).forced().run();
        release_empty_slots(ledger);
    }
    id
}

/// Finds the leaves of a pod in the given chain, or else in any other.
fn find_leaves(ledger: &Ledger, chain: &str, pod: &RunningPod<'_>) -> (ChainId, SmallVec<[u32; 8]>) {
    let layout = ledger.layout();
    let Some(machine) = layout.machine_named(pod.machine) else {
        return Default::default();
    };
    let first = layout.chain_named(chain);
    let others = (0..layout.chains.len() as u32).map(ChainId);
    let chains = first.into_iter().chain(others.filter(|c| Some(*c) != first));
    chains
        .map(|chain| {
            let found = pod.indices.iter().filter_map(|index| {
                let leaf = layout.leaf_at(chain, machine, *index)?;
                ledger.owner(chain, leaf).is_none().then_some(leaf)
            });
            let mut leaves: SmallVec<[u32; 8]> = found.collect();
            leaves.sort_unstable();
            leaves.dedup();
            (chain, leaves)
        })
        .find(|(_, leaves)| !leaves.is_empty())
        .unwrap_or_default()
}

/// Returns the view and level of a running pod in its virtual cluster.
fn find_home(layout: &Layout, request: &Request, chain: ChainId, cell_type: &str) -> Option<(ViewId, Level)> {
    let target = request.pod_sets.first().map(|p| p.target);
    let view = match target {
        Some(Target::Pinned(view)) => view,
        Some(Target::Any | Target::Leaf(_)) | None => *layout.vcs[request.vc.index()].views.get(&chain)?,
    };
    let types = &layout.chains.get(chain.index())?.types;
    Some((view, types.iter().position(|t| t == cell_type)?))
}
