//! `dovetail vc check`: checks a configuration and shows its content.

use std::fmt::Write as _;
use std::path::Path;

use dovetail_cells::{Chain, ChainId, CompiledConfig, Layout, VcSpec};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_hived::{
    ConfigError, ConfigOverview, FaultOverview, LevelOverview, level_overviews, read_config,
};
use serde_json::{Value, json};

use super::number;

/// Number of children of a cell that are drawn without `--all`.
const DRAWN: u32 = 16;

pub(super) fn run(path: &Path, all: bool, as_json: bool) -> Result<(), Failure> {
    let compiled = match read_config(path) {
        Ok((_, compiled)) => compiled,
        Err(ConfigError::Faults { file, faults }) if as_json => {
            let list: Vec<FaultOverview> = faults.iter().map(FaultOverview::from).collect();
            let report = json!({"ok": false, "file": file, "faults": list});
            console::print(serde_json::to_string_pretty(&report).or_work()?)?;
            return Err(Failure::request(ConfigError::Faults { file, faults }));
        }
        Err(error) => return Err(error).or_request(),
    };
    if as_json {
        let mut report: Value = serde_json::to_value(ConfigOverview::new(&compiled)).or_work()?;
        report["ok"] = json!(true);
        return console::print(serde_json::to_string_pretty(&report).or_work()?);
    }
    console::print(text(&compiled, if all { u32::MAX } else { DRAWN }).trim_end())
}

fn text(compiled: &CompiledConfig, drawn: u32) -> String {
    let layout = &compiled.layout;
    let leaves: u64 = layout.chains.iter().map(|c| u64::from(c.cells[0])).sum();
    let mut out = format!(
        "The configuration is valid: {}, {}, {}, {}.\n",
        number(layout.machines.len() as u64, "machine"),
        number(leaves, "leaf cell"),
        number(layout.chains.len() as u64, "chain"),
        number(layout.vcs.len() as u64, "virtual cluster"),
    );
    for note in &compiled.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out.push_str("\nPhysical cells\n");
    for (at, chain) in layout.chains.iter().enumerate() {
        draw_chain(&mut out, layout, ChainId(at as u32), chain, drawn);
    }
    out.push_str("\nVirtual clusters\n");
    for vc in &layout.vcs {
        draw_vc(&mut out, layout, vc);
    }
    out.push_str("\nGuaranteed cells\n");
    let _ = writeln!(out, "{}", guarantee_table(layout));
    out
}

/// Draws a chain from its top cells down to machines; the inside of a machine is described in text.
fn draw_chain(out: &mut String, layout: &Layout, id: ChainId, chain: &Chain, drawn: u32) {
    let top = chain.top();
    let _ = writeln!(
        out,
        "{}: {}, {}, {} {}; a machine is {}",
        chain.name,
        number(chain.cells[top], "cell"),
        number(chain.cells[chain.node_level], "machine"),
        chain.cells[0],
        chain.types[0],
        inside_machine(chain),
    );
    let number = chain.cells[top];
    for cell in 0..number.min(drawn) {
        let last = cell + 1 == number.min(drawn) && number <= drawn;
        draw_cell(out, layout, id, top, cell, "", last, drawn);
    }
    if number > drawn {
        let _ = writeln!(out, "└─ … {} more (--all draws them)", number - drawn);
    }
}

#[allow(clippy::too_many_arguments, reason = "a cell and where it is drawn")]
fn draw_cell(
    out: &mut String,
    layout: &Layout,
    id: ChainId,
    level: usize,
    cell: u32,
    before: &str,
    last: bool,
    drawn: u32,
) {
    let chain = layout.chain(id);
    let (here, below) = if last {
        ("└─ ", "   ")
    } else {
        ("├─ ", "│  ")
    };
    let address = chain.address(level, cell);
    let shown = if level == chain.node_level {
        address.rsplit('/').next().unwrap_or_default()
    } else {
        &address
    };
    let _ = write!(out, "{before}{here}{shown}");
    if level > chain.node_level {
        let _ = write!(out, "  {}", chain.types[level]);
    }
    let pins = layout
        .slots
        .iter()
        .filter(|s| s.chain == id && s.pinned.is_some());
    for pin in pins {
        let index = pin.pinned.unwrap_or_default();
        let name = layout.views[pin.view.index()]
            .pinned
            .as_deref()
            .unwrap_or_default();
        let owner = &layout.vcs[pin.vc.index()].name;
        if pin.level == level && index == cell {
            let _ = write!(out, "  pinned: {name}, of {owner}");
        } else if level == chain.node_level
            && pin.level < level
            && chain.ancestor(index, pin.level, level) == cell
        {
            let inner = chain.address(pin.level, index);
            let _ = write!(out, "  pinned in it: {name} ({inner}), of {owner}");
        }
    }
    out.push('\n');
    if level == chain.node_level {
        return;
    }
    let before = format!("{before}{below}");
    let children = chain.inside(cell, level, level - 1);
    let number = children.end - children.start;
    for child in children.clone().take(drawn as usize) {
        let last = child + 1 == children.end;
        draw_cell(out, layout, id, level - 1, child, &before, last, drawn);
    }
    if number > drawn {
        let _ = writeln!(out, "{before}└─ … {} more", number - drawn);
    }
}

/// Returns the cells inside a machine: `2 SOCKET × 2 SWITCH × 2 GPU`.
fn inside_machine(chain: &Chain) -> String {
    let parts = (0..chain.node_level)
        .rev()
        .map(|level| format!("{} {}", chain.fanout[level + 1], chain.types[level]));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "one leaf".to_owned()
    } else {
        parts.join(" × ")
    }
}

/// Draws the cells of a virtual cluster; equal cells in a row are drawn as one line.
fn draw_vc(out: &mut String, layout: &Layout, vc: &VcSpec) {
    let id = layout.vc_named(&vc.name).unwrap_or_default();
    let _ = write!(out, "{}: {}", vc.name, number(layout.leaves_of(id), "leaf cell"));
    if let Some(limit) = vc.leaves_per_user {
        let _ = write!(out, ", at most {limit} for one user");
    }
    for (user, limit) in &vc.user_limits {
        let _ = write!(out, ", {limit} for {user}");
    }
    out.push('\n');
    let mut lines: Vec<(u32, u32, String)> = Vec::new();
    for slot in &vc.slots {
        let spec = &layout.slots[slot.index()];
        let chain = layout.chain(spec.chain);
        let kind = &chain.types[spec.level];
        let leaves = format!("{} {}", chain.leaves[spec.level], chain.types[0]);
        let what = match spec.pinned {
            Some(cell) => {
                let name = layout.views[spec.view.index()]
                    .pinned
                    .as_deref()
                    .unwrap_or_default();
                format!(
                    "{kind} ({leaves}), pinned: {name} at {}",
                    chain.address(spec.level, cell)
                )
            }
            None if spec.level == chain.top() => format!("{kind} ({leaves})"),
            None => format!("{kind} ({leaves}) of {}", chain.name),
        };
        match lines.last_mut() {
            Some((_, to, same)) if *same == what && spec.pinned.is_none() => *to = spec.number,
            _ => lines.push((spec.number, spec.number, what)),
        }
    }
    let all = lines.len();
    for (at, (from, to, what)) in lines.into_iter().enumerate() {
        let branch = if at + 1 == all { "└─" } else { "├─" };
        let name = &vc.name;
        let _ = if from == to {
            writeln!(out, "{branch} {name}/{from}  {what}")
        } else {
            writeln!(out, "{branch} {name}/{from} to {to}  {} × {what}", to - from + 1)
        };
    }
}

/// Draws a table of all, guaranteed, pinned and remaining cells by chain and level.
fn guarantee_table(layout: &Layout) -> comfy_table::Table {
    let mut table = console::table(&[
        "chain, cell type",
        "level",
        "cells",
        "guaranteed",
        "pinned",
        "not owned",
    ]);
    for row in level_overviews(layout)
        .into_iter()
        .filter(LevelOverview::is_relevant)
    {
        table.add_row([
            format!("{}, {}", row.chain, row.cell_type),
            row.level.to_string(),
            row.cells.to_string(),
            row.guaranteed.to_string(),
            row.pinned.to_string(),
            row.not_owned.to_string(),
        ]);
    }
    console::align_numbers(&mut table);
    table
}
