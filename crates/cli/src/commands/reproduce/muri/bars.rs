//! The bars of Muri's figures: what was published, and what we get.

use serde::Serialize;

/// The numbers in the scripts that draw figures 9 to 13 of Muri (SIGCOMM'22), and, for tables 3 and 4, what the 400 rows
/// of each `job.csv` of its test bed give; all from the authors' repository. `setting` is the run of Muri's simulator
/// that gives these numbers, with a question mark where none is known to, then it is the nearest; `p99_setting` is
/// there where the last number is from another run.
const PUBLISHED: &str = include_str!("published.csv");

/// What is measured of a run.
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

/// Seconds; none where nothing was published or run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Numbers {
    pub avg_jct_s: Option<f64>,
    pub makespan_s: Option<f64>,
    pub p99_jct_s: Option<f64>,
}

impl Numbers {
    pub(super) fn of(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::AvgJct => self.avg_jct_s,
            Metric::Makespan => self.makespan_s,
            Metric::P99Jct => self.p99_jct_s,
        }
    }
}

/// Whose numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Published,
    /// Ours, counted as Muri's simulator counts.
    Simulator,
    /// Ours, with our own model of time.
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
    pub series: &'static str,
    /// The run as in Muri's simulator, if its policy is there.
    pub setting: Option<String>,
    pub p99_setting: Option<String>,
    /// Whether that setting is known to be the published one.
    pub setting_is_known: bool,
    pub published: Numbers,
    pub simulator: Numbers,
    pub exact: Numbers,
}

impl Bar {
    pub(super) fn of(&self, source: Source, metric: Metric) -> Option<f64> {
        match source {
            Source::Published => self.published.of(metric),
            Source::Simulator => self.simulator.of(metric),
            Source::Exact => self.exact.of(metric),
        }
    }

    /// Policy and trace, for people.
    pub(super) fn name(&self) -> String {
        format!("{} on {}", self.series, short(self.trace))
    }

    fn parse(line: &'static str) -> Option<Bar> {
        let cells: [&'static str; 8] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        let [figure, trace, series, setting, p99_setting, jct, makespan, p99] = cells;
        let run = |text: &str| {
            let text = text.trim_start_matches('?');
            (!text.is_empty()).then(|| text.replace(' ', ","))
        };
        Some(Bar {
            figure,
            trace,
            series,
            setting: run(setting),
            p99_setting: run(p99_setting),
            setting_is_known: !setting.is_empty() && !setting.starts_with('?'),
            published: Numbers {
                avg_jct_s: jct.parse().ok(),
                makespan_s: makespan.parse().ok(),
                p99_jct_s: p99.parse().ok(),
            },
            simulator: Numbers::default(),
            exact: Numbers::default(),
        })
    }
}

/// The bars of a figure, trace by trace.
pub(super) fn published(figure: &str) -> Vec<Bar> {
    PUBLISHED
        .lines()
        .filter_map(Bar::parse)
        .filter(|bar| bar.figure == figure)
        .collect()
}

/// All bars of a figure, and who is compared with whom.
pub(super) struct Figures {
    pub bars: Vec<Bar>,
    /// Policy, and the one its numbers are divided by.
    pub over: &'static [(&'static str, &'static str)],
}

impl Figures {
    pub(super) fn traces(&self) -> Vec<&'static str> {
        let mut traces: Vec<&'static str> = self.bars.iter().map(|b| b.trace).collect();
        traces.dedup();
        traces
    }

    pub(super) fn bar(&self, trace: &str, series: &str) -> Option<&Bar> {
        self.bars.iter().find(|b| b.trace == trace && b.series == series)
    }

    /// A policy's number over that of the one it is compared with.
    pub(super) fn ratio(&self, trace: &str, series: &str, source: Source, metric: Metric) -> Option<f64> {
        let (_, base) = self.over.iter().find(|(s, _)| *s == series)?;
        let of = |series: &str| self.bar(trace, series)?.of(source, metric);
        Some(of(series)? / of(base)?)
    }

    /// The same on every trace where there is one.
    pub(super) fn ratios(&self, series: &[&str], source: Source, metric: Metric) -> Vec<f64> {
        self.traces()
            .iter()
            .flat_map(|trace| series.iter().map(move |s| (*trace, *s)))
            .filter_map(|(trace, series)| self.ratio(trace, series, source, metric))
            .collect()
    }
}

/// A trace as the paper has it: `1'` for `trace1_pr`, `2 types` for `job_type_2`.
pub(super) fn short(trace: &str) -> String {
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
    fn every_published_line_is_read() {
        let counts = ["fig9", "fig10", "fig11", "fig12", "fig13", "table3"].map(|f| published(f).len());
        assert_eq!(counts, [24, 32, 12, 16, 16, 6]);
        assert_eq!(counts.iter().sum::<usize>(), PUBLISHED.lines().count() - 1);
        for bar in published("fig9") {
            assert!(
                Metric::ALL
                    .iter()
                    .all(|m| bar.of(Source::Published, *m).is_some())
            );
        }
    }
}
