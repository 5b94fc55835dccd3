//! Changes the configuration without a restart: running groups are carried over.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Layout, Level, ViewId};
use crate::occupancy::LeafWrite;
use crate::state::{Cells, NONE};

/// A group under the new configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconfiguredGroup {
    /// The caller's key of the group.
    pub key: u64,
    /// Its id under the new configuration; `None` if it was not carried over.
    pub id: Option<GroupId>,
    /// What happened to it.
    pub fate: Fate,
    /// Leaves that are not in the new configuration. The group keeps running on them, but they are not counted.
    pub leaves_lost: u32,
}

/// What a new configuration does to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It continues as before.
    Kept,
    /// Its virtual cluster no longer owns its cells: it continues as a borrower.
    Downgraded,
    /// It was downgraded before, and has its place back.
    Restored,
    /// It had not started: its claim is dropped and it has to be requested again.
    ClaimDropped,
    /// Its virtual cluster no longer exists: it keeps running, but its cells are not counted.
    Forgotten,
}

impl Cells {
    /// Returns the same groups under a new configuration. Machines keep their health by name.
    pub fn reconfigured(&self, layout: Layout) -> (Cells, Vec<ReconfiguredGroup>) {
        let mut new = Cells::new(layout);
        new.repromote = self.repromote;
        for name in self.groups.user_names() {
            new.user_id(name);
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
        let mut groups: Vec<&Group> = self.groups().map(|(_, group)| group).collect();
        groups.sort_by_key(|g| g.sequence);
        let mut result: Vec<ReconfiguredGroup> = groups
            .iter()
            .map(|group| {
                Migration {
                    old: self,
                    new: &mut new,
                }
                .carry_over(group)
            })
            .collect();
        // A later group may have taken the place of an earlier one.
        for carried in &mut result {
            let now = carried.id.and_then(|id| new.group(id)).and_then(|g| g.downgraded);
            if now.is_some() && carried.fate != Fate::Downgraded {
                carried.fate = Fate::Downgraded;
            }
        }
        new.promote();
        new.log.clear();
        new.emptied_slots.clear();
        (new, result)
    }
}

/// Carries groups from an old configuration over to a new one.
struct Migration<'a> {
    old: &'a Cells,
    new: &'a mut Cells,
}

impl Migration<'_> {
    fn carry_over(&mut self, group: &Group) -> ReconfiguredGroup {
        let mut carried = ReconfiguredGroup {
            key: group.key,
            id: None,
            fate: Fate::Kept,
            leaves_lost: 0,
        };
        if group.state == GroupState::Preempting {
            carried.fate = Fate::ClaimDropped;
            return carried;
        }
        let vc_name = &self.old.layout.vcs[group.vc.index()].name;
        let Some(vc) = self.new.layout.vc_named(vc_name) else {
            carried.fate = Fate::Forgotten;
            return carried;
        };
        let downgraded = (group.priority >= 0).then_some(Downgrade { by: group.key });
        let id = self.new.add_group(Group {
            vc,
            state: GroupState::Allocated,
            downgraded,
            pods: Vec::new(),
            ..group.clone()
        });
        carried.id = Some(id);
        for pod in &group.pods {
            let translated = self.translate_pod(group, pod);
            carried.leaves_lost += pod.leaves.len() as u32 - translated.leaves.len() as u32;
            let writes: Vec<LeafWrite> = translated.leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            let chain = translated.chain;
            self.new.add_pod(id, translated);
            self.new.write_leaves(chain, &writes);
        }
        self.new.emptied_slots.clear();
        if downgraded.is_some() {
            let restored = self.new.restore(id, true);
            carried.fate = match (restored, group.downgraded.is_some()) {
                (true, false) => Fate::Kept,
                (true, true) => Fate::Restored,
                (false, _) => Fate::Downgraded,
            };
        }
        self.new.log.clear();
        carried
    }

    /// Finds the leaves of a pod in the new configuration, by chain, machine and index, or in another chain of the same
    /// leaf type.
    fn translate_pod(&self, group: &Group, pod: &Pod) -> Pod {
        let (old, new) = (&self.old.layout, &self.new.layout);
        let old_chain = old.chain(pod.chain);
        let same = new.chain_named(&old_chain.name);
        let leaf_type = new.leaf_type_named(&old.leaf_types[old_chain.leaf_type.index()]);
        let others = leaf_type
            .map(|k| new.chains_of[k.index()].as_slice())
            .unwrap_or_default();
        let find = |chain: ChainId| {
            let found = pod.leaves.iter().filter_map(|leaf| {
                let machine = &old.machines[old.machine_of(pod.chain, *leaf).index()].name;
                let machine = new.machine_named(machine)?;
                let leaf = new.leaf_at(chain, machine, old_chain.leaf_indices[*leaf as usize])?;
                self.new.owner(chain, leaf).is_none().then_some(leaf)
            });
            found.collect::<SmallVec<[u32; 8]>>()
        };
        let chains = same
            .into_iter()
            .chain(others.iter().copied().filter(|c| Some(*c) != same));
        let best = chains
            .map(|chain| (chain, find(chain)))
            .find(|(_, leaves)| !leaves.is_empty());
        let (chain, leaves) = best.unwrap_or_default();
        let home = pod.home.and_then(|home| self.translate_home(group, home, chain));
        Pod {
            size: pod.size,
            chain,
            leaves,
            home,
        }
    }

    /// Returns the home of a pod in the new configuration: the same pinned cell, or the level of the same type.
    fn translate_home(
        &self,
        group: &Group,
        (view, level): (ViewId, Level),
        chain: ChainId,
    ) -> Option<(ViewId, Level)> {
        let (old, new) = (&self.old.layout, &self.new.layout);
        let spec = &old.views[view.index()];
        let cell_type = &old.chain(spec.chain).types[level];
        let vc = new.vc_named(&old.vcs[group.vc.index()].name)?;
        let vc = &new.vcs[vc.index()];
        let view = match &spec.pinned {
            Some(pin) => *vc.pinned.get(pin)?,
            None => *vc.views.get(&chain)?,
        };
        let level = new.chain(chain).types.iter().position(|t| t == cell_type)?;
        Some((view, level))
    }
}
