//! Compares answers and states with HiveD's: exactly, or up to the choice among equal cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dovetail_cells::{Cells, ChainId, Group, GroupState, Layout, SlotId};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::place::GroupView;
use crate::scenario::{Step, StepResult, kind};
use crate::scheduler::GroupScheduler;

/// A difference between Dovetail and HiveD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The value that differs.
    pub what: String,
    /// HiveD's value.
    pub expected: String,
    /// Dovetail's value.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            expected,
            found,
        } = self;
        write!(f, "{what}: expected {expected}, found {found}")
    }
}

impl Mismatch {
    /// Returns `true` if both values are equal, which is an exact agreement.
    pub(crate) fn unless_equal<T: fmt::Debug + PartialEq>(
        what: &str,
        expected: &T,
        found: &T,
    ) -> Result<bool, Self> {
        if expected == found {
            return Ok(true);
        }
        Err(Self {
            what: what.to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        })
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> BTreeSet<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Compares the answers. Returns whether they agree exactly rather than up to the choice among equal cells.
pub(crate) fn compare_result(
    scheduler: &GroupScheduler,
    step: &Step,
    answer: &StepResult,
) -> Result<bool, Mismatch> {
    let fixed = std::slice::from_ref(&step.result);
    let candidates = if step.nondeterministic && !step.observed_results.is_empty() {
        step.observed_results.as_slice()
    } else {
        fixed
    };
    let mut first = None;
    for candidate in candidates {
        match compare_one(scheduler, candidate, answer) {
            Ok(exact) => return Ok(exact),
            Err(mismatch) => first = first.or(Some(mismatch)),
        }
    }
    // HiveD reports victims one machine at a time; all of them together are compared.
    if step.nondeterministic && step.result["victimsUnion"].is_array() {
        return compare_one(scheduler, &step.result, answer);
    }
    Err(first.unwrap_or_else(|| Mismatch {
        what: "result".to_owned(),
        expected: "one".to_owned(),
        found: "none".to_owned(),
    }))
}

fn compare_one(scheduler: &GroupScheduler, expected: &Value, answer: &StepResult) -> Result<bool, Mismatch> {
    Mismatch::unless_equal("result.kind", &text(expected, "kind").as_str(), &kind(answer))?;
    match answer {
        Some(Ok(Answer::Bind {
            node,
            leaves,
            chain,
            preassigned,
        })) => {
            Mismatch::unless_equal("result.cellChain", &text(expected, "cellChain"), chain)?;
            let types = texts(&expected["groupPreassignedCellTypes"]);
            Mismatch::unless_equal("result.groupPreassignedCellTypes", &types, preassigned)?;
            let theirs: Vec<i32> = integers(&expected["leafCells"]);
            Mismatch::unless_equal("number of result.leafCells", &theirs.len(), &leaves.len())?;
            let sorted = |v: &[i32]| v.iter().copied().collect::<BTreeSet<_>>();
            let exact = *node == text(expected, "node") && sorted(&theirs) == sorted(leaves);
            if !exact {
                let layout = scheduler.cells().layout();
                let level = |node: &str, leaves: &[i32]| common_level_at(layout, chain, node, leaves);
                let (theirs, ours) = (level(&text(expected, "node"), &theirs), level(node, leaves));
                Mismatch::unless_equal(
                    "level of the smallest common cell of result.leafCells",
                    &theirs,
                    &ours,
                )?;
            }
            Ok(exact)
        }
        Some(Ok(Answer::Preempt { victims })) => {
            let union = &expected["victimsUnion"];
            if union.is_array() {
                Mismatch::unless_equal("result.victimsUnion", &texts(union), victims)?;
            }
            let on_one_node = texts(&expected["victimsOnOneNode"]);
            if !on_one_node.is_subset(victims) {
                return Err(Mismatch {
                    what: "result.victimsOnOneNode".to_owned(),
                    expected: format!("{on_one_node:?}"),
                    found: format!("{victims:?}"),
                });
            }
            Ok(true)
        }
        Some(Ok(Answer::Wait { .. }) | Err(_)) | None => Ok(true),
    }
}

fn integers(value: &Value) -> Vec<i32> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_i64).map(|n| n as i32).collect()
}

/// Returns the level of the smallest cell around some leaves of a machine.
fn common_level_at(layout: &Layout, chain: &str, node: &str, leaves: &[i32]) -> Option<usize> {
    let chain = layout.chain_named(chain)?;
    let machine = layout.machine_named(node)?;
    let found: Option<Vec<u32>> = leaves
        .iter()
        .map(|l| layout.leaf_at(chain, machine, *l))
        .collect();
    common_level(layout, chain, &found?)
}

fn common_level(layout: &Layout, chain: ChainId, leaves: &[u32]) -> Option<usize> {
    let c = layout.chain(chain);
    (0..=c.top()).find(|level| {
        let cells: BTreeSet<u32> = leaves.iter().map(|l| l / c.leaves[*level]).collect();
        cells.len() == 1
    })
}

/// Compares the states after a step, as far as HiveD's did not vary.
pub(crate) fn compare_state(scheduler: &GroupScheduler, step: &Step) -> Result<bool, Mismatch> {
    let state = &step.state;
    let mut is_exact = true;
    if let Some(groups) = state["groups"].as_object() {
        let is_partial = step.state_nondeterministic.as_bool() == Some(true);
        is_exact &= compare_groups(scheduler, groups, is_partial)?;
    }
    let cells = scheduler.cells();
    let empty = Map::new();
    for (vc, bad) in state["vcBadPreassignedCells"].as_object().unwrap_or(&empty) {
        is_exact &= compare_bad_slots(cells, vc, &texts(bad))?;
    }
    for (chain, levels) in state["freeCells"].as_object().unwrap_or(&empty) {
        is_exact &= compare_free_cells(cells, chain, levels.as_object().unwrap_or(&empty))?;
    }
    Ok(is_exact)
}

fn compare_bad_slots(cells: &Cells, vc: &str, theirs: &BTreeSet<String>) -> Result<bool, Mismatch> {
    let ours = bad_slots(cells, vc);
    let by_chain = |names: &BTreeSet<String>| {
        let chains = names
            .iter()
            .map(|n| n.split_once(' ').map_or("", |(_, chain)| chain));
        tally(chains.map(str::to_owned))
    };
    let what = format!("state.vcBadPreassignedCells.{vc}");
    Mismatch::unless_equal(&what, &by_chain(theirs), &by_chain(&ours))?;
    Ok(*theirs == ours)
}

fn compare_free_cells(cells: &Cells, chain: &str, levels: &Map<String, Value>) -> Result<bool, Mismatch> {
    let Some(id) = cells.layout().chain_named(chain) else {
        return Ok(true);
    };
    let theirs: BTreeMap<String, BTreeSet<String>> = levels
        .iter()
        .map(|(level, list)| (level.clone(), texts(list)))
        .collect();
    let ours = free_cells(cells, id);
    let counts = |lists: &BTreeMap<String, BTreeSet<String>>| -> BTreeMap<String, usize> {
        let counts = lists.iter().map(|(level, list)| (level.clone(), list.len()));
        counts.collect()
    };
    let what = format!("number of state.freeCells.{chain} by level");
    Mismatch::unless_equal(&what, &counts(&theirs), &counts(&ours))?;
    Ok(theirs == ours)
}

fn compare_groups(
    scheduler: &GroupScheduler,
    expected: &Map<String, Value>,
    is_partial: bool,
) -> Result<bool, Mismatch> {
    let theirs: BTreeSet<&str> = expected.keys().map(String::as_str).collect();
    let ours: BTreeSet<&str> = scheduler.groups().map(|(name, _)| name).collect();
    if !is_partial || !theirs.is_subset(&ours) {
        Mismatch::unless_equal("names in state.groups", &theirs, &ours)?;
    }
    let mut is_exact = true;
    for name in ours {
        if let (Some(value), Some(view)) = (expected.get(name), scheduler.view(name)) {
            is_exact &= compare_group(scheduler, value, &view)?;
        }
    }
    Ok(is_exact)
}

fn compare_group(scheduler: &GroupScheduler, value: &Value, view: &GroupView<'_>) -> Result<bool, Mismatch> {
    let (cells, group) = (scheduler.cells(), view.group);
    let at = |key: &str| format!("state.groups.{}.{key}", view.name);
    let state = match group.state {
        GroupState::Allocated => "Allocated",
        GroupState::Preempting => "Preempting",
        GroupState::BeingPreempted => "BeingPreempted",
    };
    Mismatch::unless_equal(&at("state"), &text(value, "state").as_str(), &state)?;
    let priority = value["priority"].as_i64();
    Mismatch::unless_equal(&at("priority"), &priority, &Some(i64::from(group.priority)))?;
    Mismatch::unless_equal(&at("vc"), &text(value, "vc").as_str(), &view.vc)?;
    let lazy = value["lazyPreempted"].as_bool();
    Mismatch::unless_equal(&at("lazyPreempted"), &lazy, &Some(group.downgraded.is_some()))?;
    if let (Some(by), Some(downgrade)) = (value["lazyPreemptor"].as_str(), group.downgraded) {
        Mismatch::unless_equal(&at("lazyPreemptor"), &by, &scheduler.name_of(downgrade.by))?;
    }
    let missing: u32 = group.pods.iter().map(|p| p.size - p.leaves.len() as u32).sum();
    let theirs = value["leafCellsMissingFromConfig"].as_u64().unwrap_or(0);
    Mismatch::unless_equal(&at("leafCellsMissingFromConfig"), &theirs, &u64::from(missing))?;
    let mut is_exact = true;
    if let Some(placement) = value["physicalPlacement"].as_object() {
        is_exact &= compare_placement(cells, group, placement, &at("physicalPlacement"))?;
    }
    if let Some(slots) = value["virtualPreassignedCellToLeafCount"].as_object() {
        is_exact &= compare_slots(cells, group, slots, &at("virtualPreassignedCellToLeafCount"))?;
    }
    Ok(is_exact)
}

fn compare_placement(
    cells: &Cells,
    group: &Group,
    expected: &Map<String, Value>,
    what: &str,
) -> Result<bool, Mismatch> {
    let layout = cells.layout();
    let mut ours: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for pod in &group.pods {
        for leaf in &pod.leaves {
            let machine = &layout.machines[layout.machine_of(pod.chain, *leaf).index()].name;
            let index = layout.chain(pod.chain).leaf_indices[*leaf as usize];
            ours.entry(machine.clone()).or_default().insert(index);
        }
    }
    let theirs: BTreeMap<String, BTreeSet<i32>> = expected
        .iter()
        .map(|(node, leaves)| (node.clone(), integers(leaves).into_iter().collect()))
        .collect();
    let shape = |placement: &BTreeMap<String, BTreeSet<i32>>| tally(placement.values().map(BTreeSet::len));
    let what = format!("leaves per machine in {what}");
    Mismatch::unless_equal(&what, &shape(&theirs), &shape(&ours))?;
    Ok(theirs == ours)
}

fn compare_slots(
    cells: &Cells,
    group: &Group,
    expected: &Map<String, Value>,
    what: &str,
) -> Result<bool, Mismatch> {
    let layout = cells.layout();
    let mut ours: BTreeMap<String, u64> = BTreeMap::new();
    if group.effective_priority() >= 0 {
        for pod in &group.pods {
            for leaf in &pod.leaves {
                if let Some(slot) = cells.slot_of(pod.chain, *leaf) {
                    *ours.entry(layout.slot_address(slot)).or_default() += 1;
                }
            }
        }
    }
    let theirs: BTreeMap<String, u64> = expected
        .iter()
        .map(|(slot, leaves)| (slot.clone(), leaves.as_u64().unwrap_or(0)))
        .collect();
    let kinds: BTreeMap<String, &str> = (0..layout.slots.len())
        .map(|at| SlotId(at as u32))
        .map(|slot| (layout.slot_address(slot), layout.slot_type(slot)))
        .collect();
    let shape = |slots: &BTreeMap<String, u64>| {
        tally(
            slots
                .iter()
                .map(|(slot, leaves)| (kinds.get(slot).copied().unwrap_or("?"), *leaves)),
        )
    };
    let what = format!("types and leaves in {what}");
    Mismatch::unless_equal(&what, &shape(&theirs), &shape(&ours))?;
    Ok(theirs == ours)
}

/// Returns the slots of a virtual cluster whose cell has a bad machine, as HiveD lists them.
fn bad_slots(cells: &Cells, vc: &str) -> BTreeSet<String> {
    let layout = cells.layout();
    let slots = layout
        .vc_named(vc)
        .map(|v| layout.vcs[v.index()].slots.as_slice())
        .unwrap_or_default();
    slots
        .iter()
        .filter(|slot| {
            let spec = &layout.slots[slot.index()];
            let cell = cells.cell_of(**slot);
            cell.is_some_and(|cell| cells.has_bad_machine(spec.chain, spec.level, cell))
        })
        .map(|slot| {
            let chain = &layout.chain(layout.slots[slot.index()].chain).name;
            format!("{} ({chain})", layout.slot_address(*slot))
        })
        .collect()
}

/// Returns the free list of a chain as HiveD shows it: addresses by level, counted from 1.
fn free_cells(cells: &Cells, chain: ChainId) -> BTreeMap<String, BTreeSet<String>> {
    let layout = cells.layout().chain(chain);
    let mut lists = BTreeMap::new();
    for level in 0..=layout.top() {
        let list: BTreeSet<String> = (0..layout.cells[level])
            .filter(|cell| cells.is_listed(chain, level, *cell))
            .map(|cell| layout.address(level, cell))
            .collect();
        if !list.is_empty() {
            lists.insert((level + 1).to_string(), list);
        }
    }
    lists
}

/// Counts equal items.
fn tally<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}
