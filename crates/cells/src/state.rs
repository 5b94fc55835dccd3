//! The books: who has which leaf, which cells are free, what each virtual cluster has left. Every index is a function
//! of the books, never of how they came about, so a step taken back leaves no trace.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::bits::Bits;
use crate::group::{Downgrade, Group, GroupId, GroupState};
use crate::layout::{ChainId, Layout, Level, SlotId, ViewId};

/// No group, no slot, no cell.
pub(crate) const NONE: u32 = u32::MAX;

/// All cells of one level of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelState {
    /// The slot each cell is bound to.
    pub(crate) bound: Vec<u32>,
    /// Children of each cell that are bound or split.
    pub(crate) split: Vec<u32>,
    /// Leaves of each cell that borrowers have.
    pub(crate) lent: Vec<u32>,
    /// Bad machines in each cell; kept from the level of machines up.
    pub(crate) bad: Vec<u32>,
    /// The cells that have bad machines; kept from the level of machines up.
    pub(crate) bad_cells: BTreeSet<u32>,
    /// Neither bound nor split nor wholly bad, and without borrowers.
    pub(crate) clean: Bits,
    /// The same, with borrowers.
    pub(crate) crowded: Bits,
    /// Clean cells in the free list.
    pub(crate) offer: Bits,
    /// Crowded cells in the free list, fewest borrowed leaves first.
    pub(crate) occupied: BTreeSet<(u32, u32)>,
    /// Neither bound nor split, but with bad machines.
    pub(crate) sick: Bits,
    /// Sick cells in the free list.
    pub(crate) sick_listed: Bits,
    /// Cells in the free list, bad ones too: the largest cells without anything bound in them.
    pub(crate) free: u32,
    /// Slots of this level that are not bound.
    pub(crate) promised: u32,
    /// Cells in or below the free list that have bad machines.
    pub(crate) bad_free: u32,
}

/// A machine as one chain sees it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct NodeState {
    pub(crate) guaranteed: u32,
    pub(crate) lent: u32,
    pub(crate) bad: bool,
}

/// A chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChainState {
    pub(crate) levels: Vec<LevelState>,
    /// The group on each leaf.
    pub(crate) using: Vec<u32>,
    /// The preempting group that claims each leaf.
    pub(crate) holding: Vec<u32>,
    pub(crate) nodes: Vec<NodeState>,
    /// Healthy nodes without guaranteed leaves.
    pub(crate) idle: Bits,
    /// Healthy nodes without any.
    pub(crate) fresh: Bits,
    /// Healthy nodes with free leaves as borrowers see them: (leaves not borrowed, guaranteed leaves, node).
    pub(crate) roaming: BTreeSet<(u32, u32, u32)>,
    pub(crate) bad_nodes: u32,
    pub(crate) doomed: u32,
}

/// A cell a virtual cluster owns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlotState {
    /// The physical cell it is bound to.
    pub(crate) cell: u32,
    /// Guaranteed leaves in it.
    pub(crate) used: u32,
    /// Healthy nodes in it without guaranteed leaves.
    pub(crate) idle: u32,
    /// Bound to a bad cell because there are not enough healthy ones.
    pub(crate) doomed: bool,
}

/// What can be used in one part of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ViewState {
    /// Bins that are partly used and healthy: (free leaves, slot, level, index). Equal ones go by slot, not by where in the
    /// cluster they are: what others do has no part in it.
    pub(crate) partial: BTreeSet<(u32, u32, u8, u32)>,
    /// Bound slots with idle healthy nodes.
    pub(crate) roomy: BTreeSet<u32>,
    /// Slots that are not bound, by level.
    pub(crate) unbound: Vec<BTreeSet<u32>>,
    /// Doomed slots by level.
    pub(crate) doomed_at: Vec<BTreeSet<u32>>,
    /// Guaranteed leaves by priority.
    pub(crate) used_at: BTreeMap<i16, u32>,
}

/// A step, with what it takes to undo it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Leaf {
        chain: ChainId,
        leaf: u32,
        using: u32,
        holding: u32,
    },
    Bound(SlotId),
    Unbound(SlotId, u32),
    Doomed(SlotId, bool),
    /// A group, and whether the table grew for it.
    Added(GroupId, bool),
    Marked(GroupId, GroupState, Option<Downgrade>),
    Removed(GroupId, Box<Group>),
    Pod(GroupId),
}

/// A point in the log to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub(crate) usize);

/// All cells, all virtual clusters and all groups that have or claim something.
#[derive(Debug, Clone)]
pub struct Cells {
    pub(crate) layout: Layout,
    pub(crate) chains: Vec<ChainState>,
    pub(crate) slots: Vec<SlotState>,
    pub(crate) views: Vec<ViewState>,
    pub(crate) groups: Vec<Option<Group>>,
    pub(crate) vacant: Vec<u32>,
    pub(crate) sequence: u64,
    /// Downgraded groups of each virtual cluster, by the order they came in.
    pub(crate) downgraded: Vec<BTreeSet<(u64, u32)>>,
    /// Guaranteed leaves by virtual cluster and user.
    pub(crate) by_user: BTreeMap<(u32, u32), u32>,
    /// The names of users, for their limits.
    pub(crate) users: BTreeMap<String, u32>,
    pub(crate) user_names: Vec<String>,
    pub(crate) log: Vec<Step>,
    /// Slots that lost a leaf and may be empty now.
    pub(crate) loosened: BTreeSet<u32>,
    /// Whether downgraded groups get their place back when there is room.
    pub(crate) repromote: bool,
    /// Whether steps are kept after a change, for a caller who may go back.
    pub(crate) kept: bool,
    /// Slots somebody wants for these cells, while a group is put back.
    pub(crate) wishes: BTreeMap<(ChainId, Level, u32), SlotId>,
}

impl LevelState {
    fn new(cells: usize, top: bool, children: bool) -> Self {
        Self {
            bound: vec![NONE; cells],
            split: if children { vec![0; cells] } else { Vec::new() },
            lent: vec![0; cells],
            bad: vec![0; cells],
            bad_cells: BTreeSet::new(),
            clean: Bits::full(cells),
            crowded: Bits::new(cells),
            offer: if top { Bits::full(cells) } else { Bits::new(cells) },
            occupied: BTreeSet::new(),
            sick: Bits::new(cells),
            sick_listed: Bits::new(cells),
            free: if top { cells as u32 } else { 0 },
            promised: 0,
            bad_free: 0,
        }
    }

    /// Children of a cell that are bound or split; a leaf has none.
    pub(crate) fn split_of(&self, index: u32) -> u32 {
        self.split.get(index as usize).copied().unwrap_or(0)
    }
}

impl Cells {
    /// The cells of a configuration: all free, all machines healthy.
    pub fn new(layout: Layout) -> Self {
        let chains = layout.chains.iter().map(|chain| {
            let top = chain.top();
            let levels = (0..=top).map(|l| LevelState::new(chain.cells[l] as usize, l == top, l > 0));
            let nodes = chain.cells[chain.node_level] as usize;
            let size = chain.node_leaves();
            let leaves = chain.cells[0] as usize;
            ChainState {
                levels: levels.collect(),
                using: vec![NONE; leaves],
                holding: vec![NONE; leaves],
                nodes: vec![NodeState::default(); nodes],
                idle: Bits::full(nodes),
                fresh: Bits::full(nodes),
                roaming: (0..nodes as u32).map(|n| (size, 0, n)).collect(),
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
            groups: Vec::new(),
            vacant: Vec::new(),
            sequence: 0,
            downgraded: vec![BTreeSet::new(); layout.vcs.len()],
            by_user: BTreeMap::new(),
            users: BTreeMap::new(),
            wishes: BTreeMap::new(),
            user_names: Vec::new(),
            log: Vec::new(),
            loosened: BTreeSet::new(),
            repromote: true,
            kept: false,
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

    /// The compiled configuration.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether downgraded groups get their place back when there is room. They do unless this is turned off.
    pub fn set_repromotion(&mut self, on: bool) {
        self.repromote = on;
    }

    /// The group of an id.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.index())?.as_ref()
    }

    /// All groups that have or claim something.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        let all = self.groups.iter().enumerate();
        all.filter_map(|(at, g)| Some((GroupId(at as u32), g.as_ref()?)))
    }

    /// The number for a user's name.
    pub fn user(&mut self, name: &str) -> u32 {
        let next = self.user_names.len() as u32;
        if let Some(known) = self.users.get(name) {
            return *known;
        }
        self.users.insert(name.to_owned(), next);
        self.user_names.push(name.to_owned());
        next
    }

    pub(crate) fn group_at(&self, at: u32) -> &Group {
        self.groups[at as usize]
            .as_ref()
            .expect("a group on a leaf exists")
    }

    /// The priority a leaf is held at, and by whom: the claimant first, then the user.
    pub(crate) fn owner(&self, chain: ChainId, leaf: u32) -> Option<(u32, i16)> {
        let c = &self.chains[chain.index()];
        let owner = match c.holding[leaf as usize] {
            NONE => c.using[leaf as usize],
            holder => holder,
        };
        (owner != NONE).then(|| (owner, self.group_at(owner).effective()))
    }

    /// The slot a leaf belongs to, if it is in a cell some virtual cluster uses.
    pub fn slot_of(&self, chain: ChainId, leaf: u32) -> Option<SlotId> {
        self.slot_over(chain, 0, leaf)
    }

    /// Whether the slot has no physical cell.
    pub fn is_unbound(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].cell == NONE
    }

    /// The slot a cell is bound to, itself or through an ancestor, and the level of that.
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

    /// The bound cells below the level of machines on one node: (slot, level, index).
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
