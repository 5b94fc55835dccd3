//! `timeline.csv`, `segments.csv` and `nodes.csv`.

use std::path::Path;

use dovetail_model::run::{Segment, TimelinePoint};
use dovetail_model::{JobKey, NodeId};

use super::csv_in::Table;
use super::csv_out::table;
use crate::error::ReportError;
use crate::format::exact_seconds;

const TIMELINE: [&str; 8] = [
    "start_s",
    "end_s",
    "busy_gpus",
    "up_gpus",
    "running",
    "waiting",
    "waiting_gpus",
    "fragmented_gpus",
];
const SEGMENTS: [&str; 5] = ["job_position", "node", "slots", "start_s", "end_s"];
const NODES: [&str; 2] = ["node", "gpus"];

/// Returns the bytes of `timeline.csv`.
pub(crate) fn timeline_csv(timeline: &[TimelinePoint]) -> Vec<u8> {
    let finite = |value: f64| {
        if value.is_finite() {
            value.to_string()
        } else {
            "0".into()
        }
    };
    let rows = timeline.iter().map(|p| {
        let means = [
            p.busy_gpus,
            p.up_gpus,
            p.running,
            p.waiting,
            p.waiting_gpus,
            p.fragmented_gpus,
        ]
        .map(finite);
        [exact_seconds(p.start), exact_seconds(p.end)]
            .into_iter()
            .chain(means)
    });
    table(&TIMELINE, rows)
}

/// Parses `timeline.csv`.
pub(crate) fn parse_timeline(path: &Path, bytes: &[u8]) -> Result<Vec<TimelinePoint>, ReportError> {
    let table = Table::parse(path, bytes, &["start_s", "end_s", "busy_gpus", "up_gpus"])?;
    let mut timeline = vec![];
    for row in table.rows() {
        let optional = |column| {
            if row.has(column) {
                row.number(column)
            } else {
                Ok(0.0)
            }
        };
        timeline.push(TimelinePoint {
            start: row.time("start_s")?,
            end: row.time("end_s")?,
            busy_gpus: row.number("busy_gpus")?,
            up_gpus: row.number("up_gpus")?,
            running: optional("running")?,
            waiting: optional("waiting")?,
            waiting_gpus: optional("waiting_gpus")?,
            fragmented_gpus: optional("fragmented_gpus")?,
        });
    }
    Ok(timeline)
}

/// Returns the bytes of `segments.csv`; slots are separated by spaces.
pub(crate) fn segments_csv(segments: &[Segment]) -> Vec<u8> {
    let rows = segments.iter().map(|s| {
        let slots: Vec<String> = s.slots.iter().map(u32::to_string).collect();
        [
            s.job.to_string(),
            s.node.to_string(),
            slots.join(" "),
            exact_seconds(s.start),
            exact_seconds(s.end),
        ]
    });
    table(&SEGMENTS, rows)
}

/// Parses `segments.csv`.
pub(crate) fn parse_segments(path: &Path, bytes: &[u8]) -> Result<Vec<Segment>, ReportError> {
    let table = Table::parse(path, bytes, &SEGMENTS)?;
    let mut segments = vec![];
    for row in table.rows() {
        let text = row.text("slots")?;
        let slots: Option<Vec<u32>> = text.split_whitespace().map(|slot| slot.parse().ok()).collect();
        let accepted = "GPU numbers of the node separated by spaces, such as 0 1 2 3";
        segments.push(Segment {
            job: JobKey(row.whole("job_position")?),
            node: NodeId(row.whole("node")?),
            slots: slots.ok_or_else(|| row.invalid("slots", text, accepted))?,
            start: row.time("start_s")?,
            end: row.time("end_s")?,
        });
    }
    Ok(segments)
}

/// Returns the bytes of `nodes.csv`.
pub(crate) fn nodes_csv(node_slots: &[u32]) -> Vec<u8> {
    table(
        &NODES,
        node_slots
            .iter()
            .enumerate()
            .map(|(node, gpus)| [node.to_string(), gpus.to_string()]),
    )
}

/// Parses `nodes.csv`: nodes are numbered from zero, in order.
pub(crate) fn parse_nodes(path: &Path, bytes: &[u8]) -> Result<Vec<u32>, ReportError> {
    let table = Table::parse(path, bytes, &NODES)?;
    let mut slots: Vec<u32> = vec![];
    for row in table.rows() {
        let node = row.whole("node")?;
        if node as usize != slots.len() {
            return Err(row.invalid(
                "node",
                &node.to_string(),
                &format!("{}, as nodes are numbered in order", slots.len()),
            ));
        }
        slots.push(row.whole("gpus")?);
    }
    Ok(slots)
}
