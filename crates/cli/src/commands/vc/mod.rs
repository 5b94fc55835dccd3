//! `dovetail vc ...`: virtual clusters of a running cluster and in files.

mod check;
mod diff;
mod replay;

use dovetail_console::Failure;

use crate::args::{VcArgs, VcCommand};
use crate::live::args::{Output, OutputArgs};
use crate::live::clusters;

/// Runs `dovetail vc ...`.
///
/// # Errors
/// If a configuration or scenario is invalid, or a scenario has another outcome.
pub fn run(args: &VcArgs) -> Result<(), Failure> {
    match &args.command {
        VcCommand::Check { config, all, json } => check::run(config, *all, *json),
        VcCommand::List { output, client } => clusters::list(output, client),
        VcCommand::Set(args) => clusters::set(args),
        VcCommand::Remove {
            name,
            dry_run,
            output,
            client,
        } => clusters::remove(name, *dry_run, output, client),
        VcCommand::Apply {
            file,
            dry_run,
            output,
            client,
        } => clusters::apply(file, *dry_run, output, client),
        VcCommand::Diff {
            old,
            new: Some(new),
            running,
            json,
            ..
        } => diff::run(old, new, running.as_deref(), *json),
        VcCommand::Diff {
            old, client, json, ..
        } => {
            let output = OutputArgs {
                output: json.then_some(Output::Json).unwrap_or_default(),
                ..OutputArgs::default()
            };
            clusters::apply(old, true, &output, client)
        }
        VcCommand::Replay {
            scenarios,
            configs,
            explain,
            json,
        } => replay::run(scenarios, configs.as_deref(), *explain, *json),
    }
}

/// `1 cell`, `2 cells`.
fn number(n: impl Into<u64>, one: &str) -> String {
    match n.into() {
        1 => format!("1 {one}"),
        n => format!("{} {one}s", dovetail_report::format::count(n)),
    }
}
