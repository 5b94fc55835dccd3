//! Groups: pods that start together or not at all.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::layout::{ChainId, Level, VcId, ViewId};

/// The priority of jobs that only borrow.
pub const OPPORTUNISTIC: i16 = -1;
/// The lowest priority of jobs that use what their virtual cluster owns.
pub const GUARANTEED_MIN: i16 = 0;
/// The highest priority.
pub const GUARANTEED_MAX: i16 = 1000;

/// A group that holds or claims cells. Ids are used again after a group has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Its place in the table of groups.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a group is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GroupState {
    /// Its cells are its own, but others still have to leave some of them.
    Preempting,
    /// It has its cells.
    Allocated,
    /// It has its cells, but a preempting group waits for it to go.
    BeingPreempted,
}

/// That a group lost its place in its virtual cluster and runs on as a borrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// The key of the group it made room for; its own key if its cells vanished.
    pub by: u64,
}

/// One pod of a group and the leaves it has, all on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Leaves asked for.
    pub size: u32,
    /// The chain of its leaves.
    pub chain: ChainId,
    /// Its leaves; fewer than asked for if some vanished from the configuration.
    pub leaves: SmallVec<[u32; 8]>,
    /// Which part of the virtual cluster it belongs to, and the level of the cell there; none for borrowers.
    pub home: Option<(ViewId, Level)>,
}

/// A group that holds or claims cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What the caller calls it.
    pub key: u64,
    /// Its virtual cluster.
    pub vc: VcId,
    /// Its user, if users are told apart.
    pub user: Option<u32>,
    /// What it was asked for with.
    pub priority: i16,
    /// Whether it may be downgraded instead of stopped.
    pub lazy: bool,
    /// Where it is in its life.
    pub state: GroupState,
    /// Set while it only borrows although it was guaranteed.
    pub downgraded: Option<Downgrade>,
    /// Counts up: who came first.
    pub sequence: u64,
    /// Its pods, in the order of the request.
    pub pods: Vec<Pod>,
}

impl Group {
    /// The priority it has now.
    pub fn effective(&self) -> i16 {
        if self.downgraded.is_some() {
            OPPORTUNISTIC
        } else {
            self.priority
        }
    }

    /// Leaves it has.
    pub fn leaves(&self) -> u32 {
        self.pods.iter().map(|p| p.leaves.len() as u32).sum()
    }
}
