//! The state of all cells: groups on leaves, free cells, and what each virtual cluster has left.
//!
//! Every index is a function of the state, never of how it came about, so a change that is rolled back leaves no trace.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::bits::Bits;
use crate::group::{Group, GroupId};
use crate::group_table::GroupTable;
use crate::layout::{ChainId, Layout, Level, SlotId, ViewId};
use crate::undo::UndoRecord;

/// No group, no slot, no cell.
pub(crate) const NONE: u32 = u32::MAX;

/// All cells of one level of a chain.
///
/// A cell is *whole* if it is neither bound nor split. A whole cell is *clean* without borrowers and *crowded* with
/// them, unless all its machines are bad; it is *degraded* if some machine is bad. `listed_*` are those in the free list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelState {
    /// Slot that each cell is bound to.
    pub(crate) bound: Vec<u32>,
    /// Children of each cell that are bound or split.
    pub(crate) split: Vec<u32>,
    /// Leaves of each cell that borrowers hold.
    pub(crate) borrowed: Vec<u32>,
    /// Bad machines in each cell, from the machine level up.
    pub(crate) bad: Vec<u32>,
    /// Cells with bad machines, from the machine level up.
    pub(crate) bad_cells: BTreeSet<u32>,
    /// Whole cells without borrowers.
    pub(crate) clean: Bits,
    /// Whole cells with borrowers.
    pub(crate) crowded: Bits,
    /// Clean cells in the free list.
    pub(crate) listed_clean: Bits,
    /// Crowded cells in the free list as (borrowed leaves, cell).
    pub(crate) listed_crowded: BTreeSet<(u32, u32)>,
    /// Whole cells with bad machines.
    pub(crate) degraded: Bits,
    /// Degraded cells in the free list.
    pub(crate) listed_degraded: Bits,
    /// Number of cells in the free list, including bad ones.
    pub(crate) free: u32,
    /// Number of slots of this level that are not bound.
    pub(crate) promised: u32,
    /// Number of cells in or below the free list with bad machines.
    pub(crate) bad_free: u32,
}

/// A machine in one chain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct NodeState {
    /// Leaves at guaranteed priorities.
    pub(crate) guaranteed: u32,
    /// Leaves that borrowers hold.
    pub(crate) borrowed: u32,
    pub(crate) bad: bool,
}

/// A chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChainState {
    pub(crate) levels: Vec<LevelState>,
    /// Group on each leaf.
    pub(crate) occupant: Vec<u32>,
    /// Preempting group that claims each leaf.
    pub(crate) claimant: Vec<u32>,
    pub(crate) nodes: Vec<NodeState>,
    /// Healthy nodes without guaranteed leaves.
    pub(crate) idle: Bits,
    /// Healthy nodes without any group.
    pub(crate) fresh: Bits,
    /// Healthy nodes with free leaves as (leaves not borrowed, guaranteed leaves, node).
    pub(crate) borrowable: BTreeSet<(u32, u32, u32)>,
    pub(crate) bad_nodes: u32,
    /// Number of doomed slots.
    pub(crate) doomed: u32,
}

/// A slot of a virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlotState {
    /// Physical cell it is bound to.
    pub(crate) cell: u32,
    /// Guaranteed leaves in it.
    pub(crate) used: u32,
    /// Healthy nodes in it without guaranteed leaves.
    pub(crate) idle: u32,
    /// Whether it is bound to a bad cell because there are not enough healthy ones.
    pub(crate) doomed: bool,
}

/// Usable room in one view of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ViewState {
    /// Healthy bins that are partly used, as (free leaves, slot, level, index). Ties are broken by slot rather than by
    /// physical position, so that other virtual clusters do not influence the choice.
    pub(crate) partial: BTreeSet<(u32, u32, u8, u32)>,
    /// Bound slots with idle healthy nodes.
    pub(crate) slots_with_idle_nodes: BTreeSet<u32>,
    /// Slots that are not bound, by level.
    pub(crate) unbound: Vec<BTreeSet<u32>>,
    /// Doomed slots, by level.
    pub(crate) doomed_at: Vec<BTreeSet<u32>>,
    /// Guaranteed leaves, by priority.
    pub(crate) used_at: BTreeMap<i16, u32>,
}

/// All cells, all virtual clusters and all groups that hold or claim cells.
#[derive(Debug, Clone)]
pub struct Cells {
    pub(crate) layout: Layout,
    pub(crate) chains: Vec<ChainState>,
    pub(crate) slots: Vec<SlotState>,
    pub(crate) views: Vec<ViewState>,
    pub(crate) groups: GroupTable,
    pub(crate) log: Vec<UndoRecord>,
    /// Slots that lost their last guaranteed leaf and may be unbound.
    pub(crate) emptied_slots: BTreeSet<u32>,
    /// Whether downgraded groups get their place back when there is room.
    pub(crate) repromote: bool,
    /// Whether the log is kept after an operation, because a caller holds a savepoint.
    pub(crate) keeps_undo_log: bool,
    /// Slots to prefer for these cells while a group is put back.
    pub(crate) preferred_slots: BTreeMap<(ChainId, Level, u32), SlotId>,
}

impl LevelState {
    fn new(cells: usize, is_top: bool, has_children: bool) -> Self {
        Self {
            bound: vec![NONE; cells],
            split: if has_children { vec![0; cells] } else { Vec::new() },
            borrowed: vec![0; cells],
            bad: vec![0; cells],
            bad_cells: BTreeSet::new(),
            clean: Bits::full(cells),
            crowded: Bits::new(cells),
            listed_clean: if is_top {
                Bits::full(cells)
            } else {
                Bits::new(cells)
            },
            listed_crowded: BTreeSet::new(),
            degraded: Bits::new(cells),
            listed_degraded: Bits::new(cells),
            free: if is_top { cells as u32 } else { 0 },
            promised: 0,
            bad_free: 0,
        }
    }

    /// Returns the number of children of a cell that are bound or split; 0 for a leaf.
    pub(crate) fn split_of(&self, index: u32) -> u32 {
        self.split.get(index as usize).copied().unwrap_or(0)
    }
}

impl Cells {
    /// Returns the cells of a layout, all free and all machines healthy.
    pub fn new(layout: Layout) -> Self {
        let chains = layout.chains.iter().map(|chain| {
            let top = chain.top();
            let levels = (0..=top).map(|l| LevelState::new(chain.cells[l] as usize, l == top, l > 0));
            let nodes = chain.cells[chain.node_level] as usize;
            let size = chain.node_leaves();
            let leaves = chain.cells[0] as usize;
            ChainState {
                levels: levels.collect(),
                occupant: vec![NONE; leaves],
                claimant: vec![NONE; leaves],
                nodes: vec![NodeState::default(); nodes],
                idle: Bits::full(nodes),
                fresh: Bits::full(nodes),
                borrowable: (0..nodes as u32).map(|n| (size, 0, n)).collect(),
                bad_nodes: 0,
                doomed: 0,
            }
        });
        let chains = chains.collect();
        let views = layout.views.iter().map(|view| {
            let levels = layout.chain(view.chain).types.len();
            ViewState {
                unbound: vec![BTreeSet::new(); levels],
                doomed_at: vec![BTreeSet::new(); levels],
                ..ViewState::default()
            }
        });
        let free = SlotState {
            cell: NONE,
            used: 0,
            idle: 0,
            doomed: false,
        };
        let mut cells = Self {
            views: views.collect(),
            slots: vec![free; layout.slots.len()],
            groups: GroupTable::new(layout.vcs.len()),
            log: Vec::new(),
            emptied_slots: BTreeSet::new(),
            repromote: true,
            keeps_undo_log: false,
            preferred_slots: BTreeMap::new(),
            chains,
            layout,
        };
        for at in 0..cells.slots.len() {
            cells.count_unbound(SlotId(at as u32), true);
        }
        for at in 0..cells.slots.len() {
            if let Some(cell) = cells.layout.slots[at].pinned {
                cells.bind(SlotId(at as u32), cell);
            }
        }
        cells.log.clear();
        cells
    }

    /// Returns the compiled configuration.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sets whether downgraded groups get their place back when there is room; on by default.
    pub fn set_repromotion(&mut self, on: bool) {
        self.repromote = on;
    }

    /// Returns a group.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// Returns all groups that hold or claim cells.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter()
    }

    /// Returns the id of a user, adding the user if it is new.
    pub fn user_id(&mut self, name: &str) -> u32 {
        self.groups.user_id(name)
    }

    pub(crate) fn group_at(&self, id: u32) -> &Group {
        self.groups.get(GroupId(id)).expect("a group on a leaf exists")
    }

    /// Returns the group that owns a leaf and its current priority: the claimant if there is one, else the occupant.
    pub(crate) fn owner(&self, chain: ChainId, leaf: u32) -> Option<(u32, i16)> {
        let c = &self.chains[chain.index()];
        let owner = match c.claimant[leaf as usize] {
            NONE => c.occupant[leaf as usize],
            claimant => claimant,
        };
        (owner != NONE).then(|| (owner, self.group_at(owner).effective_priority()))
    }

    /// Returns the slot that a cell or one of its ancestors is bound to.
    pub(crate) fn slot_over(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        let mut at = index;
        for (l, state) in levels.iter().enumerate().skip(level) {
            let slot = state.bound[at as usize];
            if slot != NONE {
                return Some(SlotId(slot));
            }
            if l < layout.top() {
                at /= layout.fanout[l + 1];
            }
        }
        None
    }

    pub(crate) fn view_of(&self, slot: SlotId) -> ViewId {
        self.layout.slots[slot.index()].view
    }

    /// Returns the bound cells below the machine level on one node, as (slot, level, index).
    pub(crate) fn small_slots(&self, chain: ChainId, node: u32) -> SmallVec<[(SlotId, Level, u32); 4]> {
        let layout = self.layout.chain(chain);
        let levels = &self.chains[chain.index()].levels;
        let mut found = SmallVec::new();
        if levels[layout.node_level].split_of(node) == 0 {
            return found;
        }
        for (level, state) in levels.iter().enumerate().take(layout.node_level) {
            for cell in layout.inside(node, layout.node_level, level) {
                let slot = state.bound[cell as usize];
                if slot != NONE {
                    found.push((SlotId(slot), level, cell));
                }
            }
        }
        found
    }
}
