//! Distributions over jobs.

use dovetail_model::run::{JobRow, RunRecord};

use super::{MAX_CURVES, labels, omitted_note};
use crate::format;
use crate::stats::{Cdf, cdf, jct_s, wait_s};
use crate::svg::{
    Axis, AxisKind, Canvas, Figure, Frame, LegendEntry, Mark, PathData, WIDTH, X_AXIS_HEIGHT, Y_LABEL_HEIGHT,
    frame, legend, line_class,
};

/// Draws the distribution of job completion times, one curve per run.
pub fn jct_cdf(records: &[&RunRecord]) -> Figure {
    let spec = CdfSpec {
        name: "jct_cdf",
        title: "Job completion time",
        reading: "Share of jobs completed within the time on the horizontal axis (logarithmic). Further left and up is \
                  better. The median is next to each name.",
        axis: "completion time, from submission to end",
        floor: None,
        value: jct_s,
        median: |record| record.summary.median_jct_s,
    };
    draw(&spec, records)
}

/// Draws the distribution of waiting times, one curve per run.
pub fn wait_cdf(records: &[&RunRecord]) -> Figure {
    let spec = CdfSpec {
        name: "wait_cdf",
        title: "Time without GPUs",
        reading: "Share of jobs that waited at most the time on the horizontal axis (logarithmic; shorter waits are \
                  drawn on the left edge, so a curve starts at the share of jobs that hardly waited). The median is \
                  next to each name.",
        axis: "time submitted but without GPUs",
        floor: Some(1.0),
        value: wait_s,
        median: |record| record.summary.median_wait_s,
    };
    draw(&spec, records)
}

struct CdfSpec {
    name: &'static str,
    title: &'static str,
    reading: &'static str,
    axis: &'static str,
    /// The left edge, if it is not the smallest value.
    floor: Option<f64>,
    value: fn(&JobRow) -> Option<f64>,
    median: fn(&RunRecord) -> f64,
}

fn draw(spec: &CdfSpec, records: &[&RunRecord]) -> Figure {
    const PLOT: f64 = 220.0;
    let names = labels(records);
    let drawn = &records[..records.len().min(MAX_CURVES)];
    let curves: Vec<Cdf> = drawn
        .iter()
        .map(|r| cdf(r.rows.iter().filter_map(spec.value), r.rows.len()))
        .collect();

    let entries: Vec<LegendEntry> = drawn
        .iter()
        .zip(&names)
        .enumerate()
        .map(|(i, (record, name))| LegendEntry {
            mark: Mark::Line(i),
            name: name.clone(),
            value: format::span((spec.median)(record)),
        })
        .collect();
    let mut measured = Canvas::new(WIDTH, 0.0);
    let top = legend(&mut measured, 0.0, WIDTH, &entries) + Y_LABEL_HEIGHT;
    let mut canvas = Canvas::new(WIDTH, top + PLOT + X_AXIS_HEIGHT);
    legend(&mut canvas, 0.0, WIDTH, &entries);

    let x = Axis {
        label: spec.axis,
        kind: AxisKind::LogTime,
        domain: domain(&curves, spec.floor),
    };
    let y = Axis {
        label: "jobs",
        kind: AxisKind::Percent,
        domain: (0.0, 1.0),
    };
    let frame = frame(&mut canvas, (0.0, WIDTH - 12.0), (top, top + PLOT), &x, &y);
    for (i, (curve, name)) in curves.iter().zip(&names).enumerate() {
        let path = curve_path(&frame, curve);
        if !path.is_empty() {
            canvas.path(&line_class(i), &path, Some(name));
        }
    }

    let unfinished = drawn.iter().zip(&curves).any(|(r, c)| c.finite < r.rows.len());
    let note = if unfinished {
        " Curves with unfinished jobs stay below 100 %."
    } else {
        ""
    };
    let caption = format!("{}{note}{}", spec.reading, omitted_note(records.len()));
    Figure::new(spec.name, spec.title, &caption, canvas)
}

fn domain(curves: &[Cdf], floor: Option<f64>) -> (f64, f64) {
    let high = curves
        .iter()
        .filter_map(|c| c.points.last())
        .map(|p| p.0)
        .fold(0.0, f64::max)
        .max(1e-6);
    let least = curves
        .iter()
        .filter_map(|c| c.least_positive)
        .fold(high, f64::min);
    let low = floor.filter(|floor| *floor < high / 10.0).unwrap_or(least);
    (low.max(high * 1e-7), high)
}

/// Returns steps if there are few jobs, else straight lines, as steps would be smaller than a pixel.
fn curve_path(frame: &Frame, curve: &Cdf) -> PathData {
    let mut path = PathData::default();
    let Some(first) = curve.points.first() else {
        return path;
    };
    path.move_to(frame.x.at(first.0), frame.bottom);
    for (value, share) in &curve.points {
        let (x, y) = (frame.x.at(*value), frame.y.at(*share));
        if curve.points.len() <= 150 {
            path.horizontal_to(x);
            path.vertical_to(y);
        } else {
            path.line_to(x, y);
        }
    }
    path.horizontal_to(frame.right);
    path
}
