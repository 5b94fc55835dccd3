//! Bars: runs next to each other, and published numbers next to ours.

use dovetail_model::run::RunRecord;

use super::labels;
use crate::format;
use crate::svg::{
    Anchor, Axis, AxisKind, COLOURS, Canvas, Figure, LegendEntry, Mark, Scale, WIDTH, X_AXIS_HEIGHT,
    Y_LABEL_HEIGHT, fit, legend, text_width, ticks, x_axis,
};

/// Maximum number of bars.
const MAX_BARS: usize = 40;

/// Height of the row of one run.
const ROW: f64 = 28.0;

/// One run in [`compare_bars`].
struct Bar {
    /// Position among the records, which determines the colour.
    record: usize,
    name: String,
    /// Average completion time, in seconds.
    value: f64,
    /// Lower bound on it, in seconds.
    bound: Option<f64>,
}

impl Bar {
    /// Returns the value and its ratio to the bound, as shown next to the bar.
    fn texts(&self) -> (String, String) {
        let ratio = self
            .bound
            .map(|bound| format!("{}× bound", format::grouped(self.value / bound, 2)))
            .unwrap_or_default();
        (format::span(self.value), ratio)
    }

    /// Returns the larger of value and bound.
    fn extent(&self) -> f64 {
        self.value.max(self.bound.unwrap_or(0.0))
    }

    fn draw(&self, canvas: &mut Canvas, x: &Scale, (left, y): (f64, f64)) {
        let width = x.at(self.value) - left;
        canvas.rect(
            &format!("f{}", self.record % COLOURS),
            left,
            y + 4.0,
            width,
            ROW - 8.0,
        );
        let name = fit(&self.name, left - 14.0, 13.0);
        canvas.text("", Anchor::End, left - 8.0, y + 18.5, &name);
        let (value, ratio) = self.texts();
        canvas.text_pair("k", x.at(self.extent()) + 7.0, y + 18.5, &value, &ratio);
    }
}

/// Returns one bar per run, best first.
fn sorted_bars(records: &[&RunRecord]) -> Vec<Bar> {
    let names = labels(records);
    let bar = |(record, name): (usize, String)| {
        let summary = &records[record].summary;
        Bar {
            record,
            name,
            value: Some(summary.avg_jct_s)
                .filter(|v| v.is_finite())
                .unwrap_or(0.0)
                .max(0.0),
            bound: Some(summary.lower_bound_avg_jct_s).filter(|v| v.is_finite() && *v > 0.0),
        }
    };
    let mut bars: Vec<Bar> = names.into_iter().enumerate().map(bar).collect();
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    bars.truncate(MAX_BARS);
    bars
}

/// Returns the bound if all bars have the same one.
fn common_bound(bars: &[Bar]) -> Option<f64> {
    let first = bars.first()?.bound?;
    let same = |bar: &Bar| bar.bound.is_some_and(|b| (b - first).abs() <= first * 1e-9);
    bars.iter().all(same).then_some(first)
}

/// Draws the mean completion time of each run as a bar, best first, against the bound that no schedule can beat.
pub fn compare_bars(records: &[&RunRecord]) -> Figure {
    let bars = sorted_bars(records);
    let has_bound = bars.iter().any(|bar| bar.bound.is_some());
    let common = common_bound(&bars);
    let top = if has_bound { 24.0 } else { 4.0 };
    let bottom = top + ROW * bars.len().max(1) as f64;
    let mut canvas = Canvas::new(WIDTH, bottom + X_AXIS_HEIGHT);
    let widest_name = bars.iter().map(|bar| text_width(&bar.name, 13.0));
    let left = widest_name.fold(30.0, f64::max).min(150.0) + 10.0;
    let right = WIDTH - 12.0;
    let label_width = |bar: &Bar| {
        let (value, ratio) = bar.texts();
        text_width(&value, 13.5) + text_width(&ratio, 13.0) + 20.0
    };
    let labels_width = bars.iter().map(label_width).fold(0.0, f64::max);
    let most = bars.iter().map(Bar::extent).fold(0.0, f64::max).max(1e-6);
    let axis = Axis {
        label: "average job completion time",
        kind: AxisKind::Time,
        domain: (0.0, most * (right - left) / (right - left - labels_width)),
    };
    let x = x_axis(&mut canvas, (left, right), (top, bottom), &axis);
    for (row, bar) in bars.iter().enumerate() {
        let y = top + ROW * row as f64;
        bar.draw(&mut canvas, &x, (left, y));
        if let (None, Some(bound)) = (common, bar.bound) {
            canvas.line("b", (x.at(bound), y + 1.0), (x.at(bound), y + ROW - 1.0));
        }
    }
    if let Some(bound) = common {
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
    let dashes = if has_bound {
        " The dashed line is the lower bound of any schedule of these jobs if each is rigid and has exclusive GPUs."
    } else {
        ""
    };
    let caption = format!("Mean time from submission to completion, best first.{dashes}");
    Figure::new("compare", "Average job completion time", &caption, canvas)
}

/// One colour of bars in [`grouped_bars`].
#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    /// Name in the legend.
    pub name: String,
    /// One value per group; `None` where there is no number.
    pub values: Vec<Option<f64>>,
    /// Whether it is drawn as an outline: for published numbers.
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

/// Returns the value at a position if it is a finite number.
fn finite(values: &[Option<f64>], at: usize) -> Option<f64> {
    values.get(at).copied().flatten().filter(|v| v.is_finite())
}

/// Returns the range of the vertical axis: all values, zero, and room for labels above.
fn value_range(series: &[BarSeries]) -> (f64, f64) {
    let all = || {
        let values = series.iter().flat_map(|s| s.values.iter().copied().flatten());
        values.filter(|v| v.is_finite())
    };
    let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    let high = if high > low {
        high + (high - low) * 0.08
    } else {
        1.0
    };
    (low, high)
}

fn legend_entries(series: &[BarSeries]) -> Vec<LegendEntry> {
    let entry = |(i, s): (usize, &BarSeries)| LegendEntry {
        mark: if s.published {
            Mark::Hollow(i)
        } else {
            Mark::Box(i)
        },
        name: s.name.clone(),
        value: String::new(),
    };
    series.iter().enumerate().map(entry).collect()
}

/// Draws the bars of one group around `middle`.
fn draw_group(canvas: &mut Canvas, y: &Scale, (middle, bar): (f64, f64), series: &[BarSeries], group: usize) {
    for (i, s) in series.iter().enumerate() {
        let Some(value) = finite(&s.values, group) else {
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

/// Draws the name of a group below its bars, on two lines if `two_lines`.
fn draw_group_name(
    canvas: &mut Canvas,
    (middle, bottom): (f64, f64),
    room: f64,
    group: &str,
    two_lines: bool,
) {
    let (first, second) = match group.rsplit_once(' ') {
        Some(halves) if two_lines => halves,
        _ => (group, ""),
    };
    for (line, below) in [(first, 19.0), (second, 35.0)] {
        if !line.is_empty() {
            let text = fit(line, if two_lines { room } else { room - 4.0 }, 13.0);
            canvas.text("", Anchor::Middle, middle, bottom + below, &text);
        }
    }
}

/// Draws bars in groups, such as one group per policy with the published number next to ours.
pub fn grouped_bars(title: &str, y_label: &str, groups: &[&str], series: &[BarSeries]) -> Figure {
    const PLOT: f64 = 220.0;
    let entries = legend_entries(series);
    let top = legend(&mut Canvas::new(WIDTH, 0.0), 0.0, WIDTH, &entries) + Y_LABEL_HEIGHT;
    let bottom = top + PLOT;
    // Names of groups that are too wide for one line get two.
    let narrow = (WIDTH - 40.0) / groups.len().max(1) as f64 - 4.0;
    let is_wide = |group: &&str| text_width(group, 13.0) > narrow && group.contains(' ');
    let two_lines = groups.iter().any(is_wide);
    let mut canvas = Canvas::new(WIDTH, bottom + if two_lines { 44.0 } else { 28.0 });
    legend(&mut canvas, 0.0, WIDTH, &entries);

    let y = Scale::new(AxisKind::Linear, value_range(series), (bottom, top));
    let marks = ticks(&y, 6).marks;
    let widest_mark = marks.iter().map(|(_, label)| text_width(label, 13.0));
    let left = widest_mark.fold(0.0, f64::max) + 10.0;
    let label = fit(y_label, WIDTH - left, 12.0);
    canvas.text("m", Anchor::Start, left, top - 9.0, &label);
    for (value, label) in &marks {
        canvas.line("g", (left, y.at(*value)), (WIDTH, y.at(*value)));
        canvas.text("m", Anchor::End, left - 7.0, y.at(*value) + 4.0, label);
    }
    let room = (WIDTH - left) / groups.len().max(1) as f64;
    let bar = (room * 0.8 / series.len().max(1) as f64).min(46.0);
    for (g, group) in groups.iter().enumerate() {
        let middle = left + room * (g as f64 + 0.5);
        draw_group_name(&mut canvas, (middle, bottom), room, group, two_lines);
        draw_group(&mut canvas, &y, (middle, bar), series, g);
    }
    canvas.line("a", (left, y.at(0.0)), (WIDTH, y.at(0.0)));
    let caption = if series.iter().any(|s| s.published) {
        "Dashed outline: published. Filled: ours."
    } else {
        ""
    };
    Figure::new("bars", title, caption, canvas)
}
