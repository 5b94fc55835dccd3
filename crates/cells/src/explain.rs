//! Explains why a group waits: what its virtual cluster owns and has left, which groups hold it, and what would help.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::NONE;
use crate::cells::Cells;
use crate::group::{GroupId, Pod};
use crate::layout::{ChainId, Level, MachineId, ViewId};
use crate::request::{Outcome, PlacementError, PlacementOptions, Request, WaitReason};

/// Most groups or machines that the search for a remedy tries.
const MAX_TRIED: usize = 512;

/// Why a group waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The first obstacle.
    pub wait: WaitReason,
    /// Cells that its virtual cluster owns where the group may run, by chain and level.
    pub levels: Vec<LevelReport>,
    /// Groups that hold leaves there, largest first.
    pub holders: Vec<Holder>,
    /// A change that would let it start.
    pub remedy: Remedy,
}

/// Cells of one level that a virtual cluster owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The chain.
    pub chain: ChainId,
    /// The level.
    pub level: Level,
    /// Cells it owns.
    pub owned: u32,
    /// Owned cells without guaranteed leaves.
    pub free: u32,
    /// Owned cells that are bound to a cell with a bad machine.
    pub bad: u32,
    /// Owned cells that are doomed, because there are not enough healthy cells.
    pub doomed: u32,
    /// Cells of this level that are left in the whole cluster.
    pub left_in_cluster: u32,
    /// Cells left in the cluster that have bad machines.
    pub bad_in_cluster: u32,
}

/// A group that holds leaves where another group waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The group.
    pub group: GroupId,
    /// The caller's key of the group.
    pub key: u64,
    /// Its current priority.
    pub priority: i16,
    /// Leaves it holds there.
    pub leaves: u32,
}

/// A change that would let a group start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Remedy {
    /// The end of these groups.
    Ends(Vec<GroupId>),
    /// The repair of these machines.
    Repairs(Vec<MachineId>),
    /// More cells: the request exceeds the leaves of this type that the virtual cluster owns.
    MoreCells {
        /// Leaves requested.
        asked: u32,
        /// Leaves owned.
        owned: u32,
    },
    /// Smaller pods or larger cells: the largest pod exceeds every cell of the virtual cluster.
    SmallerPods {
        /// Leaves of the largest pod.
        asked: u32,
        /// Leaves of the largest cell on one machine.
        largest: u32,
    },
    /// A higher limit for its user, or the end of some of the user's groups.
    HigherLimit,
    /// Other machines than those it may use, or a combination of changes that was not found.
    Unknown,
}

/// The search for the reason why one group waits.
pub(crate) struct Explainer<'a> {
    pub(crate) cells: &'a Cells,
    pub(crate) request: &'a Request,
    pub(crate) options: &'a PlacementOptions<'a>,
}

impl Explainer<'_> {
    /// Explains why the group waits. Returns `None` if it can start, or if the request can never be met.
    pub(crate) fn explain(&self) -> Option<Explanation> {
        let wait = match self.cells.clone().try_place(self.request, self.options) {
            Err(PlacementError::Wait(wait)) => wait,
            Ok(_) | Err(PlacementError::Refused(_)) => return None,
        };
        let holders = self.holders();
        Some(Explanation {
            remedy: self.remedy(&wait, &holders),
            levels: self.levels(),
            holders,
            wait,
        })
    }

    /// Returns the views in which the group may be placed.
    fn views(&self) -> Vec<ViewId> {
        let layout = self.cells.layout();
        let sets = self.request.pod_sets.iter();
        sets.flat_map(|set| layout.views_for(self.request.vc, set.target))
            .collect()
    }

    fn levels(&self) -> Vec<LevelReport> {
        let cells = &self.cells.ledger.occupancy;
        let mut reports: BTreeMap<(ChainId, Level), LevelReport> = BTreeMap::new();
        for view in self.views() {
            for slot in &cells.layout.views[view.index()].slots {
                let spec = &cells.layout.slots[slot.index()];
                let state = &cells.slots[slot.index()];
                let (chain, level) = (spec.chain, spec.level);
                let buddy = &cells.chains[chain.index()].buddy;
                let report = reports.entry((chain, level)).or_insert_with(|| LevelReport {
                    chain,
                    level,
                    owned: 0,
                    free: 0,
                    bad: 0,
                    doomed: 0,
                    left_in_cluster: buddy.cells_left(cells.layout.chain(chain), level),
                    bad_in_cluster: buddy.levels[level].bad_free,
                });
                report.owned += 1;
                report.free += u32::from(state.used == 0);
                report.doomed += u32::from(state.doomed);
                report.bad += u32::from(state.cell != NONE && cells.is_bad(chain, level, state.cell));
            }
        }
        reports.into_values().collect()
    }

    fn holders(&self) -> Vec<Holder> {
        let is_borrower = self.request.priority < 0;
        let sets = self.request.pod_sets.iter();
        let chains: Vec<ChainId> = sets
            .flat_map(|set| self.cells.layout().chains_for(set.target))
            .collect();
        let views = self.views();
        let mut holders: Vec<Holder> = Vec::new();
        for (id, group) in self.cells.groups() {
            let is_in_the_way = |pod: &&Pod| {
                if is_borrower {
                    chains.contains(&pod.chain)
                } else {
                    group.effective_priority() >= 0 && pod.home.is_some_and(|(view, _)| views.contains(&view))
                }
            };
            let pods = group.pods.iter().filter(is_in_the_way);
            let leaves = pods.map(|p| p.leaves.len() as u32).sum();
            if leaves > 0 {
                holders.push(Holder {
                    group: id,
                    key: group.key,
                    priority: group.effective_priority(),
                    leaves,
                });
            }
        }
        holders.sort_by_key(|h| (Reverse(h.leaves), h.group));
        holders
    }

    fn remedy(&self, wait: &WaitReason, holders: &[Holder]) -> Remedy {
        if matches!(wait, WaitReason::UserLimit { .. }) {
            return Remedy::HigherLimit;
        }
        self.remedy_for_size()
            .or_else(|| self.repairs().map(Remedy::Repairs))
            .or_else(|| self.ends(holders))
            .unwrap_or(Remedy::Unknown)
    }

    /// Finds a smallest set of bad machines whose repair lets the group start.
    pub(crate) fn repairs(&self) -> Option<Vec<MachineId>> {
        let bad: Vec<MachineId> = (0..self.cells.layout().machines.len() as u32)
            .map(MachineId)
            .filter(|m| !self.cells.is_healthy(*m))
            .take(MAX_TRIED)
            .collect();
        let starts_after_repair = |machines: &[MachineId]| {
            let mut trial = self.cells.clone();
            machines.iter().for_each(|m| trial.set_health(*m, true));
            self.starts_in(&mut trial)
        };
        (!bad.is_empty() && starts_after_repair(&bad)).then(|| minimize(bad, starts_after_repair))
    }

    /// Finds groups whose end lets the group start: lowest priorities first, and of those the smallest.
    fn ends(&self, holders: &[Holder]) -> Option<Remedy> {
        let mut order = holders.to_vec();
        order.sort_by_key(|h| (h.priority, h.leaves, h.group));
        order.truncate(MAX_TRIED);
        let mut trial = self.cells.clone();
        let enough = order.iter().position(|holder| {
            trial.release(holder.group);
            self.starts_in(&mut trial)
        })?;
        let groups: Vec<GroupId> = order[..=enough].iter().map(|h| h.group).collect();
        let starts_without = |groups: &[GroupId]| {
            let mut trial = self.cells.clone();
            groups.iter().for_each(|g| trial.release(*g));
            self.starts_in(&mut trial)
        };
        Some(Remedy::Ends(minimize(groups, starts_without)))
    }

    fn starts_in(&self, cells: &mut Cells) -> bool {
        cells
            .try_place(self.request, self.options)
            .is_ok_and(|placement| *placement.outcome() == Outcome::Placed)
    }

    /// Finds out whether the request is too large even for empty cells.
    fn remedy_for_size(&self) -> Option<Remedy> {
        let layout = self.cells.layout();
        for set in &self.request.pod_sets {
            let asked: u32 = set.pods.iter().sum();
            let largest_pod = set.pods.iter().copied().max().unwrap_or(0);
            let (mut owned, mut largest) = (0, 0);
            if self.request.priority < 0 {
                for chain in layout.chains_for(set.target) {
                    let chain = layout.chain(chain);
                    owned += chain.cells[0];
                    largest = largest.max(chain.node_leaves());
                }
            } else {
                for view in layout.views_for(self.request.vc, set.target) {
                    for slot in &layout.views[view.index()].slots {
                        let spec = &layout.slots[slot.index()];
                        let chain = layout.chain(spec.chain);
                        owned += chain.leaves[spec.level];
                        largest = largest.max(chain.leaves[spec.level.min(chain.node_level)]);
                    }
                }
            }
            if largest_pod > largest {
                return Some(Remedy::SmallerPods {
                    asked: largest_pod,
                    largest,
                });
            }
            if asked > owned {
                return Some(Remedy::MoreCells { asked, owned });
            }
        }
        None
    }
}

/// Removes items, the first one first, as long as the rest is enough.
fn minimize<T: Copy>(mut items: Vec<T>, is_enough: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut at = 0;
    while at < items.len() && items.len() > 1 {
        let mut rest = items.clone();
        rest.remove(at);
        if is_enough(&rest) {
            items = rest;
        } else {
            at += 1;
        }
    }
    items
}
