//! HiveD's inspect API: groups, physical cells and virtual cells.

use std::collections::BTreeMap;

use dovetail_cells::{Cells, ChainId, Group, GroupId, GroupState, Level, OPPORTUNISTIC, SlotId};
use dovetail_hived::GroupView;
use dovetail_kubeapi::seconds_time;

use crate::extender::Extender;
use crate::pods::Timestamp;
use crate::status::{
    AffinityGroup, CellState, CellStatus, ClusterStatus, GroupMeta, GroupStatus, Healthiness, LazyPreemption,
    PhysicalCell, VirtualCell,
};

/// Priority of a free cell.
const FREE_PRIORITY: i32 = -2;

/// Returns the groups that hold or claim cells.
pub fn affinity_groups(extender: &Extender) -> Vec<AffinityGroup> {
    let names = extender.groups.groups().map(|(name, _)| name);
    names.filter_map(|name| affinity_group(extender, name)).collect()
}

/// Returns one group.
pub fn affinity_group(extender: &Extender, name: &str) -> Option<AffinityGroup> {
    let view = extender.groups.view(name)?;
    Some(AffinityGroup {
        metadata: GroupMeta {
            name: name.to_owned(),
        },
        status: group_status(extender, &view),
    })
}

fn group_status(extender: &Extender, view: &GroupView<'_>) -> GroupStatus {
    let group = view.group;
    let mut placement: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for place in view.places {
        placement
            .entry(place.node.clone())
            .or_default()
            .extend(&place.leaves);
    }
    placement.values_mut().for_each(|leaves| leaves.sort_unstable());
    let since = extender.downgraded.get(&group.key).copied();
    let lazy = group.downgraded.map(|downgrade| LazyPreemption {
        preemptor: extender.groups.name_of(downgrade.by).to_owned(),
        preemption_time: seconds_time(since.unwrap_or(Timestamp(0)).0),
    });
    GroupStatus {
        vc: view.vc.to_owned(),
        priority: view.priority,
        state: match group.state {
            GroupState::Preempting => "Preempting",
            GroupState::Allocated => "Allocated",
            GroupState::BeingPreempted => "BeingPreempted",
        },
        physical_placement: placement,
        virtual_placement: virtual_placement(extender.groups.cells(), group),
        allocated_pods: view.pods.iter().flatten().cloned().collect(),
        preempting_pods: view.waiting.iter().cloned().collect(),
        lazy_preemption_status: lazy,
    }
}

/// Returns the leaves of a group by slot, with their virtual addresses.
fn virtual_placement(cells: &Cells, group: &Group) -> BTreeMap<String, Vec<String>> {
    let mut placement: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if group.effective_priority() < 0 {
        return placement;
    }
    for pod in &group.pods {
        for leaf in &pod.leaves {
            if let Some(slot) = cells.slot_of(pod.chain, *leaf) {
                let leaves = placement.entry(cells.layout().slot_address(slot)).or_default();
                leaves.push(virtual_address(cells, slot, 0, *leaf));
            }
        }
    }
    placement
}

/// Returns the address of a cell in its virtual cluster: the slot, then numbers that count within the slot.
fn virtual_address(cells: &Cells, slot: SlotId, level: Level, index: u32) -> String {
    let spec = &cells.layout().slots[slot.index()];
    let chain = cells.layout().chain(spec.chain);
    let first = cells.cell_of(slot).unwrap_or(0);
    let mut address = cells.layout().slot_address(slot);
    for l in (level..spec.level).rev() {
        let at = chain.ancestor(index, level, l) - first * chain.cells_in(spec.level, l);
        address += &format!("/{at}");
    }
    address
}

/// A copy of the cells, which is rendered without blocking decisions.
#[derive(Debug)]
pub struct CellSnapshot {
    cells: Cells,
    /// Virtual clusters of borrowers.
    borrower_vcs: BTreeMap<GroupId, String>,
}

/// State and priority of a cell.
#[derive(Clone, Copy)]
struct Summary {
    state: CellState,
    priority: i32,
}

impl Summary {
    const FREE: Self = Self {
        state: CellState::Free,
        priority: FREE_PRIORITY,
    };

    /// Summarizes the children of a cell: it is used if one child is, and in any other state only if all children are.
    fn of(children: impl Iterator<Item = Self> + Clone) -> Self {
        let priority = children.clone().map(|c| c.priority).max();
        let any = |state: CellState| children.clone().any(|c| c.state == state);
        let state = if any(CellState::Used) {
            CellState::Used
        } else if any(CellState::Free) {
            CellState::Free
        } else if any(CellState::Reserving) {
            CellState::Reserving
        } else {
            CellState::Reserved
        };
        Self {
            state,
            priority: priority.unwrap_or(FREE_PRIORITY),
        }
    }

    fn of_status(status: &CellStatus) -> Self {
        Self {
            state: status.cell_state,
            priority: status.cell_priority,
        }
    }
}

impl CellSnapshot {
    /// Copies the cells of an extender.
    pub fn new(extender: &Extender) -> Self {
        let groups = extender.groups.groups();
        let borrower_vcs = groups.filter_map(|(name, id)| {
            let view = extender.groups.view(name)?;
            (view.group.effective_priority() < 0).then(|| (id, view.vc.to_owned()))
        });
        Self {
            borrower_vcs: borrower_vcs.collect(),
            cells: extender.groups.cells().clone(),
        }
    }

    /// Returns physical and virtual cells.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            physical_cluster: self.physical(),
            virtual_clusters: self.virtual_clusters(),
        }
    }

    /// Returns the top cells of all chains.
    pub fn physical(&self) -> Vec<PhysicalCell> {
        let layout = self.cells.layout();
        let chains = layout.chains.iter().enumerate();
        chains
            .flat_map(|(at, chain)| {
                let id = ChainId(at as u32);
                (0..chain.cells[chain.top()]).map(move |index| {
                    let (mut cell, _) = self.physical_cell(id, chain.top(), index);
                    cell.status.leaf_cell_type = Some(self.leaf_type(id));
                    cell
                })
            })
            .collect()
    }

    /// Returns the cells of all virtual clusters.
    pub fn virtual_clusters(&self) -> BTreeMap<String, Vec<VirtualCell>> {
        let names = self.cells.layout().vcs.iter().map(|vc| vc.name.clone());
        let lists = names.filter_map(|name| Some((name.clone(), self.virtual_cluster(&name)?)));
        lists.collect()
    }

    /// Returns the cells of one virtual cluster, followed by the leaves that its borrowers hold.
    pub fn virtual_cluster(&self, name: &str) -> Option<Vec<VirtualCell>> {
        let layout = self.cells.layout();
        let vc = layout.vc_named(name)?;
        let mut list = Vec::new();
        for slot in &layout.vcs[vc.index()].slots {
            let spec = &layout.slots[slot.index()];
            let bound = self.cells.cell_of(*slot);
            let (mut cell, _) = self.virtual_cell(*slot, spec.level, bound.unwrap_or(0), bound.is_some());
            cell.status.leaf_cell_type = Some(self.leaf_type(spec.chain));
            list.push(cell);
        }
        for (id, _) in self.borrower_vcs.iter().filter(|(_, vc)| *vc == name) {
            list.extend(self.borrowed_leaves(*id));
        }
        Some(list)
    }

    fn leaf_type(&self, chain: ChainId) -> String {
        let layout = self.cells.layout();
        layout.leaf_types[layout.chain(chain).leaf_type.index()].clone()
    }

    /// Returns the leaves of a borrower as virtual cells, in HiveD's form.
    fn borrowed_leaves(&self, id: GroupId) -> Vec<VirtualCell> {
        let group = self.cells.group(id);
        let pods = group.map(|g| g.pods.as_slice()).unwrap_or_default();
        let leaves = pods
            .iter()
            .flat_map(|pod| pod.leaves.iter().map(|leaf| (pod.chain, *leaf)));
        let mut cells = Vec::new();
        for (chain, leaf) in leaves {
            if self.cells.leaf_use(chain, leaf).using != Some(id) {
                continue;
            }
            let (physical, _) = self.physical_cell(chain, 0, leaf);
            let mut status = physical.status.clone();
            status.leaf_cell_type = Some(self.leaf_type(chain));
            status.cell_address += "-opp";
            status.cell_state = CellState::Used;
            status.cell_priority = i32::from(OPPORTUNISTIC);
            cells.push(VirtualCell {
                status,
                cell_children: Vec::new(),
                physical_cell: Some(Box::new(physical)),
            });
        }
        cells
    }

    /// Returns the summary of a leaf, and the group that occupies it.
    fn leaf(&self, chain: ChainId, leaf: u32) -> (Summary, Option<GroupId>) {
        let leaf_use = self.cells.leaf_use(chain, leaf);
        let owner = leaf_use.claimed.or(leaf_use.using);
        let priority = owner
            .and_then(|id| self.cells.group(id))
            .map(|g| i32::from(g.effective_priority()));
        let state = match (leaf_use.using, leaf_use.claimed) {
            (None, None) => CellState::Free,
            (Some(_), None) => CellState::Used,
            (Some(_), Some(_)) => CellState::Reserving,
            (None, Some(_)) => CellState::Reserved,
        };
        let summary = Summary {
            state,
            priority: priority.unwrap_or(FREE_PRIORITY),
        };
        (summary, leaf_use.using)
    }

    fn physical_status(&self, chain: ChainId, level: Level, index: u32, summary: Summary) -> CellStatus {
        let c = self.cells.layout().chain(chain);
        CellStatus {
            leaf_cell_type: None,
            cell_type: c.types[level].clone(),
            is_node_level: level == c.node_level,
            cell_address: c.address(level, index),
            cell_state: summary.state,
            cell_healthiness: self.health(chain, level, index),
            cell_priority: summary.priority,
        }
    }

    fn health(&self, chain: ChainId, level: Level, index: u32) -> Healthiness {
        match self.cells.has_bad_machine(chain, level, index) {
            true => Healthiness::Bad,
            false => Healthiness::Healthy,
        }
    }

    /// Returns a cell with all cells below it, and whether a guaranteed group uses part of it.
    fn physical_cell(&self, chain: ChainId, level: Level, index: u32) -> (PhysicalCell, bool) {
        let layout = self.cells.layout();
        let mut cell = PhysicalCell::default();
        let (summary, is_used) = if level == 0 {
            let (summary, occupant) = self.leaf(chain, index);
            cell.vc = occupant.and_then(|id| self.borrower_vcs.get(&id)).cloned();
            (summary, summary.priority >= 0)
        } else {
            let mut is_used = false;
            for child in layout.chain(chain).inside(index, level, level - 1) {
                let (child, is_child_used) = self.physical_cell(chain, level - 1, child);
                is_used |= is_child_used;
                cell.cell_children.push(child);
            }
            let children = cell.cell_children.iter();
            (
                Summary::of(children.map(|c| Summary::of_status(&c.status))),
                is_used,
            )
        };
        cell.status = self.physical_status(chain, level, index, summary);
        if let Some(slot) = self.slot_over(chain, level, index) {
            let spec = &layout.slots[slot.index()];
            if is_used || spec.level == level {
                cell.vc = Some(layout.vcs[spec.vc.index()].name.clone());
                let summary = match is_used {
                    true => summary,
                    false => Summary::FREE,
                };
                let mut status = self.physical_status(chain, level, index, summary);
                status.cell_address = virtual_address(&self.cells, slot, level, index);
                cell.virtual_cell = Some(Box::new(VirtualCell {
                    status,
                    ..VirtualCell::default()
                }));
            }
        }
        (cell, is_used)
    }

    /// Returns the slot that is bound to a cell or to one of its ancestors.
    fn slot_over(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        let c = self.cells.layout().chain(chain);
        (level..=c.top()).find_map(|l| self.cells.slot_at(chain, l, c.ancestor(index, level, l)))
    }

    /// Returns a cell of a slot with all cells below it, and whether a guaranteed group uses part of it.
    fn virtual_cell(&self, slot: SlotId, level: Level, index: u32, is_bound: bool) -> (VirtualCell, bool) {
        let spec = &self.cells.layout().slots[slot.index()];
        let chain = self.cells.layout().chain(spec.chain);
        let mut cell = VirtualCell::default();
        let (summary, is_used) = if level == 0 {
            let summary = match is_bound {
                true => self.leaf(spec.chain, index).0,
                false => Summary::FREE,
            };
            match summary.priority >= 0 {
                true => (summary, true),
                false => (Summary::FREE, false),
            }
        } else {
            let mut is_used = false;
            for child in chain.inside(index, level, level - 1) {
                let (child, is_child_used) = self.virtual_cell(slot, level - 1, child, is_bound);
                is_used |= is_child_used;
                cell.cell_children.push(child);
            }
            let children = cell.cell_children.iter();
            (
                Summary::of(children.map(|c| Summary::of_status(&c.status))),
                is_used,
            )
        };
        cell.status = CellStatus {
            leaf_cell_type: None,
            cell_type: chain.types[level].clone(),
            is_node_level: level == chain.node_level,
            cell_address: virtual_address(&self.cells, slot, level, index),
            cell_state: summary.state,
            cell_healthiness: match is_bound {
                true => self.health(spec.chain, level, index),
                false => Healthiness::Healthy,
            },
            cell_priority: summary.priority,
        };
        let is_bad = cell.status.cell_healthiness == Healthiness::Bad;
        if is_bound && (is_used || is_bad || level == spec.level) {
            let summary = self.summary(spec.chain, level, index);
            cell.physical_cell = Some(Box::new(PhysicalCell {
                status: self.physical_status(spec.chain, level, index, summary),
                ..PhysicalCell::default()
            }));
        }
        (cell, is_used)
    }

    /// Summarizes all leaves of a cell.
    fn summary(&self, chain: ChainId, level: Level, index: u32) -> Summary {
        let leaves = self.cells.layout().chain(chain).inside(index, level, 0);
        let mut all = leaves.map(|leaf| self.leaf(chain, leaf).0);
        let first = all.next().unwrap_or(Summary::FREE);
        all.fold(first, |a, b| Summary::of([a, b].into_iter()))
    }
}
