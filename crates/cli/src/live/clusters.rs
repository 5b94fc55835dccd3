//! `dovetail vc list|set|remove|apply` and `vc diff FILE`: virtual clusters of a cluster that runs.

use std::path::Path;

use anyhow::Context;
use dovetail_control::{Everyone, Promise};
use dovetail_web::views::{ClusterEdit, ClustersFile, ClustersView, VcDiff, VcView};
use serde_json::Value;

use crate::failure::{Blame, Failure};
use crate::live::args::{ClientArgs, OutputArgs, VcSetArgs};
use crate::live::client::{Client, block_on, query};
use crate::live::show::Listing;
use crate::show;

/// Runs `dovetail vc list`.
///
/// # Errors
/// When the scheduler cannot be reached.
pub fn list(output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client)?;
    let view: ClustersView = block_on(client.get("/api/v1/vcs"))?;
    let or_none = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let row = |vc: &VcView| {
        vec![
            vc.name.clone(),
            match view.mode {
                Promise::Open => "-".to_owned(),
                Promise::Quota | Promise::Cells => vc.guaranteed_gpus.to_string(),
            },
            vc.used_gpus.to_string(),
            vc.borrowed_gpus.to_string(),
            vc.running_jobs.to_string(),
            vc.waiting_jobs.to_string(),
            or_none(vc.most_borrowed.map(|n| n.to_string())),
            or_none(vc.user_cap_gpus.map(|n| n.to_string())),
            or_none(vc.max_priority.map(|n| n.to_string())),
            word(&vc.everyone),
            or_none(vc.order.clone()),
        ]
    };
    let listing = Listing {
        headings: &[
            "Virtual cluster",
            "Own GPUs",
            "Used",
            "Borrowed",
            "Running",
            "Waiting",
            "May borrow",
            "User cap",
            "Priority up to",
            "Everyone is",
            "Order",
        ],
        narrow: 6,
        rows: view.vcs.iter().map(row).collect(),
        value: &view,
        none: "No virtual clusters.",
    };
    show::print(listing.text(output.form())?)
}

fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// A number, or `none` for no limit.
fn limit<T: std::str::FromStr>(text: Option<&String>, flag: &str) -> Result<Option<Option<T>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    if text == "none" {
        return Ok(Some(None));
    }
    let wrong = || Failure::request(format!("{flag}: {text:?} is none; expected a number, or none"));
    Ok(Some(Some(text.parse().map_err(|_| wrong())?)))
}

/// Runs `dovetail vc set`.
///
/// # Errors
/// When a flag is wrong, or the scheduler cannot be reached or refuses.
pub fn set(args: &VcSetArgs) -> Result<(), Failure> {
    let everyone = match args.everyone.as_deref() {
        None => None,
        Some(word) => {
            let known: Result<Everyone, _> = serde_json::from_value(Value::from(word));
            Some(known.map_err(|_| {
                Failure::request(format!(
                    "--everyone: {word:?} is none; expected none, viewer or member"
                ))
            })?)
        }
    };
    let edit = ClusterEdit {
        guaranteed_gpus: args.guaranteed_gpus,
        most_borrowed: limit(args.most_borrowed.as_ref(), "--most-borrowed")?,
        user_cap_gpus: limit(args.user_cap_gpus.as_ref(), "--user-cap-gpus")?,
        max_priority: limit(args.max_priority.as_ref(), "--max-priority")?,
        everyone,
        order: args
            .order
            .clone()
            .map(|order| Some(order).filter(|o| o != "none")),
    };
    let client = Client::open(&args.client)?;
    let path = format!("/api/v1/vcs/{}?dry_run={}", query(&args.name), args.dry_run);
    let diff: VcDiff = block_on(client.put(&path, &edit))?;
    print(&diff, args.dry_run, &args.output)
}

/// Runs `dovetail vc remove`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn remove(name: &str, dry_run: bool, output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client)?;
    let path = format!("/api/v1/vcs/{}?dry_run={dry_run}", query(name));
    let diff: VcDiff = block_on(client.delete_and(&path))?;
    print(&diff, dry_run, output)
}

/// Runs `dovetail vc apply`, and `dovetail vc diff` with one file.
///
/// # Errors
/// When the file is wrong, or the scheduler cannot be reached or refuses.
pub fn apply(file: &Path, dry_run: bool, output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}", file.display()))
        .or_request()?;
    let client = Client::open(client)?;
    let path = format!("/api/v1/vcs?dry_run={dry_run}");
    let diff: VcDiff = block_on(client.put(&path, &read(&text, file)?))?;
    print(&diff, dry_run, output)
}

/// Virtual clusters in our own words (`mode`, `vcs`), or HiveD's configuration.
fn read(text: &str, file: &Path) -> Result<ClustersFile, Failure> {
    let wrong = |e: &dyn std::fmt::Display| {
        let what = e.to_string().lines().next().unwrap_or_default().to_owned();
        Failure::request(format!("{}: {what}", file.display()))
    };
    let tree: Value = serde_saphyr::from_str(text).map_err(|e| wrong(&e))?;
    match tree.get("physicalCluster").is_some() {
        true => Ok(ClustersFile {
            mode: Promise::Cells,
            cells: Some(text.to_owned()),
            ..ClustersFile::default()
        }),
        false => serde_saphyr::from_str(text).map_err(|e| wrong(&e)),
    }
}

fn print(diff: &VcDiff, dry_run: bool, output: &OutputArgs) -> Result<(), Failure> {
    use crate::live::args::Output;
    let text = match output.form() {
        Output::Json => serde_json::to_string_pretty(diff).or_work()?,
        Output::Yaml => serde_saphyr::to_string(diff).or_work()?,
        Output::Table | Output::Wide | Output::Csv => words(diff, dry_run),
    };
    show::print(text)?;
    match &diff.refused {
        Some(why) => Err(Failure::request(format!("it cannot be done: {why}"))),
        None => Ok(()),
    }
}

fn words(diff: &VcDiff, dry_run: bool) -> String {
    let mut lines = Vec::new();
    for change in &diff.changes {
        let vc = if change.vc.is_empty() { "all" } else { &change.vc };
        lines.push(format!(
            "{vc}: {}: {} -> {}",
            change.field, change.before, change.after
        ));
    }
    if diff.changes.is_empty() {
        lines.push("Nothing changes.".to_owned());
    }
    lines.extend(diff.effects.iter().map(|effect| format!("  {effect}")));
    if diff.refused.is_none() {
        lines.push(if dry_run { "Nothing was done yet." } else { "Done." }.to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_files_are_read() {
        let file = Path::new("x.yaml");
        let own = read(
            "mode: quota\nvcs: {lab: {guaranteed_gpus: 4, order: las}}\n",
            file,
        )
        .unwrap();
        assert_eq!((own.mode, own.vcs["lab"].guaranteed_gpus), (Promise::Quota, 4));
        let hived = read("physicalCluster: {}\nvirtualClusters: {}\n", file).unwrap();
        assert!(hived.mode == Promise::Cells && hived.cells.is_some());
        assert!(
            read("mode: quota\ncolour: red\n", file)
                .unwrap_err()
                .to_string()
                .contains("x.yaml")
        );
        assert!(limit::<u32>(Some(&"many".to_owned()), "--x").is_err());
        assert_eq!(limit::<u32>(Some(&"none".to_owned()), "--x").unwrap(), Some(None));
    }
}
