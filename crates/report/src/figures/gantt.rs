//! The GPU timeline: which job held which GPU when.

use std::collections::BTreeMap;

use dovetail_model::JobKey;
use dovetail_model::run::RunRecord;

use super::gantt_layout::{Block, Window, blocks, window};
use crate::format;
use crate::stats::origin_s;
use crate::svg::{
    Anchor, Axis, AxisKind, Canvas, Figure, JOB_COLOURS, PathData, Scale, X_AXIS_HEIGHT, fit, text_width,
    x_axis,
};

/// Wider than the other figures: it has its own page.
const WIDTH: f64 = 1000.0;
/// Maximum number of GPUs with a row each.
const MAX_GPU_ROWS: u64 = 128;
/// Maximum number of nodes with a row each.
const MAX_NODES: u64 = 64;
/// Number of rectangles that can still be distinguished.
const MAX_BLOCKS: usize = 2500;

/// Draws a timeline of GPUs, coloured by job: rows are GPUs grouped by node in a small cluster, nodes in a large one.
pub fn gantt(record: &RunRecord) -> Figure {
    gantt_within(record, MAX_BLOCKS)
}

/// Like [`gantt`], with a limited number of rectangles, for pages with several timelines.
pub(crate) fn gantt_within(record: &RunRecord, most: usize) -> Figure {
    let rows = Rows::of(record);
    let mut blocks = blocks(&record.segments);
    blocks.retain(|b| u64::from(b.node) < rows.shown);
    let window = window(record, &blocks, most);
    blocks.retain(|b| b.start < window.end && b.end > window.start);

    let bottom = rows.top(rows.shown);
    let mut canvas = Canvas::new(WIDTH, bottom + X_AXIS_HEIGHT);
    let left = text_width(&format!("node {}", rows.shown), 12.0).max(40.0) + 12.0;
    let right = WIDTH - 12.0;
    let mut label_from = f64::MIN;
    for node in 0..rows.shown {
        let (top, height) = (rows.top(node), rows.height(node));
        canvas.rect("row", left, top, right - left, height);
        if top - label_from >= 11.5 {
            canvas.text(
                "m sm",
                Anchor::End,
                left - 6.0,
                top + height / 2.0 + 4.0,
                &format!("node {node}"),
            );
            label_from = top;
        }
    }
    let origin = origin_s(record);
    let seconds = |micros: i64| micros as f64 / 1e6 - origin;
    let axis = Axis {
        label: "time since the start of the run",
        kind: AxisKind::Time,
        domain: (seconds(window.start), seconds(window.end)),
    };
    let x = x_axis(&mut canvas, (left, right), (rows.top(0), bottom), &axis);
    draw_jobs(&mut canvas, record, &blocks, &rows, &|micros| seconds(micros), &x);
    let caption = caption(record, &rows, window, &blocks, seconds);
    Figure::new(
        "gantt",
        &format!("GPU timeline: {}", policy(record)),
        &caption,
        canvas,
    )
}

fn policy(record: &RunRecord) -> &str {
    if record.summary.policy.is_empty() {
        "run"
    } else {
        &record.summary.policy
    }
}

/// Heights of the rows of each node.
struct Rows {
    slots: Vec<u32>,
    nodes: u64,
    shown: u64,
    /// Height of one GPU where GPUs have rows; otherwise the height of a whole node.
    unit: f64,
    by_gpu: bool,
}

impl Rows {
    fn of(record: &RunRecord) -> Self {
        let used = record
            .segments
            .iter()
            .map(|s| u64::from(s.node.0) + 1)
            .max()
            .unwrap_or(0);
        let nodes = used.max(record.node_slots.len() as u64).max(1);
        let mut shown = nodes.min(MAX_GPU_ROWS);
        let mut slots: Vec<u32> = record.node_slots.iter().copied().take(shown as usize).collect();
        slots.resize(shown as usize, 0);
        for segment in record.segments.iter().filter(|s| u64::from(s.node.0) < shown) {
            let needed = segment
                .slots
                .iter()
                .max()
                .map_or(0, |slot| slot.saturating_add(1));
            let own = &mut slots[segment.node.0 as usize];
            *own = (*own).max(needed);
        }
        let gpus: u64 = slots.iter().map(|s| u64::from((*s).max(1))).sum();
        let by_gpu = nodes <= MAX_GPU_ROWS && gpus <= MAX_GPU_ROWS;
        if !by_gpu {
            shown = shown.min(MAX_NODES);
            slots.truncate(shown as usize);
        }
        let rows = if by_gpu { gpus } else { shown };
        let unit = (560.0 / rows as f64).clamp(if by_gpu { 4.4 } else { 12.0 }, 18.0);
        Self {
            slots,
            nodes,
            shown,
            unit,
            by_gpu,
        }
    }

    fn slots(&self, node: u64) -> f64 {
        f64::from(self.slots.get(node as usize).copied().unwrap_or(0).max(1))
    }

    fn height(&self, node: u64) -> f64 {
        if self.by_gpu {
            self.slots(node) * self.unit
        } else {
            self.unit
        }
    }

    fn top(&self, node: u64) -> f64 {
        (0..node).map(|n| self.height(n) + 2.0).sum::<f64>() + 4.0
    }
}

fn draw_jobs(
    canvas: &mut Canvas,
    record: &RunRecord,
    blocks: &[Block],
    rows: &Rows,
    seconds: &dyn Fn(i64) -> f64,
    x: &Scale,
) {
    let row_of: BTreeMap<JobKey, usize> = record
        .rows
        .iter()
        .enumerate()
        .map(|(i, row)| (row.job, i))
        .collect();
    let tops: Vec<f64> = (0..rows.shown).map(|node| rows.top(node)).collect();
    let mut by_job: BTreeMap<JobKey, Vec<&Block>> = BTreeMap::new();
    for block in blocks {
        by_job.entry(block.job).or_default().push(block);
    }
    // Thin rectangles get no border, which would hide their colour.
    let thin = rows.shown > 0 && (0..rows.shown).any(|node| rows.height(node) / rows.slots(node) < 3.0);
    let edge = if thin { "" } else { "j " };
    for (job, blocks) in by_job {
        let row = row_of.get(&job);
        let name = row
            .and_then(|i| record.job_names.get(*i))
            .filter(|name| !name.is_empty())
            .map_or_else(|| job.to_string(), |name| name.clone());
        let mut path = PathData::default();
        let mut texts = vec![];
        for block in blocks {
            let slot = rows.height(u64::from(block.node)) / rows.slots(u64::from(block.node));
            let height = slot * f64::from(block.slots) / f64::from(block.lanes);
            let y = tops[block.node as usize]
                + slot * f64::from(block.first_slot)
                + height * f64::from(block.lane);
            let (from, to) = (x.at(seconds(block.start)), x.at(seconds(block.end)));
            path.rect(from, y, (to - from).max(0.4), height);
            if height >= 11.0 && to - from >= text_width(&name, 10.5) + 6.0 {
                texts.push(((from + to) / 2.0, y + height / 2.0 + 3.5));
            }
        }
        let about = row.map(|i| {
            let row = &record.rows[*i];
            let tenant = record.tenant_names.get(*i).filter(|t| !t.is_empty());
            let of = tenant.map(|t| format!(" of {t}")).unwrap_or_default();
            format!(
                "{of}, {} GPUs, {} of work",
                row.gpus,
                format::span(row.work.as_secs_f64())
            )
        });
        let hint = format!("job {name}{}", about.unwrap_or_default());
        canvas.path(
            &format!("{edge}j{}", colour(job)),
            &path,
            Some(&fit(&hint, 700.0, 12.0)),
        );
        for (x, y) in texts {
            canvas.text("jt", Anchor::Middle, x, y, &name);
        }
    }
}

/// Returns the colour of a job: the same in every figure, and different from those of jobs submitted with it.
fn colour(job: JobKey) -> usize {
    (job.0.wrapping_mul(2_654_435_769) >> 16) as usize % JOB_COLOURS
}

fn caption(
    record: &RunRecord,
    rows: &Rows,
    window: Window,
    blocks: &[Block],
    seconds: impl Fn(i64) -> f64,
) -> String {
    if record.segments.is_empty() {
        return "No segments were recorded for this run.".into();
    }
    let rows_are = if rows.by_gpu {
        "Each row is a GPU, grouped by node"
    } else {
        "Each row is a node, split among its GPUs"
    };
    let nodes = if rows.shown < rows.nodes {
        format!(
            " (the first {} of {} nodes)",
            rows.shown,
            format::count(rows.nodes)
        )
    } else {
        String::new()
    };
    let window_text = if window.cut {
        let length = window.end.saturating_sub(window.start) as f64 / 1e6;
        let unit = format::unit_for(length);
        let at = |micros: i64| format::grouped(seconds(micros) / unit.seconds, 1);
        format!(
            " Only {} of the run around the longest queue are drawn: from {} to {} {}.",
            format::span(length),
            at(window.start),
            at(window.end),
            unit.name
        )
    } else {
        String::new()
    };
    let recorded = record.segments.iter().map(|s| s.end).max();
    let missing = match (recorded, record.rows.iter().filter_map(|row| row.finish).max()) {
        (Some(recorded), Some(last)) if recorded < last => {
            format!(
                " Only the first {} of the run were recorded.",
                format::span(seconds(recorded.0))
            )
        }
        _ => String::new(),
    };
    let jobs: std::collections::BTreeSet<JobKey> = blocks.iter().map(|b| b.job).collect();
    format!(
        "{rows_are}{nodes}; each colour is a job ({} jobs, colours repeat), grey is idle.{window_text}{missing} Hover over a job for its name.",
        format::count(jobs.len() as u64)
    )
}
