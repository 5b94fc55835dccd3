//! Prints the measurements.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::{count, significant};

use super::KubeMeasurements;
use super::drain::DrainRun;
use crate::measurement::print_goals;

/// Prints measurements as tables or JSON.
pub(crate) fn print(measurements: &KubeMeasurements, json: bool) -> Result<(), Failure> {
    if json {
        return console::print(serde_json::to_string_pretty(measurements).or_work()?);
    }
    let mut table = console::table(&[
        "scheduler",
        "pods",
        "nodes",
        "events",
        "pods/s, each run",
        "median",
        "with events",
        "first bound after",
        "CPU ms/pod: scheduler",
        "API server",
        "etcd",
    ]);
    let dash = || "-".to_owned();
    for drain in &measurements.drains {
        let contender = drain.contender;
        let rates: Vec<String> = drain
            .runs()
            .iter()
            .map(|run: &DrainRun| format!("{:.0}", run.bind_rate()))
            .collect();
        let cpu = drain.cpu_ms();
        table.add_row([
            contender.name().to_owned(),
            count(drain.pods as u64),
            count(drain.nodes as u64),
            contender.events().to_owned(),
            rates.join(" "),
            format!("{:.0}", drain.bind_rate()),
            if contender.has_event_per_pod() {
                format!("{:.0}", drain.event_rate())
            } else {
                dash()
            },
            format!("{:.2} s", drain.first_bound_s()),
            if contender.is_binder() {
                dash()
            } else {
                significant(cpu.scheduler)
            },
            significant(cpu.api_server),
            significant(cpu.etcd),
        ]);
    }
    console::align_numbers(&mut table);
    console::print(table)?;
    print_goals(&measurements.goals, json)
}
