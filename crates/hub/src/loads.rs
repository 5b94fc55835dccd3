//! Utilization of nodes, from the heartbeats of their agents: averages over 30 seconds, kept for half a day.

use std::collections::{BTreeMap, VecDeque};

use dovetail_cluster::LoadPoint;
use dovetail_model::{NodeId, Time};
use dovetail_proto::v1;

/// Length of an interval in microseconds.
const STEP_US: i64 = LoadPoint::INTERVAL.0;
/// Number of intervals that are kept: half a day.
const MAX_POINTS: usize = 1_440;

/// An interval that has not ended.
#[derive(Debug, Default)]
struct OpenInterval {
    step: i64,
    beats: u32,
    gpu_busy: Vec<u32>,
    gpu_memory_mib: Vec<u32>,
    cpu_busy: u32,
    memory_mib: u64,
    /// Sum over the heartbeats that had it; it counts only if all had it.
    sm_active: Vec<u32>,
    sm_beats: u32,
    disk_bytes: [u64; 2],
    network_bytes: [u64; 2],
}

impl OpenInterval {
    fn add(&mut self, beat: &v1::Heartbeat) {
        self.beats += 1;
        self.gpu_busy.resize(beat.gpu_utilization.len(), 0);
        for (sum, busy) in self.gpu_busy.iter_mut().zip(&beat.gpu_utilization) {
            *sum += (*busy).min(100);
        }
        // For memory, the maximum counts.
        self.gpu_memory_mib.resize(beat.gpu_memory_used_mib.len(), 0);
        for (max, used) in self.gpu_memory_mib.iter_mut().zip(&beat.gpu_memory_used_mib) {
            *max = (*max).max(*used);
        }
        self.cpu_busy += beat.cpu_utilization.min(100);
        self.memory_mib = self.memory_mib.max(beat.memory_used_mib);
        if !beat.sm_activity.is_empty() {
            self.sm_beats += 1;
            self.sm_active.resize(beat.sm_activity.len(), 0);
            for (sum, active) in self.sm_active.iter_mut().zip(&beat.sm_activity) {
                *sum += (*active).min(100);
            }
        }
        add(
            &mut self.disk_bytes,
            [beat.disk_read_bytes, beat.disk_written_bytes],
        );
        let network = [beat.network_received_bytes, beat.network_sent_bytes];
        add(&mut self.network_bytes, network);
    }

    fn point(self) -> Option<LoadPoint> {
        let mean = |sum: &u32| u8::try_from(sum.checked_div(self.beats)?).ok();
        Some(LoadPoint {
            at: Time((self.step + 1) * STEP_US),
            gpu_busy: self.gpu_busy.iter().map(mean).collect::<Option<_>>()?,
            gpu_memory_mib: self.gpu_memory_mib,
            cpu_busy: u8::try_from(self.cpu_busy.checked_div(self.beats)?).ok()?,
            memory_mib: self.memory_mib,
            sm_active: match self.sm_beats == self.beats {
                true => self.sm_active.iter().map(mean).collect::<Option<_>>()?,
                false => Vec::new(),
            },
            disk_read_bytes: self.disk_bytes[0],
            disk_written_bytes: self.disk_bytes[1],
            network_received_bytes: self.network_bytes[0],
            network_sent_bytes: self.network_bytes[1],
        })
    }
}

fn add(sums: &mut [u64; 2], bytes: [u64; 2]) {
    for (sum, bytes) in sums.iter_mut().zip(bytes) {
        *sum = sum.saturating_add(bytes);
    }
}

#[derive(Debug, Default)]
struct NodeLoad {
    open: OpenInterval,
    points: VecDeque<LoadPoint>,
}

/// Utilization of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Loads(BTreeMap<NodeId, NodeLoad>);

impl Loads {
    /// Adds a heartbeat of a node.
    pub(crate) fn record(&mut self, node: NodeId, now: Time, beat: &v1::Heartbeat) {
        let load = self.0.entry(node).or_default();
        let step = now.0.div_euclid(STEP_US);
        if load.open.step != step {
            let ended = std::mem::take(&mut load.open);
            load.open.step = step;
            load.points.extend(ended.point());
            while load.points.len() > MAX_POINTS {
                load.points.pop_front();
            }
        }
        load.open.add(beat);
    }

    /// Returns the utilization of a node since a point in time, oldest first.
    pub(crate) fn since(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        let points = self.0.get(&node).map(|load| &load.points);
        let new = points.into_iter().flatten().filter(|p| p.at > since);
        new.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_averaged_and_old_intervals_removed() {
        let mut loads = Loads::default();
        let beat = |busy: u32, memory: u32| v1::Heartbeat {
            gpu_utilization: vec![busy, 0],
            gpu_memory_used_mib: vec![memory, 0],
            cpu_utilization: 50,
            sm_activity: vec![busy / 2, 0],
            disk_read_bytes: 1000,
            network_sent_bytes: 7,
            ..Default::default()
        };
        let node = NodeId(3);
        for (at, busy, memory) in [(0, 10, 7), (10, 30, 5), (29, 50, 6), (31, 90, 1), (61, 0, 0)] {
            loads.record(node, Time::from_secs(at), &beat(busy, memory));
        }
        let points = loads.since(node, Time::ZERO);
        assert_eq!(points.len(), 2, "{points:?}");
        assert_eq!(
            (points[0].at, &points[0].gpu_busy[..]),
            (Time::from_secs(30), &[30, 0][..])
        );
        assert_eq!((points[0].gpu_memory_mib[0], points[0].cpu_busy), (7, 50));
        assert_eq!(points[0].sm_active, [15, 0]);
        assert_eq!(
            (points[0].disk_read_bytes, points[0].network_sent_bytes),
            (3000, 21)
        );
        assert_eq!(loads.since(node, Time::from_secs(30)).len(), 1);
        assert!(loads.since(NodeId(4), Time::ZERO).is_empty());
        for i in 0..2_000 {
            loads.record(node, Time::from_secs(30 * i + 100), &v1::Heartbeat::default());
        }
        let points = loads.since(node, Time::ZERO);
        assert_eq!(points.len(), MAX_POINTS);
        assert!(points[0].gpu_busy.is_empty(), "a node without data is not idle");
    }
}
