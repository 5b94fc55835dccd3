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

use crate::group::{GUARANTEED_MAX, Group, GroupId, GroupState, OPPORTUNISTIC, Pod};
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::request::{
    Outcome, PlacementError, PlacementOptions, PodSet, Refusal, Request, Target, WaitReason,
};
use crate::state::{Cells, NONE};
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

impl TentativePlacement<'_> {
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
        self.cells.emptied_slots.clear();
        self.cells.trim_undo_log();
        self.group
    }
}

impl Drop for TentativePlacement<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            self.cells.rollback(self.start);
        }
    }
}

impl Cells {
    /// Finds a place for a whole group. Nothing is changed unless the placement is committed.
    ///
    /// # Errors
    /// Why there is no place.
    pub fn try_place(
        &mut self,
        request: &Request,
        options: &PlacementOptions<'_>,
    ) -> Result<TentativePlacement<'_>, PlacementError> {
        self.validate(request).map_err(PlacementError::Refused)?;
        self.check_user_limit(request).map_err(PlacementError::Wait)?;
        let start = self.log_position();
        let mut placer = Placer {
            cells: self,
            request,
            options,
        };
        match placer.place() {
            Ok((group, outcome)) => Ok(TentativePlacement {
                cells: self,
                start,
                group,
                outcome,
                is_committed: false,
            }),
            Err(wait) => {
                self.rollback(start);
                Err(PlacementError::Wait(wait))
            }
        }
    }

    fn validate(&self, request: &Request) -> Result<(), Refusal> {
        if !(OPPORTUNISTIC..=GUARANTEED_MAX).contains(&request.priority) {
            return Err(Refusal::Priority {
                found: request.priority,
            });
        }
        let is_empty = |set: &PodSet| set.pods.is_empty() || set.pods.contains(&0);
        if request.pod_sets.is_empty() || request.pod_sets.iter().any(is_empty) {
            return Err(Refusal::Empty);
        }
        let vc = &self.layout.vcs[request.vc.index()];
        for set in &request.pod_sets {
            match set.target {
                Target::Pinned(_) if request.priority < 0 => return Err(Refusal::PinnedOpportunistic),
                Target::Pinned(view) if !vc.pinned.values().any(|v| *v == view) => {
                    return Err(Refusal::PinnedOfOthers);
                }
                Target::Leaf(leaf) if request.priority >= 0 => {
                    let chains = &self.layout.chains_of[leaf.index()];
                    if !chains.iter().any(|c| vc.views.contains_key(c)) {
                        let mut owned: Vec<&str> = vc.views.keys().map(|c| self.leaf_name(*c)).collect();
                        owned.dedup();
                        return Err(Refusal::NotOwned {
                            vc: vc.name.clone(),
                            leaf: self.layout.leaf_types[leaf.index()].clone(),
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

    fn leaf_name(&self, chain: ChainId) -> &str {
        &self.layout.leaf_types[self.layout.chain(chain).leaf_type.index()]
    }

    /// Returns the groups that occupy the leaves of these pods.
    fn occupants_of(&self, pods: &[PlacedPod]) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for pod in pods {
            let occupant = &self.chains[pod.chain.index()].occupant;
            let on_leaves = pod.leaves.iter().map(|leaf| occupant[*leaf as usize]);
            groups.extend(on_leaves.filter(|o| *o != NONE).map(GroupId));
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// Places one request.
struct Placer<'a> {
    cells: &'a mut Cells,
    request: &'a Request,
    options: &'a PlacementOptions<'a>,
}

impl Placer<'_> {
    /// Adds the group and gives it leaves, or claims on leaves of its victims.
    fn place(&mut self) -> Result<(GroupId, Outcome), WaitReason> {
        let id = self.cells.add_group(self.request.new_group());
        let mut victims: Vec<GroupId> = Vec::new();
        let has_many_sets = self.request.pod_sets.len() > 1;
        for set in &self.request.pod_sets {
            let mut pods = if self.request.priority < 0 {
                self.place_opportunistic(set)?
            } else {
                self.place_guaranteed(id, set)?
            };
            pods.sort_unstable_by_key(|p| p.index);
            let occupants = self.cells.occupants_of(&pods);
            // With several sets, leaves are claimed until it is certain that no set has victims.
            let claim = has_many_sets || !occupants.is_empty();
            victims.extend(occupants);
            for pod in &pods {
                self.take_leaves(id, pod, claim);
            }
            for pod in pods {
                self.cells.add_pod(
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
        let pods = &self.cells.group_at(id.0).pods;
        let mut chains: SmallVec<[ChainId; 2]> = pods.iter().map(|p| p.chain).collect();
        chains.dedup();
        for chain in chains {
            self.cells.update_doomed_slots(chain);
        }
        victims.sort_unstable();
        victims.dedup();
        if victims.is_empty() {
            if has_many_sets {
                self.cells.convert_claims(id);
            }
            return Ok((id, Outcome::Placed));
        }
        self.cells.set_group_state(id, GroupState::Preempting, None);
        for victim in &victims {
            let downgraded = self.cells.group_at(victim.0).downgraded;
            self.cells
                .set_group_state(*victim, GroupState::BeingPreempted, downgraded);
        }
        Ok((id, Outcome::Preempting { victims }))
    }

    /// Makes a group the occupant of leaves, or only their claimant.
    fn take_leaves(&mut self, id: GroupId, pod: &PlacedPod, claim: bool) {
        let occupant = &self.cells.chains[pod.chain.index()].occupant;
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
        self.cells.write_leaves(pod.chain, &writes);
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
