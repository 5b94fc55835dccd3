//! Bars: runs side by side, and published numbers beside ours.

use dovetail_model::run::RunRecord;

use super::labels;
use crate::format;
use crate::svg::{
    Anchor, Axis, AxisKind, COLOURS, Canvas, Figure, LegendEntry, Mark, Scale, WIDTH, X_AXIS_HEIGHT,
    Y_LABEL_HEIGHT, fit, legend, text_width, ticks, x_axis,
};

/// Most bars drawn.
const MAX_BARS: usize = 40;

/// Mean completion time of each run as a bar, best first, against the bound that no schedule can beat.
pub fn compare_bars(records: &[&RunRecord]) -> Figure {
    const ROW: f64 = 28.0;
    let names = labels(records);
    let mut order: Vec<usize> = (0..records.len()).collect();
    let value = |i: usize| {
        Some(records[i].summary.avg_jct_s)
            .filter(|v| v.is_finite())
            .unwrap_or(0.0)
            .max(0.0)
    };
    let bound =
        |i: usize| Some(records[i].summary.lower_bound_avg_jct_s).filter(|v| v.is_finite() && *v > 0.0);
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    order.truncate(MAX_BARS);
    let bounds: Vec<f64> = order.iter().filter_map(|i| bound(*i)).collect();
    let same_bound = bounds.first().copied().filter(|first| {
        bounds.len() == order.len() && bounds.iter().all(|b| (b - first).abs() <= first * 1e-9)
    });

    let texts: Vec<(String, String)> = order
        .iter()
        .map(|&i| {
            let ratio = bound(i)
                .map(|b| format!("{}× bound", format::grouped(value(i) / b, 2)))
                .unwrap_or_default();
            (format::span(value(i)), ratio)
        })
        .collect();

    let top = if bounds.is_empty() { 4.0 } else { 24.0 };
    let bottom = top + ROW * order.len().max(1) as f64;
    let mut canvas = Canvas::new(WIDTH, bottom + X_AXIS_HEIGHT);
    let left = order
        .iter()
        .map(|i| text_width(&names[*i], 13.0))
        .fold(30.0, f64::max)
        .min(150.0)
        + 10.0;
    let right = WIDTH - 12.0;
    let beside = texts
        .iter()
        .map(|(v, r)| text_width(v, 13.5) + text_width(r, 13.0) + 20.0)
        .fold(0.0, f64::max);
    let most = order
        .iter()
        .map(|i| value(*i).max(bound(*i).unwrap_or(0.0)))
        .fold(0.0, f64::max)
        .max(1e-6);
    let domain = (0.0, most * (right - left) / (right - left - beside));
    let axis = Axis {
        label: "average job completion time",
        kind: AxisKind::Time,
        domain,
    };
    let x = x_axis(&mut canvas, (left, right), (top, bottom), &axis);
    for (row, &i) in order.iter().enumerate() {
        let y = top + ROW * row as f64;
        canvas.rect(
            &format!("f{}", i % COLOURS),
            left,
            y + 4.0,
            x.at(value(i)) - left,
            ROW - 8.0,
        );
        canvas.text(
            "",
            Anchor::End,
            left - 8.0,
            y + 18.5,
            &fit(&names[i], left - 14.0, 13.0),
        );
        let after = x.at(value(i).max(bound(i).unwrap_or(0.0)));
        let (value, ratio) = &texts[row];
        canvas.text_pair("k", after + 7.0, y + 18.5, value, ratio);
        if let (None, Some(bound)) = (same_bound, bound(i)) {
            canvas.line("b", (x.at(bound), y + 1.0), (x.at(bound), y + ROW - 1.0));
        }
    }
    if let Some(bound) = same_bound {
        let at = x.at(bound);
        canvas.line("b", (at, top - 6.0), (at, bottom));
        let label = format!("lower bound {}", format::span(bound));
        let half = text_width(&label, 12.6) / 2.0;
        canvas.text(
            "m",
            Anchor::Middle,
            at.clamp(half, WIDTH - half),
            top - 11.0,
            &label,
        );
    }
    let dashes = if bounds.is_empty() {
        ""
    } else {
        " The dashed line is a bound that no schedule of these jobs can beat while each is rigid and has its GPUs to itself."
    };
    let caption = format!("Mean time from submission to the end, best first.{dashes}");
    Figure::new("compare", "Average job completion time", &caption, canvas)
}

/// One colour of bars in [`grouped_bars`].
#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    /// Its name in the legend.
    pub name: String,
    /// One value per group; none where there is no number.
    pub values: Vec<Option<f64>>,
    /// Drawn as an outline: for numbers somebody else published.
    pub published: bool,
}

impl BarSeries {
    /// Our numbers.
    pub fn ours(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().collect(),
            published: false,
        }
    }

    /// Published numbers.
    pub fn published(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        Self {
            published: true,
            ..Self::ours(name, values)
        }
    }
}

/// Bars in groups, such as one group per policy with the published number beside ours.
pub fn grouped_bars(title: &str, y_label: &str, groups: &[&str], series: &[BarSeries]) -> Figure {
    const PLOT: f64 = 220.0;
    let mark = |i: usize, s: &BarSeries| {
        if s.published {
            Mark::Hollow(i)
        } else {
            Mark::Box(i)
        }
    };
    let entries: Vec<LegendEntry> = series
        .iter()
        .enumerate()
        .map(|(i, s)| LegendEntry {
            mark: mark(i, s),
            name: s.name.clone(),
            value: String::new(),
        })
        .collect();
    let top = legend(&mut Canvas::new(WIDTH, 0.0), 0.0, WIDTH, &entries) + Y_LABEL_HEIGHT;
    let bottom = top + PLOT;
    // Names of groups that are too wide for one line get two.
    let narrow = (WIDTH - 40.0) / groups.len().max(1) as f64 - 4.0;
    let two_lines = groups
        .iter()
        .any(|g| text_width(g, 13.0) > narrow && g.contains(' '));
    let mut canvas = Canvas::new(WIDTH, bottom + if two_lines { 44.0 } else { 28.0 });
    legend(&mut canvas, 0.0, WIDTH, &entries);

    let finite = |v: &Option<f64>| v.filter(|v| v.is_finite());
    let all = || series.iter().flat_map(|s| s.values.iter().filter_map(finite));
    let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    let high = if high > low {
        high + (high - low) * 0.08
    } else {
        1.0
    };
    let y = Scale::new(AxisKind::Linear, (low, high), (bottom, top));
    let marks = ticks(&y, 6).marks;
    let left = marks
        .iter()
        .map(|(_, label)| text_width(label, 13.0))
        .fold(0.0, f64::max)
        + 10.0;
    canvas.text(
        "m",
        Anchor::Start,
        left,
        top - 9.0,
        &fit(y_label, WIDTH - left, 12.0),
    );
    for (value, label) in &marks {
        canvas.line("g", (left, y.at(*value)), (WIDTH, y.at(*value)));
        canvas.text("m", Anchor::End, left - 7.0, y.at(*value) + 4.0, label);
    }
    let room = (WIDTH - left) / groups.len().max(1) as f64;
    let bar = (room * 0.8 / series.len().max(1) as f64).min(46.0);
    for (g, group) in groups.iter().enumerate() {
        let middle = left + room * (g as f64 + 0.5);
        let (first, second) = match group.rsplit_once(' ') {
            Some(halves) if two_lines => halves,
            _ => (*group, ""),
        };
        for (line, below) in [(first, 19.0), (second, 35.0)] {
            if !line.is_empty() {
                let text = fit(line, if two_lines { room } else { room - 4.0 }, 13.0);
                canvas.text("", Anchor::Middle, middle, bottom + below, &text);
            }
        }
        for (i, s) in series.iter().enumerate() {
            let Some(value) = s.values.get(g).and_then(finite) else {
                continue;
            };
            let x = middle + bar * (i as f64 - series.len() as f64 / 2.0);
            let (from, to) = (y.at(value.max(0.0)), y.at(value.min(0.0)));
            let colour = i % COLOURS;
            let class = if s.published {
                format!("f{colour} s{colour} hollow")
            } else {
                format!("f{colour}")
            };
            canvas.rect(&class, x + bar * 0.06, from, bar * 0.88, to - from);
            let label = format::significant(value);
            if text_width(&label, 11.0) <= bar + 2.0 {
                canvas.text("sm", Anchor::Middle, x + bar / 2.0, from - 4.0, &label);
            }
        }
    }
    canvas.line("a", (left, y.at(0.0)), (WIDTH, y.at(0.0)));
    let published = series.iter().any(|s| s.published);
    let caption = if published {
        "Dashed outline: published. Filled: ours."
    } else {
        ""
    };
    Figure::new("bars", title, caption, canvas)
}
