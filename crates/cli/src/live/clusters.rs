//! `dovetail vc list|set|remove|apply` and `vc diff FILE`: virtual clusters of a running cluster.

use std::path::Path;

use anyhow::Context;
use dovetail_client::{Client, block_on, percent_encode};
use dovetail_cluster::{DefaultAccess, GuaranteeMode};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_web::views::{VcDiff, VcEdit, VcFile, VcList, VcView};
use serde_json::Value;

use crate::live::args::{ClientArgs, OutputArgs, VcSetArgs};
use crate::live::show::Listing;

/// Runs `dovetail vc list`.
///
/// # Errors
/// If the scheduler is unreachable.
pub fn list(output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client.config.as_deref())?;
    let view: VcList = block_on(client.get("/api/v1/vcs"))?;
    let or_none = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let row = |vc: &VcView| {
        vec![
            vc.name.clone(),
            match view.mode {
                GuaranteeMode::Open => "-".to_owned(),
                GuaranteeMode::Quota | GuaranteeMode::Cells => vc.guaranteed_gpus.to_string(),
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
            "Guaranteed GPUs",
            "Used",
            "Borrowed",
            "Running",
            "Waiting",
            "May borrow",
            "User cap",
            "Max priority",
            "All users",
            "Order",
        ],
        narrow: 6,
        rows: view.vcs.iter().map(row).collect(),
        value: &view,
        none: "No virtual clusters.",
    };
    console::print(listing.text(output.form())?)
}

fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Parses a number, or `none` for no limit.
fn limit<T: std::str::FromStr>(text: Option<&String>, flag: &str) -> Result<Option<Option<T>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    if text == "none" {
        return Ok(Some(None));
    }
    let wrong = || {
        Failure::request(format!(
            "{flag}: invalid value {text:?}: expected a number, or `none` for no limit"
        ))
    };
    Ok(Some(Some(text.parse().map_err(|_| wrong())?)))
}

/// Runs `dovetail vc set`.
///
/// # Errors
/// If a flag is invalid, or the scheduler is unreachable or rejects the request.
pub fn set(args: &VcSetArgs) -> Result<(), Failure> {
    let everyone = match args.everyone.as_deref() {
        None => None,
        Some(word) => {
            let known: Result<DefaultAccess, _> = serde_json::from_value(Value::from(word));
            Some(known.map_err(|_| {
                Failure::request(format!(
                    "--everyone: invalid value {word:?}: expected none, viewer or member"
                ))
            })?)
        }
    };
    let edit = VcEdit {
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
    let client = Client::open(args.client.config.as_deref())?;
    let path = format!(
        "/api/v1/vcs/{}?dry_run={}",
        percent_encode(&args.name),
        args.dry_run
    );
    let diff: VcDiff = block_on(client.put(&path, &edit))?;
    print(&diff, args.dry_run, &args.output)
}

/// Runs `dovetail vc remove`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn remove(name: &str, dry_run: bool, output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client.config.as_deref())?;
    let path = format!("/api/v1/vcs/{}?dry_run={dry_run}", percent_encode(name));
    let diff: VcDiff = block_on(client.delete_and_read(&path))?;
    print(&diff, dry_run, output)
}

/// Runs `dovetail vc apply`, and `dovetail vc diff` with one file.
///
/// # Errors
/// If the file is invalid, or the scheduler is unreachable or rejects the request.
pub fn apply(file: &Path, dry_run: bool, output: &OutputArgs, client: &ClientArgs) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}", file.display()))
        .or_request()?;
    let client = Client::open(client.config.as_deref())?;
    let path = format!("/api/v1/vcs?dry_run={dry_run}");
    let diff: VcDiff = block_on(client.put(&path, &read(&text, file)?))?;
    print(&diff, dry_run, output)
}

/// Parses virtual clusters in our own format (`mode`, `vcs`), or HiveD's configuration.
fn read(text: &str, file: &Path) -> Result<VcFile, Failure> {
    let wrong = |e: &dyn std::fmt::Display| {
        let what = e.to_string().lines().next().unwrap_or_default().to_owned();
        Failure::request(format!("{}: {what}", file.display()))
    };
    let tree: Value = serde_saphyr::from_str(text).map_err(|e| wrong(&e))?;
    match tree.get("physicalCluster").is_some() {
        true => Ok(VcFile {
            mode: GuaranteeMode::Cells,
            cells: Some(text.to_owned()),
            ..VcFile::default()
        }),
        false => serde_saphyr::from_str(text).map_err(|e| wrong(&e)),
    }
}

fn print(diff: &VcDiff, dry_run: bool, output: &OutputArgs) -> Result<(), Failure> {
    use crate::live::args::Output;
    let text = match output.form() {
        Output::Json => serde_json::to_string_pretty(diff).or_work()?,
        Output::Yaml => serde_saphyr::to_string(diff).or_work()?,
        Output::Table | Output::Wide | Output::Csv => diff_text(diff, dry_run),
    };
    console::print(text)?;
    match &diff.refused {
        Some(reason) => Err(Failure::request(format!("the change was rejected: {reason}"))),
        None => Ok(()),
    }
}

/// Returns the changes, their effects, and whether they were applied, one per line.
fn diff_text(diff: &VcDiff, dry_run: bool) -> String {
    let mut lines = Vec::new();
    for change in &diff.changes {
        let vc = if change.vc.is_empty() { "all" } else { &change.vc };
        lines.push(match (change.field.as_str(), &change.after) {
            ("exists", serde_json::Value::Bool(true)) => format!("{vc}: created"),
            ("exists", _) => format!("{vc}: removed"),
            (field, after) => format!("{vc}: {field}: {} -> {after}", change.before),
        });
    }
    if diff.changes.is_empty() {
        lines.push("No changes.".to_owned());
    }
    lines.extend(diff.effects.iter().map(|effect| format!("  {effect}")));
    if diff.refused.is_none() {
        lines.push(
            if dry_run {
                "Dry run: nothing was changed."
            } else {
                "Applied."
            }
            .to_owned(),
        );
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_and_hived_files_are_parsed() {
        let file = Path::new("x.yaml");
        let own = read(
            "mode: quota\nvcs: {lab: {guaranteed_gpus: 4, order: las}}\n",
            file,
        )
        .unwrap();
        assert_eq!(
            (own.mode, own.vcs["lab"].guaranteed_gpus),
            (GuaranteeMode::Quota, 4)
        );
        let hived = read("physicalCluster: {}\nvirtualClusters: {}\n", file).unwrap();
        assert!(hived.mode == GuaranteeMode::Cells && hived.cells.is_some());
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
