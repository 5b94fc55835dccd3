//! Converts segments to rectangles, merged where they touch and cut to a readable window.

use std::collections::BTreeMap;

use dovetail_model::JobKey;
use dovetail_model::run::{RunRecord, Segment};

/// A job on neighbouring GPUs of one node over an uninterrupted interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    pub(crate) job: JobKey,
    pub(crate) node: u32,
    pub(crate) first_slot: u32,
    pub(crate) slots: u32,
    /// Lane within the GPU's height, if jobs share the GPU.
    pub(crate) lane: u32,
    pub(crate) lanes: u32,
    /// In microseconds.
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Start, end and job.
type Span = (i64, i64, JobKey);

/// Maximum number of jobs drawn next to each other on one GPU.
const MAX_LANES: u32 = 4;

/// Returns all rectangles of these segments, by node, slot and time.
pub(crate) fn blocks(segments: &[Segment]) -> Vec<Block> {
    let mut by_gpu: BTreeMap<(u32, u32), Vec<Span>> = BTreeMap::new();
    for segment in segments.iter().filter(|s| s.end > s.start) {
        for slot in &segment.slots {
            let held = (segment.start.0, segment.end.0, segment.job);
            by_gpu.entry((segment.node.0, *slot)).or_default().push(held);
        }
    }
    let mut out: Vec<Block> = vec![];
    // Rectangles that end on the slot above, by the properties that must be equal to extend them.
    let mut open: BTreeMap<(u32, u32, i64, i64, JobKey), usize> = BTreeMap::new();
    for ((node, slot), mut held) in by_gpu {
        held.sort();
        let joined = join(held);
        let (lane_of, lanes) = lanes(&joined);
        for ((start, end, job), lane) in joined.into_iter().zip(lane_of) {
            let above = slot
                .checked_sub(1)
                .and_then(|above| open.remove(&(node, above, start, end, job)));
            let index = match above.filter(|i| lanes == 1 && out[*i].lanes == 1) {
                Some(index) => {
                    out[index].slots += 1;
                    index
                }
                None => {
                    out.push(Block {
                        job,
                        node,
                        first_slot: slot,
                        slots: 1,
                        lane,
                        lanes,
                        start,
                        end,
                    });
                    out.len() - 1
                }
            };
            open.insert((node, slot, start, end, job), index);
        }
    }
    out
}

/// Joins adjacent spans of one job; the spans are sorted.
fn join(held: Vec<Span>) -> Vec<Span> {
    let mut out: Vec<Span> = vec![];
    for span in held {
        let near = out
            .iter()
            .rev()
            .take(MAX_LANES as usize)
            .position(|o| o.2 == span.2 && o.1 >= span.0);
        match near {
            Some(back) => {
                let index = out.len() - 1 - back;
                out[index].1 = out[index].1.max(span.1);
            }
            None => out.push(span),
        }
    }
    out
}

/// Returns the lowest free lane for each span, and the number of lanes.
fn lanes(spans: &[Span]) -> (Vec<u32>, u32) {
    let mut free_at: Vec<i64> = vec![];
    let mut lane_of = vec![];
    for (start, end, _) in spans {
        let lane = free_at.iter().position(|at| at <= start).unwrap_or_else(|| {
            if free_at.len() < MAX_LANES as usize {
                free_at.push(i64::MIN);
            }
            free_at.len() - 1
        });
        free_at[lane] = *end;
        lane_of.push(lane as u32);
    }
    (lane_of, free_at.len().max(1) as u32)
}

/// The interval that is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// In microseconds.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Whether part of the run is outside of it.
    pub(crate) cut: bool,
}

/// One hour, in microseconds.
const HOUR: i64 = 3_600_000_000;
/// Round spans that a window may have, longest first.
const SPANS: [i64; 15] = [
    90 * 24 * HOUR,
    30 * 24 * HOUR,
    14 * 24 * HOUR,
    7 * 24 * HOUR,
    3 * 24 * HOUR,
    2 * 24 * HOUR,
    24 * HOUR,
    12 * HOUR,
    6 * HOUR,
    3 * HOUR,
    HOUR,
    HOUR / 2,
    HOUR / 6,
    HOUR / 60,
    HOUR / 3600,
];

/// Returns the whole run if it has few rectangles, otherwise the longest round span around the longest queue that has at most
/// `most` of them. The time after the last start is ignored, since long runs keep only their first segments.
pub(crate) fn window(record: &RunRecord, blocks: &[Block], most: usize) -> Window {
    let start = blocks.iter().map(|b| b.start).min().unwrap_or(0);
    let end = blocks
        .iter()
        .map(|b| b.end)
        .max()
        .unwrap_or(0)
        .max(start.saturating_add(1));
    if blocks.len() <= most {
        return Window {
            start,
            end,
            cut: false,
        };
    }
    let end = blocks
        .iter()
        .map(|b| b.start)
        .max()
        .unwrap_or(end)
        .max(start.saturating_add(1));
    let longest_queue = record
        .timeline
        .iter()
        .filter(|p| p.start.0 <= end && p.end.0 >= start && p.waiting > 0.0)
        .max_by(|a, b| a.waiting.total_cmp(&b.waiting).then(b.start.cmp(&a.start)));
    let middle = longest_queue.map_or(start / 2 + end / 2, |p| p.start.0 / 2 + p.end.0 / 2);
    let around = |span: i64| {
        let from = middle
            .saturating_sub(span / 2)
            .min(end.saturating_sub(span))
            .max(start);
        Window {
            start: from,
            end: from.saturating_add(span).min(end),
            cut: true,
        }
    };
    let few = |w: &Window| {
        blocks
            .iter()
            .filter(|b| b.start < w.end && b.end > w.start)
            .count()
            <= most
    };
    let length = end.saturating_sub(start);
    let fitting = SPANS
        .into_iter()
        .filter(|span| *span < length)
        .map(around)
        .find(few);
    fitting.unwrap_or_else(|| around(length.min(HOUR / 3600)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::{NodeId, Time};

    fn segment(job: u32, slots: &[u32], start: i64, end: i64) -> Segment {
        Segment {
            job: JobKey(job),
            node: NodeId(0),
            slots: slots.into(),
            start: Time(start),
            end: Time(end),
        }
    }

    fn shown(segments: &[Segment]) -> Vec<String> {
        let show = |b: &Block| {
            let slots = format!("{}+{}", b.first_slot, b.slots);
            format!(
                "job {} gpu {slots} lane {}/{} {}..{}",
                b.job, b.lane, b.lanes, b.start, b.end
            )
        };
        blocks(segments).iter().map(show).collect()
    }

    #[test]
    fn touching_segments_are_merged() {
        let merged = shown(&[
            segment(1, &[0, 1], 0, 10),
            segment(1, &[0, 1], 10, 20),
            segment(2, &[2], 0, 20),
        ]);
        assert_eq!(
            merged,
            ["job 1 gpu 0+2 lane 0/1 0..20", "job 2 gpu 2+1 lane 0/1 0..20"]
        );
    }

    #[test]
    fn jobs_that_share_a_gpu_are_drawn_side_by_side() {
        let shared = shown(&[segment(1, &[0], 0, 10), segment(2, &[0], 5, 20)]);
        assert_eq!(
            shared,
            ["job 1 gpu 0+1 lane 0/2 0..10", "job 2 gpu 0+1 lane 1/2 5..20"]
        );
    }

    #[test]
    fn many_segments_are_cut_to_a_round_window() {
        let hour = 3_600_000_000;
        let segments: Vec<Segment> = (0..1000)
            .map(|i| segment(i as u32, &[0], i * hour, (i + 1) * hour))
            .collect();
        let record = RunRecord {
            segments,
            ..RunRecord::default()
        };
        let blocks = blocks(&record.segments);
        let window = window(&record, &blocks, 100);
        assert_eq!((window.end - window.start) / hour, 72);
        assert!(window.cut);
    }
}
