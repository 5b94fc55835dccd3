//! `dovetail bench cells`: the cost of decisions about cells, compared with HiveD.
//!
//! Rows, topologies and workloads are those HiveD was measured with: machines with eight GPUs (2-4-8), flat (`pool`) or
//! in racks of ten (`rack`), and five virtual clusters that own all of them. HiveD's figures are CPU time of its
//! algorithm on a two-core machine, or wall time of single calls if no other figure is known. Ours are medians of the
//! wall time of single calls, CPU time for the churn. A row covers a whole group: deciding and committing.

mod churn;
mod rows;
mod topology;

use dovetail_console::{self as console, Failure, OrFailure};
use serde::Serialize;

use self::topology::Topology;
use crate::{BenchError, Options};

/// One row, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct CellMeasurement {
    name: String,
    topology: String,
    ours_us: f64,
    hived_us: Option<f64>,
    /// HiveD's figure over ours.
    ratio: Option<f64>,
    goal_us: Option<f64>,
}

/// Recorded churns: name, topology, and HiveD's microseconds per pod.
const CHURNS: [(&str, Topology, f64); 3] = [
    ("pool-100", Topology::pool(100), 939.0),
    ("rack-100", Topology::racks(100), 778.0),
    ("pool-1000", Topology::pool(1000), 1517.0),
];

/// Measures all rows on all topologies, and the recorded churns.
pub(crate) fn measure(options: &Options) -> Result<Vec<CellMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for (topology, hived) in rows::HIVED {
        measurements.extend(rows::measure(topology, &hived));
    }
    let mut larger = vec![Topology::pool(5_000)];
    if !options.short {
        larger.extend([Topology::pool(12_500), Topology::racks(12_500)]);
    }
    for topology in larger {
        measurements.extend(rows::measure(topology, &rows::NO_FIGURES));
    }
    for (name, topology, hived_us) in CHURNS {
        measurements.extend(churn::measure(name, topology, hived_us)?);
    }
    Ok(measurements)
}

/// Prints measurements as a table or JSON.
pub(crate) fn print(measurements: &[CellMeasurement], json: bool) -> Result<(), Failure> {
    if json {
        return console::print(serde_json::to_string_pretty(measurements).or_work()?);
    }
    let mut table = console::table(&[
        "measurement",
        "topology",
        "ours, µs",
        "HiveD, µs",
        "times faster",
        "goal, µs",
    ]);
    for m in measurements {
        let dash = || "–".to_owned();
        table.add_row([
            m.name.clone(),
            m.topology.clone(),
            format!("{:.2}", m.ours_us),
            m.hived_us.map_or_else(dash, |hived| format!("{hived:.0}")),
            m.ratio.map_or_else(dash, |ratio| format!("{ratio:.0}")),
            m.goal_us.map_or_else(dash, |goal| format!("≤ {goal:.0}")),
        ]);
    }
    console::align_numbers(&mut table);
    console::print(table)
}
