//! Nodes that fail and return.

use std::cmp::Reverse;

use dovetail_model::{Event, NodeId, Time};

use super::{Run, ScheduledEvent};

impl Run<'_> {
    pub(super) fn only_failures_scheduled(&self) -> bool {
        self.scheduled
            .iter()
            .all(|Reverse((_, c))| matches!(c, ScheduledEvent::NodeDown(..)))
    }

    pub(super) fn node_down(&mut self, node: NodeId, up: Time) {
        let until = &mut self.down[node.0 as usize];
        let was_up = until.is_none();
        *until = Some(until.map_or(up, |until| until.max(up)));
        if was_up {
            self.up_gpus -= self.config.cluster.nodes[node].gpus;
            self.report(Event::NodeDown { node });
        }
        if up < Time::MAX {
            self.scheduled.push(Reverse((up, ScheduledEvent::NodeUp(node))));
        }
    }

    /// Ends an outage; the node returns unless another outage lasts longer.
    pub(super) fn node_up(&mut self, node: NodeId) {
        if self.down[node.0 as usize].is_none_or(|until| until > self.now) {
            return;
        }
        self.down[node.0 as usize] = None;
        let spec = self.config.cluster.nodes[node].clone();
        self.up_gpus += spec.gpus;
        self.report(Event::NodeUp { node, spec });
        if let Some(outage) = self.process.as_mut().map(|p| p.next(node, self.now)) {
            let up = outage.up.unwrap_or(Time::MAX);
            self.scheduled
                .push(Reverse((outage.down, ScheduledEvent::NodeDown(node, up))));
        }
    }
}
