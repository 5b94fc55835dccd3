//! `dovetail vc check|diff|replay`: virtual clusters that own cells.

mod check;
mod diff;
mod replay;
mod why;

use std::path::Path;

use dovetail_cells::{Compiled, Config};
use dovetail_workload::read_hived;

use crate::args::{VcArgs, VcCommand};
use crate::failure::{Blame, Failure};

/// Does what was asked for.
///
/// # Errors
/// When a configuration or scenario is wrong, or a scenario goes differently.
pub fn run(args: &VcArgs) -> Result<(), Failure> {
    match &args.command {
        VcCommand::Check { config, all, json } => check::run(config, *all, *json),
        VcCommand::Diff {
            old,
            new,
            running,
            json,
        } => diff::run(old, new, running.as_deref(), *json),
        VcCommand::Replay {
            scenarios,
            configs,
            explain,
            json,
        } => replay::run(scenarios, configs.as_deref(), *explain, *json),
    }
}

fn read(path: &Path) -> Result<(Config, Compiled), Failure> {
    read_hived(path).or_request()
}

/// `1 cell`, `2 cells`.
fn number(n: impl Into<u64>, one: &str) -> String {
    match n.into() {
        1 => format!("1 {one}"),
        n => format!("{} {one}s", dovetail_report::format::count(n)),
    }
}
