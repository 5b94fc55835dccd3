//! Measures the speed of a command by number of CPUs (`dovetail profile run`).
//!
//! The command runs at a few numbers of CPUs ([`Trial`]); how its speed depends on memory is computed from the size
//! of its data set. The result is a row of a sensitivity table, which simulations read with `--sensitivity`.

#![allow(clippy::print_stderr, reason = "notes and warnings go to standard error")]

mod curve;
mod error;
mod figure;
mod iterations;
mod machine;
mod measure;
mod options;
mod plan;
mod process_tree;
mod result;
mod trial;

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::files::write_file;

pub use curve::{cpus_text, curve_figure, curve_json, gb_text};
pub use error::ProfilerError;
pub use iterations::IterationSource;
pub use machine::{Machine, memory_gbps};
pub use options::Options;
pub use trial::{Observation, Trial};

use plan::Plan;

/// Share of the CPUs that other processes may keep busy before a warning is printed.
const BUSY_SHARE: f64 = 0.5;

/// Measures the command, prints the result, and writes the requested files.
///
/// # Errors
/// Fails when an option is invalid, or the command cannot be measured.
pub fn run(options: &Options) -> Result<(), Failure> {
    let machine = Machine::this()?;
    let plan = Plan::new(options, &machine)?;
    if !options.quiet {
        describe(&machine);
    }
    let measurements = measure::measure(options, plan.iterations(), &machine)?;
    let result = plan.result(options, measurements)?;
    if let Some(path) = &options.svg {
        write_file(path, result.figure().svg().as_bytes()).or_work()?;
    }
    if let Some(path) = &options.out {
        let table = plan.table_with(options, result.profile().clone())?;
        write_file(path, table.to_yaml().as_bytes()).or_work()?;
    }
    if options.json {
        return console::print(serde_json::to_string_pretty(&result.to_json()).or_work()?);
    }
    result.print(options)
}

fn describe(machine: &Machine) {
    let domains = machine.domains.len();
    eprintln!(
        "note: {} CPUs in {domains} NUMA domain{}; the command is bound to a subset of them (affinity)",
        machine.cpus(),
        if domains == 1 { "" } else { "s" }
    );
    let busy = |load: &f64| *load > BUSY_SHARE * f64::from(machine.cpus());
    if let Some(load) = machine.load.filter(busy) {
        eprintln!(
            "warning: other processes use this machine (load {load:.1}): rates will be lower and less certain"
        );
    }
}
