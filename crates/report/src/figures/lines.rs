//! A line chart, mainly used to compare our numbers with published ones.

use crate::svg::{
    Anchor, Axis, AxisKind, COLOURS, Canvas, Figure, Frame, LegendEntry, Mark, PathData, WIDTH,
    X_AXIS_HEIGHT, Y_LABEL_HEIGHT, fit, frame, legend, text_width,
};

/// One line. Lines of the same name share a colour, so that `tiresias` published and ours form a pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Name of the line.
    pub name: String,
    /// Points in drawing order; points that are not finite are skipped.
    pub points: Vec<(f64, f64)>,
    /// Whether it is dashed: for published numbers.
    pub dashed: bool,
    /// `(low, high)` around each point, or empty.
    pub errors: Vec<(f64, f64)>,
}

impl Series {
    /// Returns a solid line, for our numbers.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns a dashed line, for published numbers.
    pub fn published(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            dashed: true,
            ..Self::new(name, points)
        }
    }

    /// Adds a range around each point.
    pub fn with_errors(mut self, errors: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.errors = errors.into_iter().collect();
        self
    }
}

/// Draws a line chart with linear axes.
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> Figure {
    LineChart {
        title,
        x_label,
        y_label,
        ..LineChart::default()
    }
    .draw(series)
}

/// A line chart with configurable axes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineChart<'a> {
    /// The file name without extension; "lines" if empty.
    pub name: &'a str,
    /// Heading.
    pub title: &'a str,
    /// Caption; a sentence on dashed lines is added if there are any.
    pub caption: &'a str,
    /// Label of the horizontal axis.
    pub x_label: &'a str,
    /// Label of the vertical axis.
    pub y_label: &'a str,
    /// Kind of the horizontal axis.
    pub x: AxisKind,
    /// Kind of the vertical axis.
    pub y: AxisKind,
}

impl LineChart<'_> {
    /// Draws the chart.
    pub fn draw(&self, series: &[Series]) -> Figure {
        const PLOT: f64 = 240.0;
        let names = distinct(series);
        let (has_dashed, has_solid) = (series.iter().any(|s| s.dashed), series.iter().any(|s| !s.dashed));
        let (x_domain, y_domain) = (x_domain(series), y_domain(series, self.y));
        let x = Axis {
            label: self.x_label,
            kind: self.x,
            domain: x_domain,
        };
        let y = Axis {
            label: self.y_label,
            kind: self.y,
            domain: y_domain,
        };

        // Names are at the ends of their lines if they fit there, otherwise in a legend.
        let widest = names
            .iter()
            .map(|name| text_width(name, 13.5))
            .fold(0.0, f64::max);
        let margin = widest.min(120.0) + 15.0;
        let trial = frame(
            &mut Canvas::new(0.0, 0.0),
            (0.0, WIDTH - margin),
            (0.0, PLOT),
            &x,
            &y,
        );
        let ends = direct_labels(series, &names, &trial).filter(|_| names.len() > 1 && widest <= 120.0);

        let mut entries = vec![];
        if ends.is_none() && names.len() > 1 {
            let lines = names.iter().enumerate();
            entries.extend(lines.map(|(i, name)| entry(Mark::Line(i), name)));
        }
        if has_dashed && has_solid {
            entries.extend([entry(Mark::Solid, "ours"), entry(Mark::Dashed, "published")]);
        }
        let top = legend(&mut Canvas::new(0.0, 0.0), 0.0, WIDTH, &entries) + Y_LABEL_HEIGHT;
        let mut canvas = Canvas::new(WIDTH, top + PLOT + X_AXIS_HEIGHT);
        legend(&mut canvas, 0.0, WIDTH, &entries);
        let right = WIDTH - if ends.is_some() { margin } else { 12.0 };
        let frame = frame(&mut canvas, (0.0, right), (top, top + PLOT), &x, &y);
        for line in series {
            let colour = names.iter().position(|name| *name == line.name).unwrap_or(0) % COLOURS;
            draw_line(&mut canvas, &frame, line, colour);
        }
        for (i, at, end) in ends.iter().flatten() {
            let class = format!("e s{}", i % COLOURS);
            canvas.line(&class, (right + 4.0, top + end), (right + 10.0, top + at));
            let name = fit(names[*i], 120.0, 13.0);
            canvas.text("", Anchor::Start, right + 13.0, top + at + 4.0, &name);
        }
        let dashes = if has_dashed {
            "Dashed: published. Solid: ours."
        } else {
            ""
        };
        let caption = [self.caption, dashes].join(" ");
        let name = if self.name.is_empty() { "lines" } else { self.name };
        Figure::new(name, self.title, caption.trim(), canvas)
    }
}

fn entry(mark: Mark, name: &str) -> LegendEntry {
    LegendEntry {
        mark,
        name: name.into(),
        value: String::new(),
    }
}

fn distinct(series: &[Series]) -> Vec<&str> {
    let mut names: Vec<&str> = vec![];
    for line in series {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    names
}

fn finite(series: &Series) -> impl Iterator<Item = (f64, f64)> + '_ {
    series
        .points
        .iter()
        .copied()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
}

fn x_domain(series: &[Series]) -> (f64, f64) {
    let xs = || series.iter().flat_map(finite).map(|p| p.0);
    if xs().next().is_none() {
        return (0.0, 1.0);
    }
    (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max))
}

fn y_domain(series: &[Series], kind: AxisKind) -> (f64, f64) {
    let errors = series
        .iter()
        .flat_map(|s| &s.errors)
        .flat_map(|(low, high)| [*low, *high]);
    let all: Vec<f64> = series
        .iter()
        .flat_map(finite)
        .map(|p| p.1)
        .chain(errors)
        .filter(|v| v.is_finite())
        .collect();
    let high = all.iter().copied().fold(f64::MIN, f64::max);
    let low = all.iter().copied().fold(f64::MAX, f64::min);
    match kind {
        _ if all.is_empty() => (0.0, 1.0),
        AxisKind::Log | AxisKind::LogTime => (
            all.iter()
                .copied()
                .filter(|v| *v > 0.0)
                .fold(f64::MAX, f64::min)
                .min(high),
            high,
        ),
        AxisKind::Linear | AxisKind::Time | AxisKind::Percent => (
            low.min(0.0),
            high.max(0.0) + (high.max(0.0) - low.min(0.0)) * 0.04,
        ),
    }
}

/// Returns `(name, height of the name, height of the line)` at the right edge; `None` if a name would be too far from its line.
fn direct_labels(series: &[Series], names: &[&str], frame: &Frame) -> Option<Vec<(usize, f64, f64)>> {
    const APART: f64 = 15.0;
    const FAR: f64 = 26.0;
    let mut ends: Vec<(usize, f64, f64)> = vec![];
    for (i, name) in names.iter().enumerate() {
        let of_name = series.iter().filter(|s| s.name == *name);
        let last = of_name.flat_map(finite).max_by(|a, b| a.0.total_cmp(&b.0))?;
        if frame.x.at(last.0) < frame.right - 40.0 {
            return None;
        }
        ends.push((i, frame.y.at(last.1), frame.y.at(last.1)));
    }
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    for i in 1..ends.len() {
        ends[i].1 = ends[i].1.max(ends[i - 1].1 + APART);
    }
    let mut below = frame.bottom + APART;
    for end in ends.iter_mut().rev() {
        end.1 = end.1.min(below - APART);
        below = end.1;
    }
    let near = ends.iter().all(|(_, at, end)| (at - end).abs() <= FAR);
    (near && ends.first().is_none_or(|e| e.1 >= frame.top - APART)).then_some(ends)
}

fn draw_line(canvas: &mut Canvas, frame: &Frame, series: &Series, colour: usize) {
    let mut path = PathData::default();
    for (x, y) in finite(series) {
        let (x, y) = (frame.x.at(x), frame.y.at(y));
        if path.is_empty() {
            path.move_to(x, y)
        } else {
            path.line_to(x, y)
        }
    }
    if path.is_empty() {
        return;
    }
    for ((x, _), (low, high)) in series
        .points
        .iter()
        .zip(&series.errors)
        .filter(|(p, _)| p.0.is_finite())
    {
        let (x, low, high) = (frame.x.at(*x), frame.y.at(*low), frame.y.at(*high));
        let mut bar = PathData::default();
        bar.move_to(x - 3.5, high);
        bar.horizontal_to(x + 3.5);
        bar.move_to(x, high);
        bar.vertical_to(low);
        bar.move_to(x - 3.5, low);
        bar.horizontal_to(x + 3.5);
        canvas.path(&format!("e s{colour}"), &bar, None);
    }
    let dash = if series.dashed { " d" } else { "" };
    canvas.path(&format!("l s{colour}{dash}"), &path, Some(&series.name));
    if series.points.len() <= 40 {
        for (x, y) in finite(series) {
            let class = if series.dashed {
                format!("o s{colour}")
            } else {
                format!("f{colour}")
            };
            canvas.circle(&class, frame.x.at(x), frame.y.at(y), 3.0);
        }
    }
}
