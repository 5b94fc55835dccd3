//! The measured profile as a figure.

use dovetail_report::Figure;
use dovetail_report::figures::{LineChart, Series};

use crate::result::ProfileResult;

impl ProfileResult {
    /// Draws the rate by number of CPUs, or by memory for each number of CPUs if there is a data set.
    pub(crate) fn figure(&self) -> Figure {
        let model = &self.profile().model;
        if self.curve.data.is_some() {
            return LineChart {
                name: "profile",
                title: &format!("{model}: speed over memory"),
                caption: "Measured at each number of CPUs; memory computed: what is not cached is read from disk.",
                x_label: "GB of memory",
                y_label: "iterations/s",
                ..LineChart::default()
            }
            .draw(&self.by_memory());
        }
        LineChart {
            name: "profile",
            title: &format!("{model}: speed over CPUs"),
            caption: "The command bound to each number of CPUs, with 95 % confidence intervals.",
            x_label: "CPUs",
            y_label: "iterations/s",
            ..LineChart::default()
        }
        .draw(&[self.by_cpus()])
    }

    fn by_memory(&self) -> Vec<Series> {
        let name = |cpus: u32| format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" });
        self.curve
            .grid()
            .into_iter()
            .rev()
            .map(|(cpus, row)| Series::new(name(cpus), row))
            .collect()
    }

    fn by_cpus(&self) -> Series {
        let mut points: Vec<_> = self
            .points
            .iter()
            .map(|(cpus, observation)| (f64::from(*cpus), observation.measured))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let intervals = points
            .iter()
            .map(|(_, m)| (m.rate - m.plus_minus, m.rate + m.plus_minus));
        let rates = points.iter().map(|(cpus, m)| (*cpus, m.rate));
        Series::new("measured", rates).with_errors(intervals)
    }
}
