//! Groups: pods that start together or not at all.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::layout::{ChainId, Level, VcId, ViewId};

/// Priority of opportunistic groups.
pub const OPPORTUNISTIC: i16 = -1;
/// Lowest priority of groups that use cells of their virtual cluster.
pub const GUARANTEED_MIN: i16 = 0;
/// Highest priority.
pub const GUARANTEED_MAX: i16 = 1000;

/// A group that holds or claims cells. Ids are reused after a group is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Returns the index into the table of groups.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// State of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GroupState {
    /// It claims cells that other groups still occupy.
    Preempting,
    /// It holds its cells.
    Allocated,
    /// It holds its cells, but a preempting group claims some of them.
    BeingPreempted,
}

/// Marks a group that lost its place in its virtual cluster and continues as a borrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// Key of the group it made room for; its own key if its cells are no longer in the configuration.
    pub by: u64,
}

/// One pod of a group with its leaves, all on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Leaves requested.
    pub size: u32,
    /// Chain of its leaves.
    pub chain: ChainId,
    /// Its leaves; fewer than requested if some are no longer in the configuration.
    pub leaves: SmallVec<[u32; 8]>,
    /// View and level of the slot it belongs to; `None` for borrowers.
    pub home: Option<(ViewId, Level)>,
}

/// A group that holds or claims cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The caller's key of the group.
    pub key: u64,
    /// Its virtual cluster.
    pub vc: VcId,
    /// Its user, if limits per user apply.
    pub user: Option<u32>,
    /// The requested priority.
    pub priority: i16,
    /// Whether it may be downgraded instead of being preempted.
    pub lazy: bool,
    /// Its state.
    pub state: GroupState,
    /// Set while a guaranteed group runs as a borrower.
    pub downgraded: Option<Downgrade>,
    /// Number in the order in which groups were added.
    pub sequence: u64,
    /// Its pods, in the order of the request.
    pub pods: Vec<Pod>,
}

impl Group {
    /// Returns the current priority: that of a borrower while the group is downgraded.
    pub fn effective_priority(&self) -> i16 {
        if self.downgraded.is_some() {
            OPPORTUNISTIC
        } else {
            self.priority
        }
    }

    /// Returns the number of leaves it holds or claims.
    pub fn leaves(&self) -> u32 {
        self.pods.iter().map(|p| p.leaves.len() as u32).sum()
    }
}
