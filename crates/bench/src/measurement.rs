//! Measurements and how they are printed.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::{count, significant};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A measurement with its CPU time and a goal in words.
#[derive(Debug, Serialize)]
pub(crate) struct CpuMeasurement {
    pub(crate) name: String,
    /// CPU time, in seconds.
    pub(crate) seconds: f64,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// Empty if there is no goal.
    pub(crate) goal: &'static str,
}

/// A measurement with a goal that is met or missed.
#[derive(Debug, Serialize)]
pub(crate) struct GoalMeasurement {
    name: String,
    value: f64,
    unit: &'static str,
    goal: f64,
    /// Whether the value should exceed the goal, rather than stay below it.
    more_is_better: bool,
}

impl GoalMeasurement {
    /// Creates a measurement whose value should be at least `goal`.
    pub(crate) fn at_least(name: impl Into<String>, value: f64, unit: &'static str, goal: f64) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            goal,
            more_is_better: true,
        }
    }

    /// Creates a measurement whose value should be below `goal`.
    pub(crate) fn below(name: impl Into<String>, value: f64, unit: &'static str, goal: f64) -> Self {
        Self {
            more_is_better: false,
            ..Self::at_least(name, value, unit, goal)
        }
    }

    fn is_met(&self) -> bool {
        (self.value >= self.goal) == self.more_is_better || self.value == self.goal
    }
}

/// Prints measurements with their CPU time, as a table or JSON.
pub(crate) fn print_cpu(measurements: &[CpuMeasurement], json: bool) -> Result<(), Failure> {
    if json {
        return console::print(serde_json::to_string_pretty(measurements).or_work()?);
    }
    let mut table = console::table(&["measurement", "CPU time", "value", "goal"]);
    for m in measurements {
        table.add_row([
            m.name.clone(),
            format!("{:.3} s", m.seconds),
            format!("{} {}", three_digits(m.value), m.unit),
            m.goal.to_owned(),
        ]);
    }
    console::align_numbers(&mut table);
    console::print(table)
}

/// Prints measurements with their goals, as a table or JSON.
pub(crate) fn print_goals(measurements: &[GoalMeasurement], json: bool) -> Result<(), Failure> {
    if json {
        return console::print(serde_json::to_string_pretty(measurements).or_work()?);
    }
    let number = |x: f64| match x >= 1000.0 {
        true => count(x as u64),
        false => significant(x),
    };
    let mut table = console::table(&["measurement", "value", "goal", ""]);
    for m in measurements {
        let sign = if m.more_is_better { "≥" } else { "<" };
        table.add_row([
            m.name.clone(),
            format!("{} {}", number(m.value), m.unit),
            format!("{sign} {}", number(m.goal)),
            if m.is_met() { "met" } else { "missed" }.to_owned(),
        ]);
    }
    console::align_numbers(&mut table);
    console::print(table)
}

/// Formats a number with at least three digits.
fn three_digits(value: f64) -> String {
    match value {
        v if v >= 100.0 || v == 0.0 => count(v as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// Returns the CPU time of this thread in seconds. Unlike wall time it hardly depends on other load of the machine.
pub(crate) fn thread_cpu_seconds() -> f64 {
    cpu_seconds(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of this process in seconds.
pub(crate) fn process_cpu_seconds() -> f64 {
    cpu_seconds(ClockId::ProcessCPUTime)
}

fn cpu_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the median, or 0 if there are no values.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50)
}

/// Returns the value at this percentile, or 0 if there are no values.
pub(crate) fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let index = values.len() * percent / 100;
    values.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_unsorted_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(percentile((0..100).rev().map(f64::from).collect(), 99), 99.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn a_goal_is_met_in_its_direction() {
        assert!(GoalMeasurement::at_least("rate", 5.0, "/s", 5.0).is_met());
        assert!(!GoalMeasurement::at_least("rate", 4.0, "/s", 5.0).is_met());
        assert!(GoalMeasurement::below("latency", 4.0, "ms", 5.0).is_met());
        assert!(!GoalMeasurement::below("latency", 6.0, "ms", 5.0).is_met());
    }
}
