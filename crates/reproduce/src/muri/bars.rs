//! The bars of Muri's figures: published numbers and ours.

use serde::Serialize;

/// The numbers in the scripts that draw figures 9 to 13 of Muri (SIGCOMM'22), and, for tables 3 and 4, what the 400 rows
/// of each `job.csv` of its test bed give; all from the authors' repository. `setting` is the run of Muri's simulator
/// that gives these numbers; after a question mark it is the closest one, because none is known to. `p99_setting` is
/// set where the last number is from another run.
const PUBLISHED: &str = include_str!("published.csv");

/// A metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    AvgJct,
    Makespan,
    P99Jct,
}

impl Metric {
    pub(super) const ALL: [Metric; 3] = [Metric::AvgJct, Metric::Makespan, Metric::P99Jct];

    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::AvgJct => "average JCT",
            Metric::Makespan => "makespan",
            Metric::P99Jct => "p99 of JCT",
        }
    }
}

/// The metrics of a run in seconds; `None` where nothing was published or run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Metrics {
    pub avg_jct_s: Option<f64>,
    pub makespan_s: Option<f64>,
    pub p99_jct_s: Option<f64>,
}

impl Metrics {
    fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::AvgJct => self.avg_jct_s,
            Metric::Makespan => self.makespan_s,
            Metric::P99Jct => self.p99_jct_s,
        }
    }
}

/// Where a number is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Published,
    /// Our run with the time model of Muri's simulator.
    Simulator,
    /// Our run with our own time model.
    Exact,
}

impl Source {
    pub(super) const ALL: [Source; 3] = [Source::Published, Source::Simulator, Source::Exact];
}

/// One policy on one trace.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bar {
    #[serde(skip)]
    figure: &'static str,
    pub trace: &'static str,
    /// The policy, as the paper calls it.
    pub series: &'static str,
    /// Policy of the run with Muri's time model, if there is one.
    pub setting: Option<String>,
    pub p99_setting: Option<String>,
    /// Whether that setting is known to be the published one.
    pub setting_is_known: bool,
    pub published: Metrics,
    pub simulator: Metrics,
    pub exact: Metrics,
}

impl Bar {
    pub(super) fn get(&self, source: Source, metric: Metric) -> Option<f64> {
        match source {
            Source::Published => self.published.get(metric),
            Source::Simulator => self.simulator.get(metric),
            Source::Exact => self.exact.get(metric),
        }
    }

    /// Returns policy and trace.
    pub(super) fn name(&self) -> String {
        format!("{} on {}", self.series, trace_label(self.trace))
    }

    fn parse(line: &'static str) -> Option<Bar> {
        let fields: [&'static str; 8] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        let [figure, trace, series, setting, p99_setting, jct, makespan, p99] = fields;
        let policy = |text: &str| {
            let text = text.trim_start_matches('?');
            (!text.is_empty()).then(|| text.replace(' ', ","))
        };
        Some(Bar {
            figure,
            trace,
            series,
            setting: policy(setting),
            p99_setting: policy(p99_setting),
            setting_is_known: !setting.is_empty() && !setting.starts_with('?'),
            published: Metrics {
                avg_jct_s: jct.parse().ok(),
                makespan_s: makespan.parse().ok(),
                p99_jct_s: p99.parse().ok(),
            },
            simulator: Metrics::default(),
            exact: Metrics::default(),
        })
    }
}

/// Returns the published bars of a figure, trace by trace.
pub(super) fn published(figure: &str) -> Vec<Bar> {
    PUBLISHED
        .lines()
        .filter_map(Bar::parse)
        .filter(|bar| bar.figure == figure)
        .collect()
}

/// All bars of a figure, and which policies are compared.
pub(super) struct Comparison {
    pub bars: Vec<Bar>,
    /// Each policy with the one that its numbers are divided by.
    pub pairs: &'static [(&'static str, &'static str)],
}

impl Comparison {
    pub(super) fn traces(&self) -> Vec<&'static str> {
        let mut traces: Vec<&'static str> = self.bars.iter().map(|bar| bar.trace).collect();
        traces.dedup();
        traces
    }

    fn bar(&self, trace: &str, series: &str) -> Option<&Bar> {
        self.bars
            .iter()
            .find(|bar| bar.trace == trace && bar.series == series)
    }

    /// Returns a policy's number divided by that of the policy it is compared with.
    pub(super) fn ratio(&self, trace: &str, series: &str, source: Source, metric: Metric) -> Option<f64> {
        let (_, base) = self.pairs.iter().find(|(policy, _)| *policy == series)?;
        let number = |series: &str| self.bar(trace, series)?.get(source, metric);
        Some(number(series)? / number(base)?)
    }

    /// Returns the ratios of these policies on all traces that have them.
    pub(super) fn ratios(&self, series: &[&str], source: Source, metric: Metric) -> Vec<f64> {
        self.traces()
            .iter()
            .flat_map(|trace| series.iter().map(move |policy| (*trace, *policy)))
            .filter_map(|(trace, policy)| self.ratio(trace, policy, source, metric))
            .collect()
    }

    /// Returns the policies that these are compared with.
    pub(super) fn bases(&self, series: &[&str]) -> Vec<&'static str> {
        let mut bases: Vec<&'static str> = self
            .pairs
            .iter()
            .filter(|(policy, _)| series.contains(policy))
            .map(|(_, base)| *base)
            .collect();
        bases.dedup();
        bases
    }
}

/// Returns the name of a trace in the paper: `1'` for `trace1_pr`, `2 types` for `job_type_2`.
pub(super) fn trace_label(trace: &str) -> String {
    if let Some(types) = trace.strip_prefix("job_type_") {
        return format!("{types} {}", if types == "1" { "type" } else { "types" });
    }
    match trace.strip_suffix("_pr") {
        Some(trace) => format!("{trace}'"),
        None => trace.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_line_is_parsed() {
        let counts = ["fig9", "fig10", "fig11", "fig12", "fig13", "table3"].map(|f| published(f).len());
        assert_eq!(counts, [24, 32, 12, 16, 16, 6]);
        assert_eq!(counts.iter().sum::<usize>(), PUBLISHED.lines().count() - 1);
        for bar in published("fig9") {
            assert!(
                Metric::ALL
                    .iter()
                    .all(|metric| bar.get(Source::Published, *metric).is_some())
            );
        }
    }
}
