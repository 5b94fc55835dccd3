//! `dovetail vc diff`: what a new configuration changes, and its effect on running groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dovetail_cells::{Fate, Layout, ReconfiguredGroup};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_hived::{GroupScheduler, Scenario};
use serde_json::{Value, json};

use super::{number, read, replay};

pub(super) fn run(old: &Path, new: &Path, running: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let (_, before) = read(old)?;
    let (_, after) = read(new)?;
    let changes = changes(&before.layout, &after.layout);
    let fates = match running {
        Some(path) => Some(fates(
            &before.layout,
            &after.layout,
            &replay::read_scenario(path)?,
            path,
        )?),
        None => None,
    };
    if as_json {
        let list: Option<Vec<Value>> = fates.as_ref().map(|fates| {
            let each = fates.iter().map(|(name, carried)| {
                json!({"group": name, "fate": carried.fate, "leaf_cells_lost": carried.leaves_lost})
            });
            each.collect()
        });
        let report = json!({"changes": changes, "groups": list});
        return console::print(serde_json::to_string_pretty(&report).or_work()?);
    }
    if changes.is_empty() {
        console::print("No changes to cells or virtual clusters.")?;
    }
    for change in &changes {
        console::print(change)?;
    }
    let Some(fates) = fates else { return Ok(()) };
    let kept = fates
        .iter()
        .filter(|(_, c)| c.fate == Fate::Kept && c.leaves_lost == 0)
        .count();
    console::print(format!(
        "\n{}: {kept} of them are not affected.",
        number(fates.len() as u64, "running group")
    ))?;
    for (name, carried) in fates {
        let mut what = match carried.fate {
            Fate::Kept if carried.leaves_lost == 0 => continue,
            Fate::Kept => "keeps its cells".to_owned(),
            Fate::Downgraded => {
                "continues as an opportunistic group: guaranteed groups may preempt it".to_owned()
            }
            Fate::Restored => "is guaranteed again".to_owned(),
            Fate::ClaimDropped => {
                "has not started; its claim is dropped and it must be submitted again".to_owned()
            }
            Fate::Forgotten => {
                "continues, but its virtual cluster was removed: nothing is reserved for it any more"
                    .to_owned()
            }
        };
        if carried.leaves_lost > 0 {
            what += &format!(
                "; {} it uses are removed and not counted",
                number(carried.leaves_lost, "leaf cell")
            );
        }
        console::print(format!("  {name}: {what}"))?;
    }
    Ok(())
}

/// Replays a scenario with the old configuration, then changes to the new one.
fn fates(
    before: &Layout,
    after: &Layout,
    scenario: &Scenario,
    path: &Path,
) -> Result<Vec<(String, ReconfiguredGroup)>, Failure> {
    let mut last: Option<GroupScheduler> = None;
    let result = scenario.replay(&mut |_| Ok(before.clone()), &mut |_, extender, _, _| {
        last = Some(extender.clone())
    });
    result.map_err(|error| Failure::request(format!("{}: {error}", path.display())))?;
    Ok(last
        .map(|mut extender| extender.reconfigure(after.clone()))
        .unwrap_or_default())
}

/// Returns the differences as sentences.
fn changes(before: &Layout, after: &Layout) -> Vec<String> {
    let mut lines = Vec::new();
    let machines = |layout: &Layout| -> BTreeMap<String, BTreeSet<String>> {
        let place = |(c, n): &(dovetail_cells::ChainId, u32)| {
            let chain = layout.chain(*c);
            format!("{} {}", chain.name, chain.address(chain.node_level, *n))
        };
        let each = layout
            .machines
            .iter()
            .map(|m| (m.name.clone(), m.nodes.iter().map(place).collect()));
        each.collect()
    };
    let (old, new) = (machines(before), machines(after));
    for (name, places) in &new {
        match old.get(name) {
            None => lines.push(format!("+ machine {name} ({})", join(places))),
            Some(was) if was != places => {
                lines.push(format!(
                    "~ machine {name} moves from {} to {}",
                    join(was),
                    join(places)
                ));
            }
            Some(_) => {}
        }
    }
    for (name, places) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        lines.push(format!("- machine {name} ({})", join(places)));
    }
    let shapes = |layout: &Layout| -> BTreeMap<String, String> {
        let shape = |c: &dovetail_cells::Chain| {
            let levels = (0..c.types.len()).rev().map(|l| match c.fanout[l] {
                0 => c.types[l].clone(),
                n => format!("{} of {n}", c.types[l]),
            });
            levels.collect::<Vec<_>>().join(" · ")
        };
        layout.chains.iter().map(|c| (c.name.clone(), shape(c))).collect()
    };
    let (old, new) = (shapes(before), shapes(after));
    for (name, shape) in &new {
        match old.get(name) {
            None => lines.push(format!("+ chain {name}: {shape}")),
            Some(was) if was != shape => lines.push(format!("~ chain {name}: {was} becomes {shape}")),
            Some(_) => {}
        }
    }
    lines.extend(
        old.keys()
            .filter(|n| !new.contains_key(*n))
            .map(|n| format!("- chain {n}")),
    );
    lines.extend(quotas(before, after));
    lines
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn quotas(before: &Layout, after: &Layout) -> Vec<String> {
    let owned = |layout: &Layout| -> BTreeMap<String, BTreeMap<String, u32>> {
        let mut all: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for vc in &layout.vcs {
            let cells = all.entry(vc.name.clone()).or_default();
            for slot in &vc.slots {
                let spec = &layout.slots[slot.index()];
                let what = match &layout.views[spec.view.index()].pinned {
                    Some(pin) => format!("pinned cell {pin}"),
                    None => format!("{}.{}", layout.chain(spec.chain).name, layout.slot_type(*slot)),
                };
                *cells.entry(what).or_default() += 1;
            }
        }
        all
    };
    let (old, new) = (owned(before), owned(after));
    let mut lines = Vec::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (was, is) = (old.get(name), new.get(name));
        if was.is_none() {
            lines.push(format!("+ virtual cluster {name}"));
        }
        if is.is_none() {
            lines.push(format!("- virtual cluster {name}"));
            continue;
        }
        let empty = BTreeMap::new();
        let (was, is) = (was.unwrap_or(&empty), is.unwrap_or(&empty));
        let kinds: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for kind in kinds {
            let (a, b) = (was.get(kind).unwrap_or(&0), is.get(kind).unwrap_or(&0));
            if a != b {
                lines.push(format!("~ virtual cluster {name}: {kind} {a} → {b}"));
            }
        }
    }
    lines
}
