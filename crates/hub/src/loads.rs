//! How busy nodes are: what agents tell with their heartbeats, kept for some hours in steps of half a minute.

use std::collections::{BTreeMap, VecDeque};

use dovetail_cluster::LoadPoint;
use dovetail_model::{NodeId, Time};
use dovetail_proto::v1;

/// The length of a step, in microseconds.
const STEP_US: i64 = 30_000_000;
/// Steps that are kept: half a day.
const KEPT: usize = 1_440;

/// A step that has not ended.
#[derive(Debug, Default)]
struct Open {
    step: i64,
    beats: u32,
    gpu_busy: Vec<u32>,
    gpu_memory_mib: Vec<u32>,
    cpu_busy: u32,
    memory_mib: u64,
}

impl Open {
    fn add(&mut self, beat: &v1::Heartbeat) {
        self.beats += 1;
        self.gpu_busy.resize(beat.gpu_utilization.len(), 0);
        for (sum, busy) in self.gpu_busy.iter_mut().zip(&beat.gpu_utilization) {
            *sum += (*busy).min(100);
        }
        // Of memory the most counts.
        self.gpu_memory_mib.resize(beat.gpu_memory_used_mib.len(), 0);
        for (most, used) in self.gpu_memory_mib.iter_mut().zip(&beat.gpu_memory_used_mib) {
            *most = (*most).max(*used);
        }
        self.cpu_busy += beat.cpu_utilization.min(100);
        self.memory_mib = self.memory_mib.max(beat.memory_used_mib);
    }

    fn point(self) -> Option<LoadPoint> {
        let mean = |sum: &u32| u8::try_from(sum.checked_div(self.beats)?).ok();
        Some(LoadPoint {
            at: Time((self.step + 1) * STEP_US),
            gpu_busy: self.gpu_busy.iter().map(mean).collect::<Option<_>>()?,
            gpu_memory_mib: self.gpu_memory_mib,
            cpu_busy: u8::try_from(self.cpu_busy.checked_div(self.beats)?).ok()?,
            memory_mib: self.memory_mib,
        })
    }
}

#[derive(Debug, Default)]
struct NodeLoad {
    open: Open,
    points: VecDeque<LoadPoint>,
}

/// How busy all nodes are.
#[derive(Debug, Default)]
pub(crate) struct Loads(BTreeMap<NodeId, NodeLoad>);

impl Loads {
    /// A node tells.
    pub(crate) fn told(&mut self, node: NodeId, now: Time, beat: &v1::Heartbeat) {
        let load = self.0.entry(node).or_default();
        let step = now.0.div_euclid(STEP_US);
        if load.open.step != step {
            let ended = std::mem::take(&mut load.open);
            load.open.step = step;
            load.points.extend(ended.point());
            while load.points.len() > KEPT {
                load.points.pop_front();
            }
        }
        load.open.add(beat);
    }

    /// What a node has told since a moment, oldest first.
    pub(crate) fn of(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        let points = self.0.get(&node).map(|load| &load.points);
        let new = points.into_iter().flatten().filter(|p| p.at > since);
        new.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_become_means_and_old_ones_go() {
        let mut loads = Loads::default();
        let beat = |busy: u32, memory: u32| v1::Heartbeat {
            gpu_utilization: vec![busy, 0],
            gpu_memory_used_mib: vec![memory, 0],
            cpu_utilization: 50,
            ..Default::default()
        };
        let node = NodeId(3);
        for (at, busy, memory) in [(0, 10, 7), (10, 30, 5), (29, 50, 6), (31, 90, 1), (61, 0, 0)] {
            loads.told(node, Time::from_secs(at), &beat(busy, memory));
        }
        let points = loads.of(node, Time::ZERO);
        assert_eq!(points.len(), 2, "{points:?}");
        assert_eq!(
            (points[0].at, &points[0].gpu_busy[..]),
            (Time::from_secs(30), &[30, 0][..])
        );
        assert_eq!((points[0].gpu_memory_mib[0], points[0].cpu_busy), (7, 50));
        assert_eq!(loads.of(node, Time::from_secs(30)).len(), 1);
        assert!(loads.of(NodeId(4), Time::ZERO).is_empty());
        for i in 0..2_000 {
            loads.told(node, Time::from_secs(30 * i + 100), &v1::Heartbeat::default());
        }
        let points = loads.of(node, Time::ZERO);
        assert_eq!(points.len(), KEPT);
        assert!(
            points[0].gpu_busy.is_empty(),
            "a node that does not tell is not idle"
        );
    }
}
