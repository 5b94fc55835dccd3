//! A new configuration without a restart: running groups are carried over, and it is said what becomes of each.

use serde::{Deserialize, Serialize};

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Layout, Level, ViewId};
use crate::leaves::Write;
use crate::state::{Cells, NONE};

/// What becomes of a group under a new configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The group's key.
    pub key: u64,
    /// Its id under the new configuration; none if it is not known there.
    pub id: Option<GroupId>,
    /// What becomes of it.
    pub fate: Fate,
    /// Leaves it has that are not in the new configuration: it runs on there, but nobody counts them.
    pub leaves_lost: u32,
}

/// What becomes of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It goes on as before.
    Kept,
    /// Its virtual cluster does not own its cells any more: it runs on as a borrower.
    Downgraded,
    /// It was downgraded before, and has its place back.
    Restored,
    /// It had not started: its claim is gone and it has to ask again.
    ClaimDropped,
    /// Its virtual cluster is gone: it runs on, but nobody counts it.
    Forgotten,
}

impl Cells {
    /// The same groups under a new configuration. Machines keep their health by name.
    pub fn reconfigured(&self, layout: Layout) -> (Cells, Vec<Carried>) {
        let mut new = Cells::new(layout);
        new.repromote = self.repromote;
        for name in &self.user_names {
            new.user(name);
        }
        for machine in &self.layout.machines {
            let healthy = machine
                .nodes
                .iter()
                .all(|(c, n)| !self.chains[c.index()].nodes[*n as usize].bad);
            if let Some(known) = new.layout.machine_named(&machine.name).filter(|_| !healthy) {
                new.set_health(known, false);
            }
        }
        let mut groups: Vec<&Group> = self.groups.iter().flatten().collect();
        groups.sort_by_key(|g| g.sequence);
        let mut fates: Vec<Carried> = groups.iter().map(|group| self.carry(&mut new, group)).collect();
        // A later group may have taken the place of an earlier one.
        for carried in &mut fates {
            let now = carried.id.and_then(|id| new.group(id)).and_then(|g| g.downgraded);
            if now.is_some() && carried.fate != Fate::Downgraded {
                carried.fate = Fate::Downgraded;
            }
        }
        new.promote();
        new.log.clear();
        new.loosened.clear();
        (new, fates)
    }

    fn carry(&self, new: &mut Cells, group: &Group) -> Carried {
        let mut carried = Carried {
            key: group.key,
            id: None,
            fate: Fate::Kept,
            leaves_lost: 0,
        };
        if group.state == GroupState::Preempting {
            carried.fate = Fate::ClaimDropped;
            return carried;
        }
        let Some(vc) = new.layout.vc_named(&self.layout.vcs[group.vc.index()].name) else {
            carried.fate = Fate::Forgotten;
            return carried;
        };
        let downgraded = (group.priority >= 0).then_some(Downgrade { by: group.key });
        let id = new.add_group(Group {
            vc,
            state: GroupState::Allocated,
            downgraded,
            pods: Vec::new(),
            ..group.clone()
        });
        carried.id = Some(id);
        for pod in &group.pods {
            let moved = self.move_pod(new, group, pod);
            carried.leaves_lost += pod.leaves.len() as u32 - moved.leaves.len() as u32;
            let writes: Vec<Write> = moved.leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            let chain = moved.chain;
            new.add_pod(id, moved);
            new.write(chain, &writes);
        }
        new.loosened.clear();
        if downgraded.is_some() {
            let restored = new.restore(id, true);
            carried.fate = match (restored, group.downgraded.is_some()) {
                (true, false) => Fate::Kept,
                (true, true) => Fate::Restored,
                (false, _) => Fate::Downgraded,
            };
        }
        new.log.clear();
        carried
    }

    /// The same leaves in the new configuration: by chain, machine and index, or in another chain of the same kind.
    fn move_pod(&self, new: &Cells, group: &Group, pod: &Pod) -> Pod {
        let old = self.layout.chain(pod.chain);
        let same = new.layout.chain_named(&old.name);
        let kind = new
            .layout
            .leaf_type_named(&self.layout.leaf_types[old.leaf_type.index()]);
        let others = kind
            .map(|k| new.layout.chains_of[k.index()].as_slice())
            .unwrap_or_default();
        let find = |chain: ChainId| {
            let found = pod.leaves.iter().filter_map(|leaf| {
                let machine = &self.layout.machines[self.layout.machine_of(pod.chain, *leaf).index()].name;
                let machine = new.layout.machine_named(machine)?;
                let leaf = new
                    .layout
                    .leaf_at(chain, machine, old.leaf_indices[*leaf as usize])?;
                new.owner(chain, leaf).is_none().then_some(leaf)
            });
            found.collect::<smallvec::SmallVec<[u32; 8]>>()
        };
        let tried = same
            .into_iter()
            .chain(others.iter().copied().filter(|c| Some(*c) != same));
        let best = tried
            .map(|chain| (chain, find(chain)))
            .find(|(_, leaves)| !leaves.is_empty());
        let (chain, leaves) = best.unwrap_or_default();
        let home = pod.home.and_then(|home| self.new_home(new, group, home, chain));
        Pod {
            size: pod.size,
            chain,
            leaves,
            home,
        }
    }

    /// Where a pod belongs in the new configuration: the same pinned cell, or the level of the same type.
    fn new_home(
        &self,
        new: &Cells,
        group: &Group,
        home: (ViewId, Level),
        chain: ChainId,
    ) -> Option<(ViewId, Level)> {
        let (view, level) = home;
        let spec = &self.layout.views[view.index()];
        let kind = &self.layout.chain(spec.chain).types[level];
        let vc = new.layout.vc_named(&self.layout.vcs[group.vc.index()].name)?;
        let vc = &new.layout.vcs[vc.index()];
        let view = match &spec.pinned {
            Some(pin) => *vc.pinned.get(pin)?,
            None => *vc.views.get(&chain)?,
        };
        let level = new.layout.chain(chain).types.iter().position(|t| t == kind)?;
        Some((view, level))
    }
}
