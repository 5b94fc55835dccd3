//! The cluster over time: one panel per run, all on the same axes.

use dovetail_model::run::{RunRecord, TimelinePoint};

use super::{MAX_CURVES, labels, omitted_note};
use crate::format;
use crate::stats::{Step, mean, origin_s, steps};
use crate::svg::{
    Anchor, Axis, AxisKind, COLOURS, Canvas, Figure, LegendEntry, Mark, PathData, Scale, WIDTH,
    X_AXIS_HEIGHT, fit, legend, text_width, ticks, x_axis,
};

/// Maximum number of steps of a drawn timeline.
const BINS: usize = 300;

/// Draws GPUs in use and GPUs that are up, one panel per run.
pub fn utilization(records: &[&RunRecord]) -> Figure {
    let spec = TimelineSpec {
        name: "utilization",
        title: "GPUs in use over time",
        reading: "Filled: GPUs in use. Line: GPUs that are up. On the right: GPU time in use divided by GPU time available.",
        key: [(Mark::Area(0), "GPUs in use"), (Mark::Up, "GPUs that are up")].into(),
        area: |p| p.busy_gpus,
        line: Some(|p| p.up_gpus),
        note: |record, _| {
            format!(
                "{} % used",
                format::grouped(record.summary.gpu_utilization * 100.0, 1)
            )
        },
    };
    draw(&spec, records)
}

/// Draws the number of queued jobs over time, one panel per run.
pub fn queue_length(records: &[&RunRecord]) -> Figure {
    let spec = TimelineSpec {
        name: "queue_length",
        title: "Queued jobs over time",
        reading: "Jobs that are submitted and hold no GPUs. On the right: the mean over time and the longest queue.",
        key: vec![],
        area: |p| p.waiting,
        line: None,
        note: |_, steps| {
            let most = steps.iter().map(|s| s.value).fold(0.0, f64::max);
            format!(
                "mean {}, at most {}",
                format::significant(mean(steps)),
                format::grouped(most.ceil(), 0)
            )
        },
    };
    draw(&spec, records)
}

struct TimelineSpec {
    name: &'static str,
    title: &'static str,
    reading: &'static str,
    key: Vec<(Mark, &'static str)>,
    area: fn(&TimelinePoint) -> f64,
    line: Option<fn(&TimelinePoint) -> f64>,
    note: fn(&RunRecord, &[Step]) -> String,
}

/// Height of the heading of a panel.
const HEAD: f64 = 20.0;

/// One run, ready to draw; times count from the start of the run.
struct Panel {
    name: String,
    note: String,
    area: Vec<Step>,
    line: Vec<Step>,
}

impl Panel {
    /// Draws the panel with its heading at `head`, between the horizontal positions `left` and `right`.
    fn draw(
        &self,
        canvas: &mut Canvas,
        (left, right): (f64, f64),
        head: f64,
        (x, y): (&Scale, &Scale),
        marks: &[(f64, String)],
        colour: usize,
    ) {
        let note_width = text_width(&self.note, 12.6) + 12.0;
        canvas.rect("bg", left - 1.0, head + 1.0, right - left + 2.0, HEAD - 2.0);
        let name = fit(&self.name, right - left - note_width, 13.0);
        canvas.text("k", Anchor::Start, left, head + 14.0, &name);
        canvas.text("m", Anchor::End, right, head + 14.0, &self.note);
        for (value, label) in marks {
            canvas.line("g", (left, y.at(*value)), (right, y.at(*value)));
            canvas.text("m", Anchor::End, left - 7.0, y.at(*value) + 4.0, label);
        }
        canvas.path(&format!("f{colour} soft"), &area_path(&self.area, x, y), None);
        canvas.path(&format!("e s{colour}"), &step_path(&self.area, x, y), None);
        if !self.line.is_empty() {
            canvas.path("u", &step_path(&self.line, x, y), None);
        }
        canvas.line("a", (left, y.at(0.0)), (right, y.at(0.0)));
    }
}

fn draw(spec: &TimelineSpec, records: &[&RunRecord]) -> Figure {
    const GAP: f64 = 9.0;
    let panels = panels(spec, records);
    let plot = (260.0 / panels.len().max(1) as f64).clamp(34.0, 180.0);
    let entries: Vec<LegendEntry> = spec
        .key
        .iter()
        .map(|(mark, name)| LegendEntry {
            mark: *mark,
            name: (*name).into(),
            value: String::new(),
        })
        .collect();
    let top = legend(&mut Canvas::new(WIDTH, 0.0), 0.0, WIDTH, &entries);
    let height = top + panels.len() as f64 * (HEAD + plot + GAP) - GAP + X_AXIS_HEIGHT;
    let mut canvas = Canvas::new(WIDTH, height.max(60.0));
    legend(&mut canvas, 0.0, WIDTH, &entries);

    let all = || panels.iter().flat_map(|p| p.area.iter().chain(&p.line));
    let end = all().map(|s| s.end).fold(0.0, f64::max);
    let most = all().map(|s| s.value).fold(0.0, f64::max).max(1.0);
    let marks = ticks(
        &Scale::new(AxisKind::Linear, (0.0, most), (plot, 0.0)),
        (plot / 34.0) as usize,
    )
    .marks;
    let left = marks
        .iter()
        .map(|(_, label)| text_width(label, 13.0))
        .fold(0.0, f64::max)
        + 10.0;
    let right = WIDTH - 12.0;
    let axis = Axis {
        label: "time since the start of the run",
        kind: AxisKind::Time,
        domain: (0.0, end),
    };
    let x = x_axis(
        &mut canvas,
        (left, right),
        (top + HEAD, height - X_AXIS_HEIGHT),
        &axis,
    );

    for (i, panel) in panels.iter().enumerate() {
        let head = top + i as f64 * (HEAD + plot + GAP);
        let y = Scale::new(AxisKind::Linear, (0.0, most), (head + HEAD + plot, head + HEAD));
        panel.draw(&mut canvas, (left, right), head, (&x, &y), &marks, i % COLOURS);
    }
    let caption = format!("{}{}", spec.reading, omitted_note(records.len()));
    Figure::new(spec.name, spec.title, &caption, canvas)
}

fn panels(spec: &TimelineSpec, records: &[&RunRecord]) -> Vec<Panel> {
    let names = labels(records);
    records
        .iter()
        .zip(names)
        .take(MAX_CURVES)
        .map(|(record, name)| {
            let origin = origin_s(record);
            let shifted = |value: fn(&TimelinePoint) -> f64| -> Vec<Step> {
                let steps = steps(&record.timeline, BINS, value);
                steps
                    .into_iter()
                    .map(|s| Step {
                        start: s.start - origin,
                        end: s.end - origin,
                        ..s
                    })
                    .collect()
            };
            let area = shifted(spec.area);
            Panel {
                name,
                note: (spec.note)(record, &area),
                line: spec.line.map(shifted).unwrap_or_default(),
                area,
            }
        })
        .collect()
}

fn step_path(steps: &[Step], x: &Scale, y: &Scale) -> PathData {
    let mut path = PathData::default();
    let mut level = f64::NAN;
    for step in steps {
        if path.is_empty() {
            path.move_to(x.at(step.start), y.at(step.value));
        } else if step.value != level {
            path.horizontal_to(x.at(step.start));
            path.vertical_to(y.at(step.value));
        }
        level = step.value;
    }
    if let Some(last) = steps.last() {
        path.horizontal_to(x.at(last.end));
    }
    path
}

fn area_path(steps: &[Step], x: &Scale, y: &Scale) -> PathData {
    let mut path = step_path(steps, x, y);
    if let (Some(first), false) = (steps.first(), path.is_empty()) {
        path.vertical_to(y.at(0.0));
        path.horizontal_to(x.at(first.start));
        path.close();
    }
    path
}
