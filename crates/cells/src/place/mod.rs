//! Deciding where a group goes: one transaction, kept or undone.

mod evict;
mod fit;
mod guaranteed;
mod leaves;
mod map;
mod pack;
mod roaming;

use smallvec::SmallVec;

use crate::group::{GUARANTEED_MAX, Group, GroupId, GroupState, OPPORTUNISTIC, Pod};
use crate::layout::{ChainId, Level, SlotId, ViewId};
use crate::request::{Denied, Outcome, Part, Refusal, Request, Target, Terms, Wait};
use crate::state::{Cells, Mark, NONE};

/// Where pods can go: a machine, or a cell below one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bin {
    /// This cell, bound and partly used.
    Cell(Level, u32),
    /// Some idle machine in a bound slot.
    Idle(SlotId),
    /// Some machine in a slot that is not bound yet, or the slot itself if it is smaller than a machine.
    Fresh(SlotId),
}

/// Pods that go into one bin, as numbers into the sizes of the part.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) view: Option<ViewId>,
    pub(crate) chain: ChainId,
    pub(crate) bin: Bin,
    pub(crate) pods: SmallVec<[u32; 8]>,
}

/// A pod with its leaves.
#[derive(Debug, Clone)]
pub(crate) struct Picked {
    pub(crate) pod: u32,
    pub(crate) chain: ChainId,
    pub(crate) home: Option<(ViewId, Level)>,
    pub(crate) leaves: SmallVec<[u32; 8]>,
}

/// A decision that is not yet kept. Dropped, it leaves no trace.
#[derive(Debug)]
pub struct Attempt<'a> {
    cells: &'a mut Cells,
    mark: Mark,
    group: GroupId,
    outcome: Outcome,
    done: bool,
}

impl Attempt<'_> {
    /// What would happen.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The cells as they would be.
    pub fn cells(&self) -> &Cells {
        self.cells
    }

    /// The group as it would be.
    pub fn group(&self) -> &Group {
        self.cells.group(self.group).expect("the attempt made it")
    }

    /// Keeps it: the group has its cells, or claims them until its victims have gone.
    pub fn commit(mut self) -> GroupId {
        self.done = true;
        self.cells.loosened.clear();
        self.cells.settled();
        self.group
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.cells.rollback(self.mark);
        }
    }
}

impl Cells {
    /// Finds a place for a whole group. Nothing is changed unless the attempt is committed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn attempt(&mut self, request: &Request, terms: &Terms<'_>) -> Result<Attempt<'_>, Denied> {
        self.validate(request).map_err(Denied::Refused)?;
        self.within_limit(request).map_err(Denied::Waits)?;
        let mark = Mark(self.log.len());
        match self.place_all(request, terms) {
            Ok((group, outcome)) => Ok(Attempt {
                cells: self,
                mark,
                group,
                outcome,
                done: false,
            }),
            Err(denied) => {
                self.rollback(mark);
                Err(denied)
            }
        }
    }

    fn validate(&self, request: &Request) -> Result<(), Refusal> {
        if !(OPPORTUNISTIC..=GUARANTEED_MAX).contains(&request.priority) {
            return Err(Refusal::Priority {
                found: request.priority,
            });
        }
        let empty = |p: &Part| p.pods.is_empty() || p.pods.contains(&0);
        if request.parts.is_empty() || request.parts.iter().any(empty) {
            return Err(Refusal::Empty);
        }
        let vc = &self.layout.vcs[request.vc.index()];
        for part in &request.parts {
            match part.target {
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
                                "none that is not pinned".to_owned()
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

    /// Whether the user may hold that much more.
    ///
    /// # Errors
    /// What the user holds, and may hold.
    pub fn within_limit(&self, request: &Request) -> Result<(), Wait> {
        let Some(user) = request.user.filter(|_| request.priority >= 0) else {
            return Ok(());
        };
        let vc = &self.layout.vcs[request.vc.index()];
        let own = vc.user_limits.get(&self.user_names[user as usize]).copied();
        let Some(limit) = own.or(vc.leaves_per_user) else {
            return Ok(());
        };
        let held = self.by_user.get(&(request.vc.0, user)).copied().unwrap_or(0);
        let asked = request.leaves();
        if held + asked > limit {
            return Err(Wait::UserLimit { limit, held, asked });
        }
        Ok(())
    }

    fn place_all(&mut self, request: &Request, terms: &Terms<'_>) -> Result<(GroupId, Outcome), Denied> {
        let id = self.add_group(Group {
            key: request.key,
            vc: request.vc,
            user: request.user,
            priority: request.priority,
            lazy: request.lazy,
            state: GroupState::Allocated,
            downgraded: None,
            sequence: 0,
            pods: Vec::new(),
        });
        let mut victims: Vec<GroupId> = Vec::new();
        let several = request.parts.len() > 1;
        for part in &request.parts {
            let mut picked = self.place_part(id, request, part, terms).map_err(Denied::Waits)?;
            picked.sort_unstable_by_key(|p| p.pod);
            let found = self.users_of(&picked);
            let claim = several || !found.is_empty();
            victims.extend(found);
            for one in &picked {
                self.take(id, one, claim);
            }
            for one in picked {
                self.add_pod(
                    id,
                    Pod {
                        size: part.pods[one.pod as usize],
                        chain: one.chain,
                        leaves: one.leaves,
                        home: one.home,
                    },
                );
            }
        }
        let mut chains: SmallVec<[ChainId; 2]> = self.group_at(id.0).pods.iter().map(|p| p.chain).collect();
        chains.dedup();
        for chain in chains {
            self.settle(chain);
        }
        victims.sort_unstable();
        victims.dedup();
        if victims.is_empty() {
            if several {
                self.convert_claims(id);
            }
            return Ok((id, Outcome::Placed));
        }
        self.mark_group(id, GroupState::Preempting, None);
        for victim in &victims {
            let downgraded = self.group_at(victim.0).downgraded;
            self.mark_group(*victim, GroupState::BeingPreempted, downgraded);
        }
        Ok((id, Outcome::Preempting { victims }))
    }

    fn place_part(
        &mut self,
        id: GroupId,
        request: &Request,
        part: &Part,
        terms: &Terms<'_>,
    ) -> Result<Vec<Picked>, Wait> {
        if request.priority < 0 {
            self.place_roaming(request, part, terms)
        } else {
            self.place_guaranteed(id, request, part, terms)
        }
    }

    /// The groups that are on these leaves now.
    fn users_of(&self, picked: &[Picked]) -> Vec<GroupId> {
        let mut users = Vec::new();
        for one in picked {
            let using = &self.chains[one.chain.index()].using;
            let on = one.leaves.iter().map(|leaf| using[*leaf as usize]);
            users.extend(on.filter(|u| *u != NONE).map(GroupId));
        }
        users.sort_unstable();
        users.dedup();
        users
    }

    /// Gives leaves to a group: at once, or as a claim while others are on some of them.
    fn take(&mut self, id: GroupId, picked: &Picked, claim: bool) {
        let using = &self.chains[picked.chain.index()].using;
        let writes: SmallVec<[_; 8]> = picked
            .leaves
            .iter()
            .map(|leaf| {
                if claim {
                    (*leaf, using[*leaf as usize], id.0)
                } else {
                    (*leaf, id.0, NONE)
                }
            })
            .collect();
        self.write(picked.chain, &writes);
    }

    /// All claims of a group become its own; nobody is on those leaves any more.
    pub(crate) fn convert_claims(&mut self, id: GroupId) {
        let pods: Vec<(ChainId, SmallVec<[u32; 8]>)> = self
            .group_at(id.0)
            .pods
            .iter()
            .map(|p| (p.chain, p.leaves.clone()))
            .collect();
        for (chain, leaves) in pods {
            let writes: SmallVec<[_; 8]> = leaves.iter().map(|leaf| (*leaf, id.0, NONE)).collect();
            self.write(chain, &writes);
        }
    }

    /// Whether a machine may be used at all.
    pub(crate) fn allowed(&self, chain: ChainId, node: u32, terms: &Terms<'_>) -> bool {
        if self.chains[chain.index()].nodes[node as usize].bad {
            return false;
        }
        terms
            .machines
            .is_none_or(|set| set.contains(self.layout.chain(chain).machines[node as usize]))
    }

    /// What would be lost with a group.
    pub(crate) fn lost(&self, group: u32, terms: &Terms<'_>) -> u64 {
        terms
            .lost
            .map_or(0, |lost| lost(GroupId(group), self.group_at(group)))
    }
}
