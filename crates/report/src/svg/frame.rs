//! Axes, grid and legend around the data.

use super::{Anchor, AxisKind, COLOURS, Canvas, Scale, fit, text_width, ticks};

/// An axis: its label, kind and range.
pub(crate) struct Axis<'a> {
    pub(crate) label: &'a str,
    pub(crate) kind: AxisKind,
    pub(crate) domain: (f64, f64),
}

/// The area of the data, with its scales.
pub(crate) struct Frame {
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

/// Height of the horizontal axis below the data.
pub(crate) const X_AXIS_HEIGHT: f64 = 40.0;
/// Height of the label of the vertical axis above the data.
pub(crate) const Y_LABEL_HEIGHT: f64 = 22.0;

/// Draws axes for data between `top` and `bottom`; both axis labels are outside of that range.
pub(crate) fn frame(
    canvas: &mut Canvas,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
    x: &Axis<'_>,
    y: &Axis<'_>,
) -> Frame {
    let y_scale = Scale::new(y.kind, y.domain, (bottom, top));
    let y_ticks = ticks(&y_scale, (((bottom - top) / 36.0) as usize).max(2));
    let widest = y_ticks
        .marks
        .iter()
        .map(|(_, label)| text_width(label, 13.0))
        .fold(0.0, f64::max);
    let left = left + widest + 10.0;
    for (value, label) in &y_ticks.marks {
        let at = y_scale.at(*value);
        canvas.line("g", (left, at), (right, at));
        canvas.text("m", Anchor::End, left - 7.0, at + 4.0, label);
    }
    let y_label = with_unit(y.label, y_ticks.unit);
    canvas.text(
        "m",
        Anchor::Start,
        left,
        top - 9.0,
        &fit(&y_label, right - left, 12.0),
    );
    let x_scale = x_axis(canvas, (left, right), (top, bottom), x);
    Frame {
        x: x_scale,
        y: y_scale,
        right,
        top,
        bottom,
    }
}

/// Draws only the horizontal axis, its marks and label.
pub(crate) fn x_axis(
    canvas: &mut Canvas,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
    axis: &Axis<'_>,
) -> Scale {
    let scale = Scale::new(axis.kind, axis.domain, (left, right));
    let marks = ticks(&scale, ((right - left) / 62.0) as usize);
    for (value, label) in &marks.marks {
        let at = scale.at(*value);
        canvas.line("g", (at, top), (at, bottom));
        canvas.line("a", (at, bottom), (at, bottom + 4.0));
        // Labels at the edges are aligned inwards, so that the border never cuts them.
        let half = text_width(label, 13.0) / 2.0;
        canvas.text(
            "m",
            Anchor::Middle,
            at.min(right + 14.0 - half),
            bottom + 18.0,
            label,
        );
    }
    canvas.line("a", (left, bottom), (right, bottom));
    let label = with_unit(axis.label, marks.unit);
    canvas.text(
        "m",
        Anchor::Middle,
        (left + right) / 2.0,
        bottom + 35.0,
        &fit(&label, right - left, 12.0),
    );
    scale
}

fn with_unit(label: &str, unit: Option<&str>) -> String {
    unit.map_or_else(|| label.to_owned(), |unit| format!("{label} ({unit})"))
}

/// How an entry is drawn in the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A line in the colour of this series.
    Line(usize),
    /// A dashed line in a neutral colour.
    Dashed,
    /// A solid line in a neutral colour.
    Solid,
    /// A filled box in the colour of this series.
    Box(usize),
    /// A soft area in a neutral colour.
    Area(usize),
    /// A box with a dashed border.
    Hollow(usize),
    /// The thin line of GPUs that are up.
    Up,
}

/// A name with its mark; `value` is shown in a muted colour.
pub(crate) struct LegendEntry {
    pub(crate) mark: Mark,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Draws the legend in rows from `top`, above the data, and returns the height it took.
pub(crate) fn legend(canvas: &mut Canvas, top: f64, width: f64, entries: &[LegendEntry]) -> f64 {
    const ROW: f64 = 19.0;
    const SIZE: f64 = 13.2;
    let (mut x, mut row) = (0.0, 0.0);
    for entry in entries {
        let value_width = if entry.value.is_empty() {
            0.0
        } else {
            text_width(&entry.value, SIZE) + 6.0
        };
        let name = fit(&entry.name, (width - 30.0 - value_width).min(230.0), SIZE);
        let name_width = text_width(&name, SIZE);
        let total = 30.0 + name_width + value_width + 12.0;
        if x > 0.0 && x + total - 12.0 > width {
            (x, row) = (0.0, row + 1.0);
        }
        let y = top + row * ROW + 13.0;
        draw_mark(canvas, entry.mark, x, y - 4.0);
        if entry.value.is_empty() {
            canvas.text("", Anchor::Start, x + 28.0, y, &name);
        } else {
            canvas.text_pair("", x + 28.0, y, &name, &entry.value);
        }
        x += total;
    }
    if entries.is_empty() {
        0.0
    } else {
        (row + 1.0) * ROW + 4.0
    }
}

fn draw_mark(canvas: &mut Canvas, mark: Mark, x: f64, y: f64) {
    let bar = ((x, y), (x + 22.0, y));
    match mark {
        Mark::Line(i) => canvas.line(&line_class(i), bar.0, bar.1),
        Mark::Dashed => canvas.line("l a d", bar.0, bar.1),
        Mark::Solid => canvas.line("l a", bar.0, bar.1),
        Mark::Box(i) => canvas.rect(&format!("f{}", i % COLOURS), x + 8.0, y - 6.0, 14.0, 12.0),
        Mark::Area(i) => canvas.rect(&format!("f{} soft", i % COLOURS), x, y - 6.0, 22.0, 12.0),
        Mark::Hollow(i) => {
            canvas.rect(
                &format!("f{c} s{c} hollow", c = i % COLOURS),
                x + 8.0,
                y - 6.0,
                14.0,
                12.0,
            );
        }
        Mark::Up => canvas.line("u", bar.0, bar.1),
    }
}

/// The class of the line of series `i`: colours first, then colours with dashes.
pub(crate) fn line_class(i: usize) -> String {
    let dash = match i / COLOURS {
        0 => "",
        1 => " d",
        _ => " dd",
    };
    format!("l s{}{dash}", i % COLOURS)
}
