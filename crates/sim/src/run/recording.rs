//! Records of a run, from which metrics are computed.

use dovetail_engine::Engine;
use dovetail_model::run::{Moment, Segment};
use dovetail_model::{JobKey, Time};

use crate::blocking::Blocking;
use crate::timeline::{Levels, Timeline};
use crate::truth::Truth;

/// Records the cluster over time, and the GPUs of each attempt.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) timeline: Timeline,
    pub(super) blocking: Blocking,
    pub(super) moments: Vec<Moment>,
    pub(super) segments: Vec<Segment>,
    /// Number of segments after which no further attempts are recorded.
    max_segments: usize,
    /// Integral of active jobs over time, in job seconds.
    pub(super) alive_integral: f64,
}

impl Recorder {
    pub(super) fn new(start: Time, max_segments: usize) -> Self {
        Self {
            timeline: Timeline::new(start),
            blocking: Blocking::default(),
            moments: Vec::new(),
            segments: Vec::new(),
            max_segments,
            alive_integral: 0.0,
        }
    }

    /// Records that the levels held from `now` until `next`.
    pub(super) fn advance(&mut self, now: Time, next: Time, levels: &Levels) {
        let span = next.since(now).as_secs_f64();
        self.alive_integral += span * f64::from(levels.running + levels.waiting);
        self.timeline.advance(next, levels);
    }

    /// Whether the GPUs of further attempts are recorded.
    pub(super) fn records_segments(&self) -> bool {
        self.segments.len() < self.max_segments
    }

    /// Records the GPUs of an attempt that ends now.
    pub(super) fn close_segment(&mut self, id: JobKey, truth: &mut Truth, now: Time) {
        let Some(place) = truth.place.take() else { return };
        let (start, end) = (truth.launched, now);
        if end > start {
            let segment = |share: &dovetail_model::NodeShare| Segment {
                job: id,
                node: share.node,
                slots: share.gpus.iter().collect(),
                start,
                end,
            };
            self.segments.extend(place.shares.iter().map(segment));
        }
    }

    /// Records the state of the cluster if it has changed; only the last one of a moment counts.
    pub(super) fn record_moment(
        &mut self,
        at: Time,
        engine: &Engine,
        (up_gpus, busy_gpus): (u32, u32),
        finished: u64,
    ) {
        let mut moment = Moment {
            at,
            idle_nodes: 0,
            busy_nodes: 0,
            full_nodes: 0,
            idle_gpus: up_gpus.saturating_sub(busy_gpus),
            busy_gpus,
            waiting: engine.idle().0,
            running: engine.holding(),
            finished,
        };
        for (_, node) in engine.cluster().nodes().filter(|(_, n)| n.up) {
            match node.free_gpus {
                0 => moment.full_nodes += 1,
                free if free == node.spec.gpus => moment.idle_nodes += 1,
                _ => moment.busy_nodes += 1,
            }
        }
        self.moments.pop_if(|last| last.at == moment.at);
        let unchanged = |last: &Moment| {
            Moment {
                at: moment.at,
                ..*last
            } == moment
        };
        if !self.moments.last().is_some_and(unchanged) {
            self.moments.push(moment);
        }
    }
}
