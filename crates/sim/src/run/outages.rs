//! Nodes that fail and return.

use dovetail_model::{ClusterSpec, Event, NodeId, Time};

use super::event_queue::{EventQueue, ScheduledEvent};
use crate::config::SimConfig;
use crate::failures::{Outage, Process};

/// The outages of all nodes, listed and random.
#[derive(Debug)]
pub(super) struct OutageSchedule<'a> {
    cluster: &'a ClusterSpec,
    /// Random failures; `None` if there are none.
    process: Option<Process>,
    /// End of each node's outage; `None` for nodes that are up.
    down: Vec<Option<Time>>,
    /// Number of GPUs of the nodes that are up.
    pub(super) up_gpus: u32,
}

impl<'a> OutageSchedule<'a> {
    /// Returns a schedule with all nodes up, and schedules the first outage of each.
    pub(super) fn new(config: &'a SimConfig, queue: &mut EventQueue) -> Self {
        let cluster = &config.cluster;
        let mut schedule = Self {
            cluster,
            process: Process::new(&config.failures, config.seed),
            down: vec![None; cluster.nodes.len()],
            up_gpus: cluster.nodes.values().map(|spec| spec.gpus).sum(),
        };
        for (node, _) in cluster.nodes.iter() {
            schedule.schedule_random(node, Time::ZERO, queue);
        }
        for outage in &config.failures.outages {
            schedule_outage(outage, queue);
        }
        schedule
    }

    /// Schedules the next random outage of a node.
    fn schedule_random(&mut self, node: NodeId, now: Time, queue: &mut EventQueue) {
        if let Some(outage) = self.process.as_mut().map(|p| p.next(node, now)) {
            schedule_outage(&outage, queue);
        }
    }

    /// Begins an outage that lasts until `up`. Returns the event for the engine if the node was up.
    pub(super) fn begin(&mut self, node: NodeId, up: Time, queue: &mut EventQueue) -> Option<Event> {
        let until = &mut self.down[node.0 as usize];
        let was_up = until.is_none();
        *until = Some(until.map_or(up, |until| until.max(up)));
        if up < Time::MAX {
            queue.schedule(up, ScheduledEvent::NodeUp(node));
        }
        was_up.then(|| {
            self.up_gpus -= self.cluster.nodes[node].gpus;
            Event::NodeDown { node }
        })
    }

    /// Ends an outage. Returns the event for the engine if the node returns, which it does unless another outage lasts
    /// longer.
    pub(super) fn end(&mut self, node: NodeId, queue: &mut EventQueue) -> Option<Event> {
        if self.down[node.0 as usize].is_none_or(|until| until > queue.now) {
            return None;
        }
        self.down[node.0 as usize] = None;
        let spec = self.cluster.nodes[node].clone();
        self.up_gpus += spec.gpus;
        self.schedule_random(node, queue.now, queue);
        Some(Event::NodeUp { node, spec })
    }
}

fn schedule_outage(outage: &Outage, queue: &mut EventQueue) {
    let up = outage.up.unwrap_or(Time::MAX);
    queue.schedule(outage.down, ScheduledEvent::NodeDown(outage.node, up));
}
