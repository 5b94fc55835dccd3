//! What is asked for, and what the answer can be.

use serde::{Deserialize, Serialize};

use crate::bits::Bits;
use crate::group::{Group, GroupId};
use crate::layout::{LeafType, MachineId, SlotId, VcId, ViewId};

/// Pods that start together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What the caller calls the group.
    pub key: u64,
    /// The virtual cluster that pays for it.
    pub vc: VcId,
    /// Its user, if users are told apart (see [`Cells::user`](crate::Cells::user)).
    pub user: Option<u32>,
    /// −1 borrows what is idle; 0 to 1000 uses what the virtual cluster owns.
    pub priority: i16,
    /// Whether it may later be downgraded to a borrower instead of being stopped.
    pub lazy: bool,
    /// Whether its pods may be spread over several chains if no single one has room.
    pub several_chains: bool,
    /// Its pods. Most groups have one part; a group of GPU and CPU pods has two.
    pub parts: Vec<Part>,
}

/// Pods of a group that want the same kind of leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Where they may go.
    pub target: Target,
    /// Leaves each pod asks for.
    pub pods: Vec<u32>,
}

/// Where pods may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Any kind of leaf.
    Any,
    /// One kind of leaf.
    Leaf(LeafType),
    /// A pinned cell.
    Pinned(ViewId),
}

impl Request {
    /// A group of equal pods of one kind of leaf.
    pub fn gang(key: u64, vc: VcId, priority: i16, leaf: LeafType, pods: u32, size: u32) -> Self {
        Self {
            key,
            vc,
            user: None,
            priority,
            lazy: false,
            several_chains: false,
            parts: vec![Part {
                target: Target::Leaf(leaf),
                pods: vec![size; pods as usize],
            }],
        }
    }

    /// Leaves asked for.
    pub fn leaves(&self) -> u32 {
        self.parts.iter().flat_map(|p| &p.pods).sum()
    }
}

/// Machines, as a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSet(pub(crate) Bits);

impl MachineSet {
    /// None of so many machines.
    pub fn new(machines: usize) -> Self {
        Self(Bits::new(machines))
    }

    /// Adds one.
    pub fn insert(&mut self, machine: MachineId) {
        self.0.set(machine.0, true);
    }

    /// Whether it is in.
    pub fn contains(&self, machine: MachineId) -> bool {
        self.0.contains(machine.0)
    }
}

/// Tells the work that would be lost with a group.
pub type Lost<'a> = dyn Fn(GroupId, &Group) -> u64 + 'a;

/// What else bears on a decision.
#[derive(Clone, Copy, Default)]
pub struct Terms<'a> {
    /// The machines that may be used; all if there is none.
    pub machines: Option<&'a MachineSet>,
    /// The work that would be lost if a group were stopped; nothing if there is none. Victims are chosen so that
    /// little is lost.
    pub lost: Option<&'a Lost<'a>>,
    /// Slots that come first, whatever is in the others: where a group has been, say.
    pub slots: &'a [SlotId],
}

/// A request that can never be met as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The priority is out of range.
    #[error("priority {found} is not allowed; expected -1 (opportunistic) to 1000")]
    Priority {
        /// What was asked for.
        found: i16,
    },
    /// A group without pods, or a pod without leaves.
    #[error("found a group without pods or a pod without leaf cells; expected at least one of each")]
    Empty,
    /// Borrowers have no pinned cells.
    #[error("opportunistic groups cannot use pinned cells; expected a priority from 0 to 1000")]
    PinnedOpportunistic,
    /// The pinned cell belongs to somebody else.
    #[error("the pinned cell does not belong to the virtual cluster")]
    PinnedOfOthers,
    /// The virtual cluster owns nothing of the kind.
    #[error("virtual cluster {vc} owns no {leaf} cells; it owns {owned}")]
    NotOwned {
        /// The virtual cluster.
        vc: String,
        /// The kind of leaf.
        leaf: String,
        /// What it does own.
        owned: String,
    },
}

/// Why a group has to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// There is no room in what it may use, even if lower priorities gave way.
    NoRoom {
        /// Whether it looked in the whole cluster, as borrowers do.
        borrower: bool,
        /// Leaves asked for.
        asked: u32,
        /// Leaves free or at lower priorities where it may go.
        available: u32,
        /// Those on machines that are bad or not suggested.
        unusable: u32,
    },
    /// There is room in the virtual cluster, but only bad or not suggested machines could back it.
    NoHealthyCell {
        /// The level of the cell that is missing.
        level: usize,
        /// Cells of that level in the free list, bad ones too.
        free: u32,
        /// Of those that can be had, how many have bad machines.
        bad: u32,
    },
    /// The user holds too much already.
    UserLimit {
        /// The most the user may hold.
        limit: u32,
        /// Held now.
        held: u32,
        /// Asked for.
        asked: u32,
    },
}

/// What a decision would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The group can start now.
    Placed,
    /// The group can start when these groups have gone.
    Preempting {
        /// Groups that have to go, by id.
        victims: Vec<GroupId>,
    },
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// It can never be met as it is.
    Refused(Refusal),
    /// It has to wait.
    Waits(Wait),
}
