//! `dovetail vc diff`: what a new configuration changes, and its effect on running groups.

use std::path::Path;

use dovetail_cells::Fate;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_hived::{ScenarioFile, layout_changes, read_config};
use serde_json::{Value, json};

use super::number;

pub(super) fn run(old: &Path, new: &Path, running: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let (_, before) = read_config(old).or_request()?;
    let (_, after) = read_config(new).or_request()?;
    let (before, after) = (before.layout, after.layout);
    let changes = layout_changes(&before, &after);
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let fates = match running {
        Some(path) => {
            let file = ScenarioFile::read(path).map_err(Failure::request)?;
            Some(file.reconfigure(&before, &after).map_err(Failure::request)?)
        }
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
