//! Requests for cells, and the possible answers.

use serde::{Deserialize, Serialize};

use crate::bits::Bits;
use crate::group::{GUARANTEED_MAX, Group, GroupId, GroupState, OPPORTUNISTIC};
use crate::layout::{Layout, LeafType, MachineId, SlotId, VcId, ViewId};

/// A request of a group: pods that start together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The caller's key of the group.
    pub key: u64,
    /// Virtual cluster of the group.
    pub vc: VcId,
    /// User of the group, if limits per user apply (see [`Cells::user_id`](crate::Cells::user_id)).
    pub user: Option<u32>,
    /// −1 borrows idle leaves; 0 to 1000 uses the cells of the virtual cluster.
    pub priority: i16,
    /// Whether the group may later be downgraded to a borrower instead of being preempted.
    pub lazy: bool,
    /// Whether the pods may be spread over several chains if no single chain has room.
    pub may_span_chains: bool,
    /// Its pods. Most groups have one set; a group of GPU and CPU pods has two.
    pub pod_sets: Vec<PodSet>,
}

/// Pods of a group with the same target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSet {
    /// Where the pods may run.
    pub target: Target,
    /// Leaves of each pod.
    pub pods: Vec<u32>,
}

/// Where pods may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Any leaf type.
    Any,
    /// One leaf type.
    Leaf(LeafType),
    /// A pinned cell.
    Pinned(ViewId),
}

impl Request {
    /// Returns a request for pods of equal size on one leaf type.
    pub fn gang(key: u64, vc: VcId, priority: i16, leaf: LeafType, pods: u32, size: u32) -> Self {
        Self {
            key,
            vc,
            user: None,
            priority,
            lazy: false,
            may_span_chains: false,
            pod_sets: vec![PodSet {
                target: Target::Leaf(leaf),
                pods: vec![size; pods as usize],
            }],
        }
    }

    /// Returns the number of leaves of all pods.
    pub fn leaves(&self) -> u32 {
        self.pod_sets.iter().flat_map(|p| &p.pods).sum()
    }

    /// Checks that the request can be met at all.
    pub(crate) fn validate(&self, layout: &Layout) -> Result<(), Refusal> {
        if !(OPPORTUNISTIC..=GUARANTEED_MAX).contains(&self.priority) {
            return Err(Refusal::Priority { found: self.priority });
        }
        let is_empty = |set: &PodSet| set.pods.is_empty() || set.pods.contains(&0);
        if self.pod_sets.is_empty() || self.pod_sets.iter().any(is_empty) {
            return Err(Refusal::Empty);
        }
        let vc = &layout.vcs[self.vc.index()];
        for set in &self.pod_sets {
            match set.target {
                Target::Pinned(_) if self.priority < 0 => return Err(Refusal::PinnedOpportunistic),
                Target::Pinned(view) if !vc.pinned.values().any(|v| *v == view) => {
                    return Err(Refusal::PinnedOfOthers);
                }
                Target::Leaf(leaf) if self.priority >= 0 => {
                    let chains = &layout.chains_of[leaf.index()];
                    if !chains.iter().any(|c| vc.views.contains_key(c)) {
                        let mut owned: Vec<&str> = vc.views.keys().map(|c| layout.leaf_name(*c)).collect();
                        owned.dedup();
                        return Err(Refusal::NotOwned {
                            vc: vc.name.clone(),
                            leaf: layout.leaf_types[leaf.index()].clone(),
                            owned: if owned.is_empty() {
                                "only pinned cells or none".to_owned()
                            } else {
                                owned.join(", ")
                            },
                        });
                    }
                }
                Target::Any | Target::Leaf(_) | Target::Pinned(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the group before it has any pods.
    pub(crate) fn new_group(&self) -> Group {
        Group {
            key: self.key,
            vc: self.vc,
            user: self.user,
            priority: self.priority,
            lazy: self.lazy,
            state: GroupState::Allocated,
            downgraded: None,
            sequence: 0,
            pods: Vec::new(),
        }
    }
}

/// A set of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSet(pub(crate) Bits);

impl MachineSet {
    /// Returns the empty set for a layout with this number of machines.
    pub fn new(machines: usize) -> Self {
        Self(Bits::new(machines))
    }

    /// Adds a machine.
    pub fn insert(&mut self, machine: MachineId) {
        self.0.set(machine.0, true);
    }

    /// Whether a machine is in the set.
    pub fn contains(&self, machine: MachineId) -> bool {
        self.0.contains(machine.0)
    }
}

/// Returns the work that is lost when a group is preempted.
pub type PreemptionCost<'a> = dyn Fn(GroupId, &Group) -> u64 + 'a;

/// Conditions and preferences for one placement.
#[derive(Clone, Copy, Default)]
pub struct PlacementOptions<'a> {
    /// Machines that may be used; `None` for all.
    pub machines: Option<&'a MachineSet>,
    /// Cost of preempting a group, which the choice of victims keeps low; `None` if all cost nothing.
    pub preemption_cost: Option<&'a PreemptionCost<'a>>,
    /// Slots to try first, such as those a group used before.
    pub slots: &'a [SlotId],
}

/// A request that can never be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The priority is out of range.
    #[error("invalid priority {found}: expected -1 (opportunistic) to 1000")]
    Priority {
        /// The requested priority.
        found: i16,
    },
    /// A group without pods, or a pod without leaves.
    #[error("the group has no pods or a pod has no leaf cells: expected at least one of each")]
    Empty,
    /// An opportunistic group requests a pinned cell.
    #[error("opportunistic groups cannot use pinned cells; expected a priority from 0 to 1000")]
    PinnedOpportunistic,
    /// The pinned cell belongs to another virtual cluster.
    #[error("the pinned cell does not belong to the virtual cluster")]
    PinnedOfOthers,
    /// The virtual cluster owns no leaves of this type.
    #[error("virtual cluster {vc} owns no {leaf} cells; it owns {owned}")]
    NotOwned {
        /// The virtual cluster.
        vc: String,
        /// The requested leaf type.
        leaf: String,
        /// Leaf types that it owns.
        owned: String,
    },
}

/// Why a group must wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitReason {
    /// There is not enough room, even if all lower priorities were preempted.
    NoRoom {
        /// Whether the group is opportunistic and searched the whole cluster.
        borrower: bool,
        /// Leaves requested.
        asked: u32,
        /// Leaves that are free or held at lower priorities.
        available: u32,
        /// Available leaves on machines that are bad or not suggested.
        unusable: u32,
    },
    /// The virtual cluster has room, but only cells with bad or not suggested machines are left for it.
    NoHealthyCell {
        /// Level of the missing cell.
        level: usize,
        /// Cells of that level in the free list, including bad ones.
        free: u32,
        /// Free cells of that level with bad machines.
        bad: u32,
    },
    /// The user holds too many leaves.
    UserLimit {
        /// Most leaves the user may hold.
        limit: u32,
        /// Leaves held now.
        held: u32,
        /// Leaves requested.
        asked: u32,
    },
}

/// The effect of a placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The group can start now.
    Placed,
    /// The group can start when its victims have left their cells.
    Preempting {
        /// Groups that must be preempted, by id.
        victims: Vec<GroupId>,
    },
}

/// Why a request was not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementError {
    /// The request can never be met.
    Refused(Refusal),
    /// The group must wait.
    Wait(WaitReason),
}
