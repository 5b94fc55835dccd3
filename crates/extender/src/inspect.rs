//! What can be looked at: groups, physical cells and virtual cells.

use std::collections::BTreeMap;

use dovetail_cells::hived::GroupView;
use dovetail_cells::{Cells, ChainId, Group, GroupId, GroupState, Level, OPPORTUNISTIC, SlotId};
use dovetail_kubeapi::seconds_time;

use crate::extender::Extender;
use crate::pods::Moment;
use crate::shapes::{
    AffinityGroup, CellState, CellStatus, ClusterStatus, GroupMeta, GroupStatus, Healthiness, LazyPreemption,
    PhysicalCell, VirtualCell,
};

/// The priority of cells nobody has.
const FREE: i32 = -2;

impl Extender {
    /// The groups that have or claim cells.
    pub fn affinity_groups(&self) -> Vec<AffinityGroup> {
        let names = self.groups.groups().map(|(name, _)| name);
        names.filter_map(|name| self.affinity_group(name)).collect()
    }

    /// One group.
    pub fn affinity_group(&self, name: &str) -> Option<AffinityGroup> {
        let view = self.groups.view(name)?;
        let status = self.group_status(&view);
        Some(AffinityGroup {
            metadata: GroupMeta {
                name: name.to_owned(),
            },
            status,
        })
    }

    fn group_status(&self, view: &GroupView<'_>) -> GroupStatus {
        let cells = self.groups.cells();
        let group = view.group;
        let mut placement: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for place in view.places {
            placement
                .entry(place.node.clone())
                .or_default()
                .extend(&place.leaves);
        }
        placement.values_mut().for_each(|leaves| leaves.sort_unstable());
        let lazy = group.downgraded.map(|downgrade| LazyPreemption {
            preemptor: self.groups.name_of(downgrade.by).to_owned(),
            preemption_time: seconds_time(self.downgraded.get(&group.key).copied().unwrap_or(Moment(0)).0),
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
            virtual_placement: virtual_placement(cells, group),
            allocated_pods: view.pods.iter().flatten().cloned().collect(),
            preempting_pods: view.waiting.iter().cloned().collect(),
            lazy_preemption_status: lazy,
        }
    }

    /// The cells as they are now, to be shown without holding up decisions.
    pub fn picture(&self) -> Picture {
        let vcs = self.groups.groups().filter_map(|(name, id)| {
            let view = self.groups.view(name)?;
            (view.group.effective() < 0).then(|| (id, view.vc.to_owned()))
        });
        Picture {
            vcs: vcs.collect(),
            cells: self.groups.cells().clone(),
        }
    }
}

/// The leaves of a group as its virtual cluster sees them.
fn virtual_placement(cells: &Cells, group: &Group) -> BTreeMap<String, Vec<String>> {
    let mut placement: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if group.effective() < 0 {
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

/// The address of a cell as its virtual cluster sees it: the slot, then numbers that count within the slot.
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

/// The cells at one moment.
#[derive(Debug)]
pub struct Picture {
    cells: Cells,
    /// Virtual clusters of groups that borrow.
    vcs: BTreeMap<GroupId, String>,
}

/// What is known of a cell from the leaves up.
#[derive(Clone, Copy)]
struct Summary {
    state: CellState,
    priority: i32,
}

impl Summary {
    const FREE: Self = Self {
        state: CellState::Free,
        priority: FREE,
    };

    /// Of a cell with such children: one that is used is enough, anything else has to be said of all.
    fn of(children: impl Iterator<Item = Self> + Clone) -> Self {
        let priority = children.clone().map(|c| c.priority).max().unwrap_or(FREE);
        let is = |state: CellState| children.clone().any(|c| c.state == state);
        let state = if is(CellState::Used) {
            CellState::Used
        } else if is(CellState::Free) {
            CellState::Free
        } else if is(CellState::Reserving) {
            CellState::Reserving
        } else {
            CellState::Reserved
        };
        Self { state, priority }
    }
}

impl Picture {
    /// Physical and virtual cells.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            physical_cluster: self.physical(),
            virtual_clusters: self.virtual_clusters(),
        }
    }

    /// The top cells of all chains.
    pub fn physical(&self) -> Vec<PhysicalCell> {
        let layout = self.cells.layout();
        let chains = layout.chains.iter().enumerate();
        chains
            .flat_map(|(at, chain)| {
                let id = ChainId(at as u32);
                let leaf = &layout.leaf_types[chain.leaf_type.index()];
                (0..chain.cells[chain.top()]).map(move |index| {
                    let (mut cell, _) = self.physical_cell(id, chain.top(), index);
                    cell.status.leaf_cell_type = Some(leaf.clone());
                    cell
                })
            })
            .collect()
    }

    /// The cells of all virtual clusters.
    pub fn virtual_clusters(&self) -> BTreeMap<String, Vec<VirtualCell>> {
        let names = self.cells.layout().vcs.iter().map(|vc| vc.name.clone());
        let lists = names.filter_map(|name| Some((name.clone(), self.virtual_cluster(&name)?)));
        lists.collect()
    }

    /// The cells of one virtual cluster, and after them what its borrowers have elsewhere.
    pub fn virtual_cluster(&self, name: &str) -> Option<Vec<VirtualCell>> {
        let layout = self.cells.layout();
        let vc = layout.vc_named(name)?;
        let mut list = Vec::new();
        for slot in &layout.vcs[vc.index()].slots {
            let spec = &layout.slots[slot.index()];
            let chain = layout.chain(spec.chain);
            let first = self.cells.cell_of(*slot);
            let (mut cell, _) = self.virtual_cell(*slot, spec.level, first.unwrap_or(0), first.is_some());
            cell.status.leaf_cell_type = Some(layout.leaf_types[chain.leaf_type.index()].clone());
            list.push(cell);
        }
        for (id, _) in self.vcs.iter().filter(|(_, vc)| *vc == name) {
            list.extend(self.borrowed(*id));
        }
        Some(list)
    }

    /// What a borrower has, as cells that are not its virtual cluster's.
    fn borrowed(&self, id: GroupId) -> Vec<VirtualCell> {
        let layout = self.cells.layout();
        let pods = self
            .cells
            .group(id)
            .map(|g| g.pods.as_slice())
            .unwrap_or_default();
        let mut cells = Vec::new();
        for pod in pods {
            let chain = layout.chain(pod.chain);
            for leaf in &pod.leaves {
                if self.cells.leaf_use(pod.chain, *leaf).using != Some(id) {
                    continue;
                }
                let (physical, _) = self.physical_cell(pod.chain, 0, *leaf);
                let mut status = physical.status.clone();
                status.leaf_cell_type = Some(layout.leaf_types[chain.leaf_type.index()].clone());
                status.cell_address += "-opp";
                status.cell_state = CellState::Used;
                status.cell_priority = i32::from(OPPORTUNISTIC);
                cells.push(VirtualCell {
                    status,
                    cell_children: Vec::new(),
                    physical_cell: Some(Box::new(physical)),
                });
            }
        }
        cells
    }

    fn leaf(&self, chain: ChainId, leaf: u32) -> (Summary, Option<GroupId>) {
        let found = self.cells.leaf_use(chain, leaf);
        let owner = found.claimed.or(found.using);
        let priority = owner
            .and_then(|id| self.cells.group(id))
            .map(|g| i32::from(g.effective()));
        let state = match (found.using, found.claimed) {
            (None, None) => CellState::Free,
            (Some(_), None) => CellState::Used,
            (Some(_), Some(_)) => CellState::Reserving,
            (None, Some(_)) => CellState::Reserved,
        };
        let summary = Summary {
            state,
            priority: priority.unwrap_or(FREE),
        };
        (summary, found.using)
    }

    fn plain(&self, chain: ChainId, level: Level, index: u32, summary: Summary) -> CellStatus {
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

    /// A cell with all below it, and whether its virtual cluster uses something in it.
    fn physical_cell(&self, chain: ChainId, level: Level, index: u32) -> (PhysicalCell, bool) {
        let layout = self.cells.layout();
        let mut cell = PhysicalCell::default();
        let (summary, in_use) = if level == 0 {
            let (summary, using) = self.leaf(chain, index);
            cell.vc = using.and_then(|id| self.vcs.get(&id)).cloned();
            (summary, summary.priority >= 0)
        } else {
            let inside = layout.chain(chain).inside(index, level, level - 1);
            let mut used = false;
            for child in inside {
                let (child, child_used) = self.physical_cell(chain, level - 1, child);
                used |= child_used;
                cell.cell_children.push(child);
            }
            let children = cell.cell_children.iter().map(|c| Summary {
                state: c.status.cell_state,
                priority: c.status.cell_priority,
            });
            (Summary::of(children), used)
        };
        cell.status = self.plain(chain, level, index, summary);
        if let Some(slot) = self.slot_over(chain, level, index) {
            let spec = &layout.slots[slot.index()];
            if in_use || spec.level == level {
                cell.vc = Some(layout.vcs[spec.vc.index()].name.clone());
                let seen = match in_use {
                    true => summary,
                    false => Summary::FREE,
                };
                let mut status = self.plain(chain, level, index, seen);
                status.cell_address = virtual_address(&self.cells, slot, level, index);
                cell.virtual_cell = Some(Box::new(VirtualCell {
                    status,
                    ..VirtualCell::default()
                }));
            }
        }
        (cell, in_use)
    }

    /// The slot that is bound to a cell or to one around it.
    fn slot_over(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        let c = self.cells.layout().chain(chain);
        (level..=c.top()).find_map(|l| self.cells.slot_at(chain, l, c.ancestor(index, level, l)))
    }

    /// A cell of a virtual cluster with all below it, and whether something in it is used.
    fn virtual_cell(&self, slot: SlotId, level: Level, index: u32, is_bound: bool) -> (VirtualCell, bool) {
        let layout = self.cells.layout();
        let spec = &layout.slots[slot.index()];
        let chain = layout.chain(spec.chain);
        let mut cell = VirtualCell::default();
        let (summary, in_use) = if level == 0 {
            let (summary, _) = match is_bound {
                true => self.leaf(spec.chain, index),
                false => (Summary::FREE, None),
            };
            match summary.priority >= 0 {
                true => (summary, true),
                false => (Summary::FREE, false),
            }
        } else {
            let mut used = false;
            for child in chain.inside(index, level, level - 1) {
                let (child, child_used) = self.virtual_cell(slot, level - 1, child, is_bound);
                used |= child_used;
                cell.cell_children.push(child);
            }
            let children = cell.cell_children.iter().map(|c| Summary {
                state: c.status.cell_state,
                priority: c.status.cell_priority,
            });
            (Summary::of(children), used)
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
        if is_bound && (in_use || is_bad || level == spec.level) {
            let mut physical = self.plain(spec.chain, level, index, self.summary(spec.chain, level, index));
            physical.leaf_cell_type = None;
            cell.physical_cell = Some(Box::new(PhysicalCell {
                status: physical,
                ..PhysicalCell::default()
            }));
        }
        (cell, in_use)
    }

    fn summary(&self, chain: ChainId, level: Level, index: u32) -> Summary {
        let leaves = self.cells.layout().chain(chain).inside(index, level, 0);
        let mut all = leaves.map(|leaf| self.leaf(chain, leaf).0);
        let first = all.next().unwrap_or(Summary::FREE);
        all.fold(first, |a, b| Summary::of([a, b].into_iter()))
    }
}
