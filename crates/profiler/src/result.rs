//! The measured profile, as tables and JSON.

use comfy_table::{CellAlignment, Table};
use dovetail_console::{self as console, Failure};
use dovetail_report::format::significant;
use dovetail_workload::profiling::Curve;
use dovetail_workload::sensitivity::SensitivityProfile;
use serde_json::{Value, json};

use crate::{Observation, Options};

/// Width of the longest bar, in columns.
const BAR_WIDTH: f64 = 40.0;

/// The measured points and the computed profile.
pub(crate) struct ProfileResult {
    profile: SensitivityProfile,
    /// Observations by number of CPUs, from the largest downwards.
    pub(crate) points: Vec<(u32, Observation)>,
    pub(crate) curve: Curve,
    /// Iterations per second at speed 1.
    full_rate: f64,
    notes: Vec<String>,
}

impl ProfileResult {
    pub(crate) fn new(
        profile: SensitivityProfile,
        points: Vec<(u32, Observation)>,
        curve: Curve,
        full_rate: f64,
        notes: Vec<String>,
    ) -> Self {
        Self {
            profile,
            points,
            curve,
            full_rate,
            notes,
        }
    }

    pub(crate) fn profile(&self) -> &SensitivityProfile {
        &self.profile
    }

    /// Prints tables, notes and a summary.
    pub(crate) fn print(&self, options: &Options) -> Result<(), Failure> {
        console::print(self.cpu_table())?;
        if self.curve.data.is_some() {
            console::print(self.memory_table())?;
        }
        for note in self.notes.iter().filter(|_| !options.quiet) {
            eprintln!("note: {note}");
        }
        console::print(self.summary())?;
        match &options.out {
            Some(path) => console::print(format!("table: {0} (--sensitivity {0})", path.display())),
            None => console::print("pass --out FILE to write a table for --sensitivity"),
        }
    }

    fn summary(&self) -> String {
        let ideal = self.profile.sensitivity.ideal();
        format!(
            "{} on {} GPU{}: fastest from {} CPUs and {} GB per GPU on, {:.2} times as fast as at speed 1",
            self.profile.model,
            self.profile.gpus,
            if self.profile.gpus == 1 { "" } else { "s" },
            f64::from(ideal.cpu_milli) / 1000.0,
            significant(ideal.memory_mib as f64 / 1024.0),
            self.profile.sensitivity.top().factor()
        )
    }

    /// Measured rates, one row for each number of CPUs.
    fn cpu_table(&self) -> Table {
        let mut table = console::table(&["CPUs", "iterations/s", "95 %", "speed", ""]);
        let top = self
            .points
            .iter()
            .map(|(_, observation)| observation.measured.rate)
            .fold(0.0, f64::max);
        for (cpus, observation) in &self.points {
            let measured = &observation.measured;
            table.add_row([
                cpus.to_string(),
                significant(measured.rate),
                format!("± {}", significant(measured.plus_minus)),
                format!("{:.2}", measured.rate / self.full_rate),
                "█".repeat((measured.rate / top * BAR_WIDTH).round() as usize),
            ]);
        }
        console::align_numbers(&mut table);
        if let Some(bars) = table.column_mut(4) {
            bars.set_cell_alignment(CellAlignment::Left);
        }
        table
    }

    /// Speed by number of CPUs (rows) and memory per GPU (columns).
    fn memory_table(&self) -> Table {
        let gpus = f64::from(self.profile.gpus);
        let grid = self.curve.grid();
        let amounts = grid.first().map(|(_, row)| row.as_slice()).unwrap_or_default();
        let mut headings = vec!["CPUs \\ GB".to_owned()];
        headings.extend(amounts.iter().map(|(gb, _)| format!("{:.0}", gb / gpus)));
        let mut table = console::table(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        for (cpus, row) in grid.iter().rev() {
            let speeds = row
                .iter()
                .map(|(_, rate)| format!("{:.2}", rate / self.full_rate));
            table.add_row(
                std::iter::once(cpus.to_string())
                    .chain(speeds)
                    .collect::<Vec<_>>(),
            );
        }
        console::align_numbers(&mut table);
        table
    }

    pub(crate) fn to_json(&self) -> Value {
        let point = |(cpus, observation): &(u32, Observation)| {
            let measured = &observation.measured;
            json!({
                "cpus": cpus, "rate": measured.rate, "plus_minus": measured.plus_minus,
                "speed": measured.rate / self.full_rate, "iterations": measured.iterations,
                "seconds": measured.seconds, "memory_gb": observation.memory_gb,
                "ended_early": observation.ended_early,
            })
        };
        json!({
            "model": self.profile.model, "gpus": self.profile.gpus,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "iteration_s": self.profile.iteration_s,
            "sensitivity": self.profile.sensitivity.points(),
            "notes": self.notes,
        })
    }
}
