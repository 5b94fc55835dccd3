//! Looking at single cells, for those who show them.

use crate::group::GroupId;
use crate::layout::{ChainId, Level, SlotId};
use crate::state::{Cells, NONE};

/// Who has a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeafUse {
    /// The group that is on it.
    pub using: Option<GroupId>,
    /// The preempting group that claims it.
    pub claimed: Option<GroupId>,
}

fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

impl Cells {
    /// Who has a leaf.
    pub fn leaf_use(&self, chain: ChainId, leaf: u32) -> LeafUse {
        let c = &self.chains[chain.index()];
        LeafUse {
            using: some(c.using[leaf as usize]).map(GroupId),
            claimed: some(c.holding[leaf as usize]).map(GroupId),
        }
    }

    /// Whether a cell has a bad machine.
    pub fn has_bad_machine(&self, chain: ChainId, level: Level, index: u32) -> bool {
        self.is_bad(chain, level, index)
    }

    /// The slot that is bound to exactly this cell.
    pub fn slot_at(&self, chain: ChainId, level: Level, index: u32) -> Option<SlotId> {
        some(self.chains[chain.index()].levels[level].bound[index as usize]).map(SlotId)
    }

    /// The physical cell a slot is bound to.
    pub fn cell_of(&self, slot: SlotId) -> Option<u32> {
        some(self.slots[slot.index()].cell)
    }

    /// Groups that run as borrowers although they were guaranteed.
    pub fn downgraded(&self) -> impl Iterator<Item = GroupId> + '_ {
        let all = self.downgraded.iter().flatten();
        all.map(|(_, id)| GroupId(*id))
    }
}
