//! `dovetail trace from-journal`: the history of a live cluster as a workload, and the simulator compared with it.

use anyhow::Context;
use dovetail_cluster::history;
use dovetail_console::{self as console, Failure, OrFailure, ScratchFolder};
use dovetail_experiment::{Fidelity, fidelity, past_workload};
use dovetail_report::format::{count, span};
use dovetail_workload::{Format, encode};

use crate::args::FromJournalArgs;
use crate::experiment::failure;

/// Writes the trace, or compares.
///
/// # Errors
/// If the journal is not readable, or contains no job that ran.
pub fn run(args: &FromJournalArgs) -> Result<(), Failure> {
    let copy = ScratchFolder::new("journal").or_work()?;
    let history = history::read(&args.folder, copy.path()).or_request()?;
    if history.jobs.is_empty() {
        return Err(Failure::request(format!(
            "{}: contains no finished job",
            args.folder.display()
        )));
    }
    if let Some(out) = &args.out {
        let name = out.display().to_string();
        let (text, _) = encode(&past_workload(&history), Format::Native, &name).or_work()?;
        if out.as_os_str() == "-" {
            return console::print(String::from_utf8_lossy(&text).trim_end());
        }
        std::fs::write(out, &text).with_context(|| name).or_work()?;
        let skipped = match history.others {
            0 => String::new(),
            n => format!(
                "; {} skipped that never ran or have not finished",
                count(n as u64)
            ),
        };
        console::print(format!(
            "{}: {} jobs{skipped}",
            out.display(),
            count(history.jobs.len() as u64)
        ))?;
    }
    if !args.fidelity {
        return Ok(());
    }
    let fidelity = fidelity(&history).map_err(failure)?;
    if args.json {
        return console::print(serde_json::to_string_pretty(&fidelity).or_work()?);
    }
    console::print(table(&fidelity))
}

fn table(f: &Fidelity) -> comfy_table::Table {
    let mut table = console::table(&["Live against simulated", &f.policy]);
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    for (name, value) in [
        ("jobs", count(f.jobs as u64)),
        ("stops, live", count(f.live_stops.into())),
        ("stops, simulated", count(f.simulated_stops.into())),
        ("starts in another order", count(f.start_inversions as u64)),
        ("order ignored within", seconds(f.jitter_s)),
        ("cost of a restart", seconds(f.restart_cost_s)),
        ("cost of a stop", seconds(f.stop_cost_s)),
        ("error of a finish time, mean", percent(f.mean_finish_error)),
        ("avg JCT, live", span(f.live_avg_jct_s)),
        ("avg JCT, simulated", span(f.simulated_avg_jct_s)),
        ("error of a job's JCT, mean", percent(f.mean_error)),
        ("median", percent(f.median_error)),
        ("95th percentile", percent(f.p95_error)),
        (
            "worst",
            format!("{} (job {})", percent(f.worst_error), f.worst_job),
        ),
    ] {
        table.add_row([name.to_owned(), value]);
    }
    console::align_numbers(&mut table);
    table
}
