//! Places a group: one transaction that is committed or rolled back.

mod bind;
mod cell_search;
mod evict;
mod fit;
mod guaranteed;
mod opportunistic;
mod pack;
mod pick_leaves;

use smallvec::SmallVec;

use self::guaranteed::GuaranteedPlacer;
use self::opportunistic::OpportunisticPlacer;
use crate::NONE;
use crate::cells::Cells;
use crate::group::{Group, GroupId, GroupState, Pod};
use crate::health::DoomedSlots;
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::ledger::Ledger;
use crate::lifecycle::GroupLifecycle;
use crate::request::{Outcome, PlacementOptions, PodSet, Request, WaitReason};
use crate::undo::Savepoint;

/// A pod as (size, index in its pod set).
type SizedPod = (u32, u32);

/// Room for pods: a machine, or a cell below one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bin {
    /// This cell, bound and partly used.
    Cell(Level, u32),
    /// Some idle machine in a bound slot.
    Idle(SlotId),
    /// Some machine in a slot that is not bound yet, or the slot itself if it is smaller than a machine.
    Fresh(SlotId),
}

/// Pods assigned to one bin, as indices into the pod set.
#[derive(Debug, Clone)]
struct BinAssignment {
    view: ViewId,
    chain: ChainId,
    bin: Bin,
    pods: SmallVec<[u32; 8]>,
}

/// A pod with its leaves.
#[derive(Debug, Clone)]
struct PlacedPod {
    /// Index in the pod set.
    index: u32,
    chain: ChainId,
    home: Option<(ViewId, Level)>,
    leaves: SmallVec<[u32; 8]>,
}

/// A placement that is not yet committed. Dropping it rolls it back.
#[derive(Debug)]
pub struct TentativePlacement<'a> {
    cells: &'a mut Cells,
    start: Savepoint,
    group: GroupId,
    outcome: Outcome,
    is_committed: bool,
}

impl<'a> TentativePlacement<'a> {
    pub(crate) fn new(cells: &'a mut Cells, start: Savepoint, group: GroupId, outcome: Outcome) -> Self {
        Self {
            cells,
            start,
            group,
            outcome,
            is_committed: false,
        }
    }

    /// Returns the effect of the placement.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the cells with the placement.
    pub fn cells(&self) -> &Cells {
        self.cells
    }

    /// Returns the placed group.
    pub fn group(&self) -> &Group {
        self.cells.group(self.group).expect("the placement added it")
    }

    /// Keeps the placement: the group holds its cells, or claims them until its victims are gone.
    pub fn commit(mut self) -> GroupId {
        self.is_committed = true;
        self.cells.ledger.occupancy.emptied_slots.clear();
        self.cells.ledger.log.trim();
        self.group
    }
}

impl Drop for TentativePlacement<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            self.cells.ledger.rollback(self.start);
        }
    }
}

/// Places one request.
pub(crate) struct Placer<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) request: &'a Request,
    pub(crate) options: &'a PlacementOptions<'a>,
}

impl Placer<'_> {
    /// Adds the group and gives it leaves, or claims on leaves of its victims.
    pub(crate) fn place(&mut self) -> Result<(GroupId, Outcome), WaitReason> {
        let id = self.ledger.add_group(self.request.new_group());
        let mut victims: Vec<GroupId> = Vec::new();
        let has_many_sets = self.request.pod_sets.len() > 1;
        for set in &self.request.pod_sets {
            let mut pods = self.find_leaves(id, set)?;
            pods.sort_unstable_by_key(|p| p.index);
            let leaves = pods.iter().map(|p| (p.chain, p.leaves.as_slice()));
            let occupants = self.ledger.occupants(leaves);
            // With several sets, leaves are claimed until it is certain that no set has victims.
            let claim = has_many_sets || !occupants.is_empty();
            victims.extend(occupants);
            for pod in &pods {
                self.take_leaves(id, pod, claim);
            }
            for pod in pods {
                self.ledger.add_pod(
                    id,
                    Pod {
                        size: set.pods[pod.index as usize],
                        chain: pod.chain,
                        leaves: pod.leaves,
                        home: pod.home,
                    },
                );
            }
        }
        let pods = &self.ledger.groups.at(id.0).pods;
        let mut chains: SmallVec<[ChainId; 2]> = pods.iter().map(|p| p.chain).collect();
        chains.dedup();
        for chain in chains {
            let ledger = &mut *self.ledger;
            DoomedSlots { ledger, chain }.update();
        }
        victims.sort_unstable();
        victims.dedup();
        if victims.is_empty() {
            if has_many_sets {
                let ledger = &mut *self.ledger;
                GroupLifecycle { ledger, id }.convert_claims();
            }
            return Ok((id, Outcome::Placed));
        }
        self.ledger.set_group_state(id, GroupState::Preempting, None);
        for victim in &victims {
            let downgraded = self.ledger.groups.at(victim.0).downgraded;
            self.ledger
                .set_group_state(*victim, GroupState::BeingPreempted, downgraded);
        }
        Ok((id, Outcome::Preempting { victims }))
    }

    /// Finds leaves for the pods of one set, and binds the slots that they need.
    fn find_leaves(&mut self, id: GroupId, set: &PodSet) -> Result<Vec<PlacedPod>, WaitReason> {
        if self.request.priority < 0 {
            let placer = OpportunisticPlacer {
                cells: &self.ledger.occupancy,
                set,
                may_span_chains: self.request.may_span_chains,
                options: self.options,
            };
            return placer.place();
        }
        let mut placer = GuaranteedPlacer {
            ledger: self.ledger,
            group: id,
            request: self.request,
            set,
            options: self.options,
        };
        placer.place()
    }

    /// Makes a group the occupant of leaves, or only their claimant.
    fn take_leaves(&mut self, id: GroupId, pod: &PlacedPod, claim: bool) {
        let occupant = &self.ledger.occupancy.chains[pod.chain.index()].occupant;
        let writes: SmallVec<[_; 8]> = pod
            .leaves
            .iter()
            .map(|leaf| {
                if claim {
                    (*leaf, occupant[*leaf as usize], id.0)
                } else {
                    (*leaf, id.0, NONE)
                }
            })
            .collect();
        self.ledger.write_leaves(pod.chain, &writes);
    }
}

/// Returns pods with their indices, smallest first.
fn ascending(sizes: &[u32]) -> Vec<SizedPod> {
    let mut pods: Vec<SizedPod> = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| (*size, at as u32))
        .collect();
    if !pods.is_sorted() {
        pods.sort_unstable();
    }
    pods
}
