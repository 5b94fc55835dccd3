//! Changes the configuration without a restart: running groups are carried over.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::cells::Cells;
use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, Layout, Level, MachineId, ViewId};
use crate::restore::Restoration;

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

/// Carries groups from an old configuration over to a new one.
pub(crate) struct Migration<'a> {
    old: &'a Cells,
    new: Cells,
}

impl<'a> Migration<'a> {
    /// Prepares the new configuration with the users and the health of the old one.
    pub(crate) fn new(old: &'a Cells, layout: Layout) -> Self {
        let mut new = Cells::new(layout);
        new.repromote = old.repromote;
        for name in old.ledger.groups.user_names() {
            new.user_id(name);
        }
        for (at, machine) in old.layout().machines.iter().enumerate() {
            let is_healthy = old.is_healthy(MachineId(at as u32));
            if let Some(known) = new.layout().machine_named(&machine.name).filter(|_| !is_healthy) {
                new.set_health(known, false);
            }
        }
        Self { old, new }
    }

    /// Carries over all groups, oldest first.
    pub(crate) fn run(mut self) -> (Cells, Vec<ReconfiguredGroup>) {
        let mut groups: Vec<&Group> = self.old.groups().map(|(_, group)| group).collect();
        groups.sort_by_key(|g| g.sequence);
        let mut result: Vec<ReconfiguredGroup> = groups.iter().map(|group| self.carry_over(group)).collect();
        // A later group may have taken the place of an earlier one.
        for carried in &mut result {
            let group = carried.id.and_then(|id| self.new.group(id));
            if group.is_some_and(|g| g.downgraded.is_some()) {
                carried.fate = Fate::Downgraded;
            }
        }
        self.new.restore_downgraded();
        self.new.ledger.log.clear();
        self.new.ledger.occupancy.emptied_slots.clear();
        (self.new, result)
    }

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
        let vc_name = &self.old.layout().vcs[group.vc.index()].name;
        let Some(vc) = self.new.layout().vc_named(vc_name) else {
            carried.fate = Fate::Forgotten;
            return carried;
        };
        let downgraded = (group.priority >= 0).then_some(Downgrade { by: group.key });
        let id = self.new.ledger.add_group(Group {
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
            self.new.ledger.add_running_pod(id, translated);
        }
        self.new.ledger.occupancy.emptied_slots.clear();
        if downgraded.is_some() {
            let restored = Restoration::new(&mut self.new.ledger, id).forced().run();
            carried.fate = match (restored, group.downgraded.is_some()) {
                (true, false) => Fate::Kept,
                (true, true) => Fate::Restored,
                (false, _) => Fate::Downgraded,
            };
        }
        self.new.ledger.log.clear();
        carried
    }

    /// Finds the leaves of a pod in the new configuration, by chain, machine and index, or in another chain of the same
    /// leaf type.
    fn translate_pod(&self, group: &Group, pod: &Pod) -> Pod {
        let (old, new) = (self.old.layout(), self.new.layout());
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
                self.new.ledger.owner(chain, leaf).is_none().then_some(leaf)
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
        let (old, new) = (self.old.layout(), self.new.layout());
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
