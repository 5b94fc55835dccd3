//! Groups that use what their virtual cluster owns.

use super::fit::Sized;
use super::{Picked, Use};
use crate::group::{Downgrade, GroupId, GroupState};
use crate::layout::{ChainId, VcId, ViewId};
use crate::request::{Part, Request, Target, Terms, Wait};
use crate::state::{Cells, Mark};

/// How often a plan is made anew after somebody was downgraded or a claim was given up.
const ROUNDS: usize = 64;

impl Cells {
    pub(crate) fn place_guaranteed(
        &mut self,
        id: GroupId,
        request: &Request,
        part: &Part,
        terms: &Terms<'_>,
    ) -> Result<Vec<Picked>, Wait> {
        let views = self.views_for(request.vc, part.target);
        let pods = ascending(&part.pods);
        let mark = Mark(self.log.len());
        // With a choice of chains, one where nobody is disturbed is better than one where somebody is.
        if views.len() > 1 {
            for view in &views {
                if let Some(uses) = self.fit(*view, &pods, terms)
                    && let Ok(picked) = self.realise(&uses, &part.pods, &[], terms)
                    && self.users_of(&picked).is_empty()
                {
                    return Ok(picked);
                }
                self.rollback(mark);
            }
        }
        let mut wait = None;
        for view in &views {
            match self.place_in(id, *view, request, part, &pods, terms) {
                Ok(picked) => return Ok(picked),
                Err(reason) => {
                    self.rollback(mark);
                    // The last chain tells, unless an earlier one was closer.
                    if !matches!(wait, Some(Wait::NoHealthyCell { .. })) {
                        wait = Some(reason);
                    }
                }
            }
        }
        if request.several_chains && views.len() > 1 {
            let picked = self.spread(&views, part, &pods, terms);
            match picked {
                Some(picked) => return Ok(picked),
                None => self.rollback(mark),
            }
        }
        Err(wait.unwrap_or(Wait::NoRoom {
            borrower: false,
            asked: part.pods.iter().sum(),
            available: 0,
            unusable: 0,
        }))
    }

    /// The parts of a virtual cluster a target may use, in the order they are tried.
    pub(crate) fn views_for(&self, vc: VcId, target: Target) -> Vec<ViewId> {
        let vc = &self.layout.vcs[vc.index()];
        match target {
            Target::Pinned(view) => vec![view],
            Target::Leaf(_) | Target::Any => {
                let chains = self.chains_for(target);
                chains.iter().filter_map(|c| vc.views.get(c).copied()).collect()
            }
        }
    }

    /// The chains a target may use, in the order they are tried.
    pub(crate) fn chains_for(&self, target: Target) -> Vec<ChainId> {
        match target {
            Target::Leaf(leaf) => self.layout.chains_of[leaf.index()].clone(),
            Target::Any => self.layout.chains_of.iter().flatten().copied().collect(),
            Target::Pinned(view) => vec![self.layout.views[view.index()].chain],
        }
    }

    /// A place in one chain: as it is, or with lower priorities giving way.
    fn place_in(
        &mut self,
        id: GroupId,
        view: ViewId,
        request: &Request,
        part: &Part,
        pods: &[Sized],
        terms: &Terms<'_>,
    ) -> Result<Vec<Picked>, Wait> {
        for _ in 0..ROUNDS {
            if let Some(uses) = self.fit(view, pods, terms) {
                return self.realise(&uses, &part.pods, &[], terms);
            }
            let Some((uses, victims)) = self.evict(id, view, pods, request.priority, terms) else {
                return Err(self.no_room(view, request.priority, part, terms));
            };
            if !self.make_way(request.key, &victims) {
                return self.realise(&uses, &part.pods, &victims, terms);
            }
        }
        Err(self.no_room(view, request.priority, part, terms))
    }

    /// Downgrades those who may be, and cancels claims. True if anything changed, so that the plan has to be made anew.
    fn make_way(&mut self, key: u64, victims: &[u32]) -> bool {
        let mut changed = false;
        for victim in victims {
            let group = self.group_at(*victim);
            if group.state == GroupState::Preempting {
                self.drop_claims(GroupId(*victim));
                changed = true;
            } else if group.lazy && group.state == GroupState::Allocated {
                self.downgrade(GroupId(*victim), Downgrade { by: key });
                changed = true;
            }
        }
        changed
    }

    /// Spreads pods over several chains.
    fn spread(
        &mut self,
        views: &[ViewId],
        part: &Part,
        pods: &[Sized],
        terms: &Terms<'_>,
    ) -> Option<Vec<Picked>> {
        let mut left = pods.to_vec();
        let mut all: Vec<Use> = Vec::new();
        for view in views {
            if left.is_empty() {
                break;
            }
            let uses = self.sweep(*view, &left, terms);
            left.retain(|(_, pod)| !uses.iter().any(|u| u.pods.contains(pod)));
            all.extend(uses);
        }
        if !left.is_empty() {
            return None;
        }
        let picked = self.realise(&all, &part.pods, &[], terms).ok()?;
        Some(picked)
    }

    fn no_room(&self, view: ViewId, priority: i16, part: &Part, terms: &Terms<'_>) -> Wait {
        let spec = &self.layout.views[view.index()];
        let state = &self.views[view.index()];
        let lower: u32 = state.used_at.range(..priority).map(|(_, n)| *n).sum();
        let available = spec.leaves - state.used_at.values().sum::<u32>() + lower;
        let mut unusable = 0;
        if self.chains[spec.chain.index()].bad_nodes > 0 || terms.machines.is_some() {
            for slot in &spec.slots {
                unusable += self.unusable_in(*slot, terms);
            }
        }
        Wait::NoRoom {
            borrower: false,
            asked: part.pods.iter().sum(),
            available,
            unusable,
        }
    }
}

/// Sizes with their numbers, smallest first.
pub(crate) fn ascending(sizes: &[u32]) -> Vec<Sized> {
    let mut pods: Vec<Sized> = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| (*size, at as u32))
        .collect();
    if !pods.is_sorted() {
        pods.sort_unstable();
    }
    pods
}
