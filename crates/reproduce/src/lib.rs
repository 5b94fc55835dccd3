//! Published experiments by name, with the published figures beside ours (`dovetail reproduce`).
//!
//! An [`Experiment`] runs simulations and returns a [`Report`]: a table, statements that hold or do not, notes, figures
//! and data.

mod blox;
mod data;
mod error;
mod experiments;
mod hived;
mod jct_bound;
mod muri;
mod report;
mod synergy;

use std::path::PathBuf;

use dovetail_console::{self as console, Failure, OrFailure};

pub use data::find_data;
pub use error::ReproduceError;
pub use experiments::{EXPERIMENTS, Experiment, TESTBED, find};
pub use muri::{TestbedRun, testbed_runs};
pub use report::{Report, Statement};

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder to write tables and figures to.
    pub out: Option<PathBuf>,
    /// Folder of the public traces and results; `$DOVETAIL_SHARED/data` or `../shared/data` if not given.
    pub data: Option<PathBuf>,
    /// Seed of generated workloads.
    pub seed: u64,
    /// Whether runs that take minutes are included.
    pub full: bool,
    /// Whether the result is printed as JSON.
    pub json: bool,
    /// Whether progress is hidden.
    pub quiet: bool,
}

impl Options {
    /// Creates the progress bar of an experiment; it is hidden if the output is JSON.
    fn progress_bar(&self, steps: usize, name: &str) -> console::ProgressBar {
        console::progress_bar(steps as u64, name, self.quiet || self.json)
    }
}

/// Runs the named experiment and prints its report, or lists all experiments.
///
/// # Errors
/// Fails when the name is unknown, data is missing, a simulation fails, or a statement does not hold.
pub fn run(name: Option<&str>, options: &Options) -> Result<(), Failure> {
    let Some(name) = name else { return list() };
    let experiment = find(name)?;
    let report = experiment.run(options)?;
    show(experiment, &report, options)
}

/// Prints and saves the report of an experiment.
///
/// # Errors
/// Fails when it cannot be saved or printed, or a statement does not hold.
pub fn show(experiment: &Experiment, report: &Report, options: &Options) -> Result<(), Failure> {
    if let Some(dir) = &options.out {
        let title = format!("{}: {}", experiment.name, experiment.summary);
        report.save(dir, &title)?;
    }
    if options.json {
        console::print(serde_json::to_string_pretty(&report.data).or_work()?)?;
    } else {
        console::print(report.text())?;
        if let Some(dir) = &options.out {
            console::print(format!("report: {}", dir.join("report.html").display()))?;
        }
    }
    Ok(report.check()?)
}

fn list() -> Result<(), Failure> {
    let mut table = console::table(&["experiment", "summary"]);
    for experiment in EXPERIMENTS {
        table.add_row([experiment.name, experiment.summary]);
    }
    console::print(table)
}
