//! The interleaving of jobs on the same GPUs, each on another resource.

use dovetail_model::layout::{Layout, Resource};

use crate::svg::{
    Anchor, Axis, AxisKind, Canvas, Figure, JOB_COLOURS, PathData, WIDTH, X_AXIS_HEIGHT, fit, text_width,
    x_axis,
};

/// Height of the row of a resource.
const ROW: f64 = 30.0;
/// Room between rows.
const GAP: f64 = 6.0;
/// Number of periods drawn, so that stages crossing the end of a period are visible.
const PERIODS: usize = 2;

/// Draws a group over two of its periods: a row for each resource, a colour for each member. `members` are names, in the order
/// of the layout.
pub fn interleaving(members: &[String], layout: &Layout, title: &str, caption: &str) -> Figure {
    let rows = Resource::ALL;
    let top = legend_height(members) + 2.0;
    let bottom = top + rows.len() as f64 * (ROW + GAP) - GAP;
    let mut canvas = Canvas::new(WIDTH, bottom + X_AXIS_HEIGHT);
    let (left, right) = (62.0, WIDTH - 12.0);
    draw_legend(&mut canvas, members);
    for (i, resource) in rows.iter().enumerate() {
        let y = top + i as f64 * (ROW + GAP);
        canvas.rect("row", left, y, right - left, ROW);
        canvas.text("m", Anchor::End, left - 8.0, y + ROW / 2.0 + 4.0, resource.name());
    }
    let period_ms = (layout.steady_us / 1000.0).max(1e-3);
    let axis = Axis {
        label: "time (ms)",
        kind: AxisKind::Linear,
        domain: (0.0, period_ms * PERIODS as f64),
    };
    let x = x_axis(&mut canvas, (left, right), (top, bottom), &axis);
    for (member, name) in members.iter().enumerate() {
        for one in layout.uses.iter().filter(|u| u.member == member) {
            let row = rows.iter().position(|r| *r == one.resource).unwrap_or(0);
            let y = top + row as f64 * (ROW + GAP);
            for period in 0..PERIODS {
                let at = |us: f64| x.at(us / 1000.0 + period_ms * period as f64);
                let (from, to) = (at(one.start_us), at(one.end_us));
                let mut path = PathData::default();
                path.rect(from, y, (to - from).max(0.6), ROW);
                let hint = format!(
                    "{name} on {}: {:.1} ms",
                    one.resource.name(),
                    (one.end_us - one.start_us) / 1000.0
                );
                canvas.path(&format!("j j{}", member % JOB_COLOURS), &path, Some(&hint));
                if to - from >= text_width(name, 10.5) + 6.0 {
                    canvas.text("jt", Anchor::Middle, (from + to) / 2.0, y + ROW / 2.0 + 3.5, name);
                }
            }
        }
    }
    for period in 1..PERIODS {
        let at = x.at(period_ms * period as f64);
        canvas.line("b", (at, top - 4.0), (at, bottom + 4.0));
    }
    Figure::new("interleaving", title, caption, canvas)
}

/// Returns the positions of the members in the legend: row, left edge and the fitted name.
fn legend_positions(members: &[String]) -> Vec<(usize, f64, String)> {
    let (mut row, mut x) = (0, 0.0);
    let mut positions = Vec::new();
    for name in members {
        let name = fit(name, WIDTH - 40.0, 13.0);
        let width = 20.0 + text_width(&name, 13.0) + 16.0;
        if x > 0.0 && x + width > WIDTH {
            (row, x) = (row + 1, 0.0);
        }
        positions.push((row, x, name));
        x += width;
    }
    positions
}

fn legend_height(members: &[String]) -> f64 {
    let rows = legend_positions(members).last().map_or(0, |(row, ..)| row + 1);
    rows as f64 * 20.0 + 8.0
}

fn draw_legend(canvas: &mut Canvas, members: &[String]) {
    for (member, (row, x, name)) in legend_positions(members).into_iter().enumerate() {
        let y = row as f64 * 20.0;
        canvas.rect(&format!("j{}", member % JOB_COLOURS), x, y, 14.0, 12.0);
        canvas.text("", Anchor::Start, x + 20.0, y + 10.0, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::Stages;
    use dovetail_model::layout::layout;
    use dovetail_model::stages::Ordering;

    #[test]
    fn every_use_is_drawn_once_in_each_period() {
        let group = [
            Stages::three(784_000, 117_000, 77_000, 1_010_000),
            Stages::three(600, 419_000, 49_000, 437_000),
        ];
        let drawn = layout(&group, Ordering::Best);
        let names = ["resnet18".to_owned(), "<gpt2>".to_owned()];
        let svg = interleaving(&names, &drawn, "A group", "Two models.").svg();
        assert_eq!(
            svg.matches("<path class=\"j j").count(),
            drawn.uses.len() * PERIODS
        );
        assert!(
            svg.contains("&lt;gpt2&gt;") && !svg.contains("NaN") && svg.contains("prefers-color-scheme:dark")
        );
    }
}
