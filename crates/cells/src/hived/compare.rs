//! Comparing with HiveD: what happens exactly, where it happens up to the choice among equal cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use super::extender::{Answer, Extender};
use super::scenario::{Step, StepResult, kind, tally};
use crate::group::{Group, GroupState};
use crate::layout::{ChainId, Layout, SlotId};
use crate::state::{Cells, NONE};

/// Where Dovetail and HiveD differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What differs.
    pub what: String,
    /// What HiveD has.
    pub expected: String,
    /// What Dovetail has.
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
    /// A mismatch unless both are equal; true, since equal is exact.
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

/// Compares the answers. True if they agree to the last leaf, false if up to the choice among equal cells.
pub(crate) fn compare_result(extender: &Extender, step: &Step, ours: &StepResult) -> Result<bool, Mismatch> {
    let fixed = std::slice::from_ref(&step.result);
    let candidates = if step.nondeterministic && !step.observed_results.is_empty() {
        step.observed_results.as_slice()
    } else {
        fixed
    };
    let mut first = None;
    for candidate in candidates {
        match compare_one(extender, candidate, ours) {
            Ok(exact) => return Ok(exact),
            Err(mismatch) => first = first.or(Some(mismatch)),
        }
    }
    // Victims of several machines are reported one machine at a time: their union counts.
    if step.nondeterministic && step.result["victimsUnion"].is_array() {
        return compare_one(extender, &step.result, ours);
    }
    Err(first.unwrap_or_else(|| Mismatch {
        what: "result".to_owned(),
        expected: "one".to_owned(),
        found: "none".to_owned(),
    }))
}

fn compare_one(extender: &Extender, expected: &Value, ours: &StepResult) -> Result<bool, Mismatch> {
    Mismatch::unless_equal("result.kind", &text(expected, "kind").as_str(), &kind(ours))?;
    match ours {
        Some(Ok(Answer::Bind {
            node,
            leaves,
            chain,
            preassigned,
        })) => {
            Mismatch::unless_equal("result.cellChain", &text(expected, "cellChain"), chain)?;
            let types = texts(&expected["groupPreassignedCellTypes"]);
            Mismatch::unless_equal("result.groupPreassignedCellTypes", &types, preassigned)?;
            let theirs: Vec<i32> = numbers(&expected["leafCells"]);
            Mismatch::unless_equal("number of result.leafCells", &theirs.len(), &leaves.len())?;
            let sorted = |v: &[i32]| v.iter().copied().collect::<BTreeSet<_>>();
            let exact = *node == text(expected, "node") && sorted(&theirs) == sorted(leaves);
            if !exact {
                let layout = extender.cells().layout();
                let lca = |node: &str, leaves: &[i32]| closeness(layout, chain, node, leaves);
                let (theirs, ours) = (lca(&text(expected, "node"), &theirs), lca(node, leaves));
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
            let some = texts(&expected["victimsOnOneNode"]);
            if !some.is_subset(victims) {
                return Err(Mismatch {
                    what: "result.victimsOnOneNode".to_owned(),
                    expected: format!("{some:?}"),
                    found: format!("{victims:?}"),
                });
            }
            Ok(true)
        }
        Some(Ok(Answer::Wait { .. }) | Err(_)) | None => Ok(true),
    }
}

fn numbers(value: &Value) -> Vec<i32> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_i64).map(|n| n as i32).collect()
}

/// The level of the smallest cell around some leaves of a machine.
fn closeness(layout: &Layout, chain: &str, node: &str, leaves: &[i32]) -> Option<usize> {
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

/// Compares the states after a step, as far as HiveD's is always the same.
pub(crate) fn compare_state(extender: &Extender, step: &Step) -> Result<bool, Mismatch> {
    let state = &step.state;
    let mut exact = true;
    if let Some(groups) = state["groups"].as_object() {
        let partly = step.state_nondeterministic.as_bool() == Some(true);
        exact &= compare_groups(extender, groups, partly)?;
    }
    let cells = extender.cells();
    let empty = Map::new();
    for (vc, bad) in state["vcBadPreassignedCells"].as_object().unwrap_or(&empty) {
        let theirs = texts(bad);
        let ours = bad_slots(cells, vc);
        let by_chain = |names: &BTreeSet<String>| {
            tally(
                names
                    .iter()
                    .map(|n| n.split_once(' ').map_or("", |(_, chain)| chain).to_owned()),
            )
        };
        let what = format!("state.vcBadPreassignedCells.{vc}");
        Mismatch::unless_equal(&what, &by_chain(&theirs), &by_chain(&ours))?;
        exact &= theirs == ours;
    }
    for (chain, levels) in state["freeCells"].as_object().unwrap_or(&empty) {
        let Some(id) = cells.layout().chain_named(chain) else {
            continue;
        };
        let theirs: BTreeMap<String, BTreeSet<String>> = levels
            .as_object()
            .unwrap_or(&empty)
            .iter()
            .map(|(level, list)| (level.clone(), texts(list)))
            .collect();
        let ours = free_cells(cells, id);
        let counts = |lists: &BTreeMap<String, BTreeSet<String>>| -> BTreeMap<String, usize> {
            lists
                .iter()
                .map(|(level, list)| (level.clone(), list.len()))
                .collect()
        };
        let what = format!("number of state.freeCells.{chain} by level");
        Mismatch::unless_equal(&what, &counts(&theirs), &counts(&ours))?;
        exact &= theirs == ours;
    }
    Ok(exact)
}

fn compare_groups(
    extender: &Extender,
    expected: &Map<String, Value>,
    partly: bool,
) -> Result<bool, Mismatch> {
    let cells = extender.cells();
    let theirs: BTreeSet<&str> = expected.keys().map(String::as_str).collect();
    let ours: BTreeSet<&str> = extender.groups().map(|(name, _)| name).collect();
    if !partly || !theirs.is_subset(&ours) {
        Mismatch::unless_equal("names in state.groups", &theirs, &ours)?;
    }
    let mut exact = true;
    for (name, id) in extender.groups() {
        let (Some(value), Some(group)) = (expected.get(name), cells.group(id)) else {
            continue;
        };
        let at = |key: &str| format!("state.groups.{name}.{key}");
        let state = match group.state {
            GroupState::Allocated => "Allocated",
            GroupState::Preempting => "Preempting",
            GroupState::BeingPreempted => "BeingPreempted",
        };
        Mismatch::unless_equal(&at("state"), &text(value, "state").as_str(), &state)?;
        let priority = value["priority"].as_i64();
        Mismatch::unless_equal(&at("priority"), &priority, &Some(i64::from(group.priority)))?;
        let vc = cells.layout().vcs[group.vc.index()].name.clone();
        Mismatch::unless_equal(&at("vc"), &text(value, "vc"), &vc)?;
        let lazy = value["lazyPreempted"].as_bool();
        Mismatch::unless_equal(&at("lazyPreempted"), &lazy, &Some(group.downgraded.is_some()))?;
        if let (Some(by), Some(downgrade)) = (value["lazyPreemptor"].as_str(), group.downgraded) {
            Mismatch::unless_equal(&at("lazyPreemptor"), &by, &extender.name_of(downgrade.by))?;
        }
        let missing: u32 = group.pods.iter().map(|p| p.size - p.leaves.len() as u32).sum();
        let theirs = value["leafCellsMissingFromConfig"].as_u64().unwrap_or(0);
        Mismatch::unless_equal(&at("leafCellsMissingFromConfig"), &theirs, &u64::from(missing))?;
        if let Some(placement) = value["physicalPlacement"].as_object() {
            exact &= compare_placement(cells, group, placement, &at("physicalPlacement"))?;
        }
        if let Some(slots) = value["virtualPreassignedCellToLeafCount"].as_object() {
            exact &= compare_slots(cells, group, slots, &at("virtualPreassignedCellToLeafCount"))?;
        }
    }
    Ok(exact)
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
        .map(|(node, leaves)| (node.clone(), numbers(leaves).into_iter().collect()))
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
    if group.effective() >= 0 {
        for pod in &group.pods {
            for leaf in &pod.leaves {
                if let Some(slot) = cells.slot_over(pod.chain, 0, *leaf) {
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

/// Slots of a virtual cluster whose cell has a bad machine, as HiveD lists them.
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
            let cell = cells.slots[slot.index()].cell;
            cell != NONE && cells.is_bad(spec.chain, spec.level, cell)
        })
        .map(|slot| {
            let chain = &layout.chain(layout.slots[slot.index()].chain).name;
            format!("{} ({chain})", layout.slot_address(*slot))
        })
        .collect()
}

/// The free list of a chain, as HiveD shows it: addresses by level, counted from 1.
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
