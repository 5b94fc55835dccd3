//! Why a group waits: what its virtual cluster owns and has left, who holds it, and what would let it start.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::group::GroupId;
use crate::layout::{ChainId, Level, MachineId, VcId};
use crate::request::{Denied, Outcome, Request, Terms, Wait};
use crate::state::{Cells, NONE};

/// Groups that are tried out before an explanation gives up.
const TRIED: usize = 512;

/// Why a group waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What stands in its way first.
    pub wait: Wait,
    /// What its virtual cluster owns where the group may go, by chain and level.
    pub levels: Vec<LevelReport>,
    /// Who holds leaves there, most first.
    pub holders: Vec<Holder>,
    /// What would let it start.
    pub remedy: Remedy,
}

/// Cells of one level a virtual cluster owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The chain.
    pub chain: ChainId,
    /// The level.
    pub level: Level,
    /// Cells it owns.
    pub owned: u32,
    /// Of those, without anything in them.
    pub free: u32,
    /// Of those it owns, bound to a cell with a bad machine.
    pub bad: u32,
    /// Of those it owns, doomed: there are not enough healthy cells.
    pub doomed: u32,
    /// Cells of this level in the whole cluster that can be had.
    pub left_in_cluster: u32,
    /// Of those, with bad machines.
    pub bad_in_cluster: u32,
}

/// A group that holds leaves where another one would like to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The group.
    pub group: GroupId,
    /// What its caller calls it.
    pub key: u64,
    /// The priority it has now.
    pub priority: i16,
    /// Leaves it holds there.
    pub leaves: u32,
}

/// What would let a group start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Remedy {
    /// The end of these groups.
    Ends(Vec<GroupId>),
    /// The repair of these machines.
    Repairs(Vec<MachineId>),
    /// More cells: it asks for more leaves than the virtual cluster owns of the kind.
    MoreCells {
        /// Leaves asked for.
        asked: u32,
        /// Leaves owned.
        owned: u32,
    },
    /// Smaller pods or larger cells: no cell of the virtual cluster can hold its largest pod.
    SmallerPods {
        /// Leaves of the largest pod.
        asked: u32,
        /// Leaves of the largest bin.
        largest: u32,
    },
    /// A higher limit for its user, or the end of some of the user's groups.
    HigherLimit,
    /// Other machines than those it may use, or a combination of changes that was not found.
    Unknown,
}

impl Cells {
    /// Why a group waits; nothing if it does not, or can never start as it is.
    pub fn explain(&self, request: &Request, terms: &Terms<'_>) -> Option<Explanation> {
        let mut trial = self.clone();
        let wait = match trial.attempt(request, terms) {
            Err(Denied::Waits(wait)) => wait,
            Ok(_) | Err(Denied::Refused(_)) => return None,
        };
        let holders = self.holders(request);
        let remedy = self.remedy(request, terms, &wait, &holders);
        Some(Explanation {
            wait,
            levels: self.levels(request),
            holders,
            remedy,
        })
    }

    /// What a virtual cluster owns where a request may go, by chain and level.
    fn levels(&self, request: &Request) -> Vec<LevelReport> {
        let mut reports: BTreeMap<(ChainId, Level), LevelReport> = BTreeMap::new();
        for part in &request.parts {
            for view in self.views_for(request.vc, part.target) {
                for slot in &self.layout.views[view.index()].slots {
                    let spec = &self.layout.slots[slot.index()];
                    let state = &self.slots[slot.index()];
                    let (chain, level) = (spec.chain, spec.level);
                    let report = reports.entry((chain, level)).or_insert_with(|| LevelReport {
                        chain,
                        level,
                        owned: 0,
                        free: 0,
                        bad: 0,
                        doomed: 0,
                        left_in_cluster: self.total_left(chain, level),
                        bad_in_cluster: self.chains[chain.index()].levels[level].bad_free,
                    });
                    report.owned += 1;
                    report.free += u32::from(state.used == 0);
                    report.doomed += u32::from(state.doomed);
                    report.bad += u32::from(state.cell != NONE && self.is_bad(chain, level, state.cell));
                }
            }
        }
        reports.into_values().collect()
    }

    fn holders(&self, request: &Request) -> Vec<Holder> {
        let borrower = request.priority < 0;
        let chains: Vec<ChainId> = request
            .parts
            .iter()
            .flat_map(|p| self.chains_for(p.target))
            .collect();
        let views: Vec<_> = request
            .parts
            .iter()
            .flat_map(|p| self.views_for(request.vc, p.target))
            .collect();
        let mut holders: Vec<Holder> = Vec::new();
        for (group, g) in self.groups() {
            let counts = |p: &&crate::group::Pod| {
                if borrower {
                    chains.contains(&p.chain)
                } else {
                    g.effective() >= 0 && p.home.is_some_and(|(view, _)| views.contains(&view))
                }
            };
            let leaves = g.pods.iter().filter(counts).map(|p| p.leaves.len() as u32).sum();
            if leaves > 0 {
                holders.push(Holder {
                    group,
                    key: g.key,
                    priority: g.effective(),
                    leaves,
                });
            }
        }
        holders.sort_by_key(|h| (std::cmp::Reverse(h.leaves), h.group));
        holders
    }

    fn remedy(&self, request: &Request, terms: &Terms<'_>, wait: &Wait, holders: &[Holder]) -> Remedy {
        if matches!(wait, Wait::UserLimit { .. }) {
            return Remedy::HigherLimit;
        }
        if let Some(remedy) = self.too_much(request) {
            return remedy;
        }
        let bad: Vec<MachineId> = (0..self.layout.machines.len() as u32)
            .map(MachineId)
            .filter(|m| !self.is_healthy(*m))
            .take(TRIED)
            .collect();
        let healed = |machines: &[MachineId]| {
            let mut trial = self.clone();
            machines.iter().for_each(|m| trial.set_health(*m, true));
            trial.starts(request, terms)
        };
        if !bad.is_empty() && healed(&bad) {
            return Remedy::Repairs(fewest(bad, healed));
        }
        // Lowest priorities first, and of those the smallest.
        let mut order = holders.to_vec();
        order.sort_by_key(|h| (h.priority, h.leaves, h.group));
        order.truncate(TRIED);
        let mut trial = self.clone();
        for (at, holder) in order.iter().enumerate() {
            trial.release(holder.group);
            if trial.starts(request, terms) {
                let groups: Vec<GroupId> = order[..=at].iter().map(|h| h.group).collect();
                let ended = |groups: &[GroupId]| {
                    let mut trial = self.clone();
                    groups.iter().for_each(|g| trial.release(*g));
                    trial.starts(request, terms)
                };
                return Remedy::Ends(fewest(groups, ended));
            }
        }
        Remedy::Unknown
    }

    fn starts(&mut self, request: &Request, terms: &Terms<'_>) -> bool {
        self.attempt(request, terms)
            .is_ok_and(|attempt| *attempt.outcome() == Outcome::Placed)
    }

    /// Whether a request is too large for what there is, even empty.
    fn too_much(&self, request: &Request) -> Option<Remedy> {
        for part in &request.parts {
            let asked: u32 = part.pods.iter().sum();
            let widest = part.pods.iter().copied().max().unwrap_or(0);
            let (mut owned, mut largest) = (0, 0);
            if request.priority < 0 {
                for chain in self.chains_for(part.target) {
                    let layout = self.layout.chain(chain);
                    owned += layout.cells[0];
                    largest = largest.max(layout.node_leaves());
                }
            } else {
                for view in self.views_for(request.vc, part.target) {
                    for slot in &self.layout.views[view.index()].slots {
                        let spec = &self.layout.slots[slot.index()];
                        let layout = self.layout.chain(spec.chain);
                        owned += layout.leaves[spec.level];
                        largest = largest.max(layout.leaves[spec.level.min(layout.node_level)]);
                    }
                }
            }
            if widest > largest {
                return Some(Remedy::SmallerPods {
                    asked: widest,
                    largest,
                });
            }
            if asked > owned {
                return Some(Remedy::MoreCells { asked, owned });
            }
        }
        None
    }

    /// Leaves of a virtual cluster that guaranteed groups hold, and all it owns.
    pub fn usage(&self, vc: VcId) -> (u32, u32) {
        let slots = &self.layout.vcs[vc.index()].slots;
        let used = slots.iter().map(|s| self.slots[s.index()].used).sum();
        (used, self.layout.leaves_of(vc))
    }
}

/// Leaves out everything that is not needed, the first first.
fn fewest<T: Copy>(all: Vec<T>, enough: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut kept = all;
    let mut at = 0;
    while at < kept.len() && kept.len() > 1 {
        let mut without = kept.clone();
        without.remove(at);
        if enough(&without) {
            kept = without;
        } else {
            at += 1;
        }
    }
    kept
}
