//! Nodes that go down and come back.

use std::cmp::Reverse;

use dovetail_model::{Event, NodeId, Time};

use super::{Coming, Run};

impl Run<'_> {
    pub(super) fn only_failures_coming(&self) -> bool {
        self.coming
            .iter()
            .all(|Reverse((_, c))| matches!(c, Coming::NodeDown(..)))
    }

    pub(super) fn node_down(&mut self, node: NodeId, up: Time) {
        let until = &mut self.down[node.0 as usize];
        let was_up = until.is_none();
        *until = Some(until.map_or(up, |until| until.max(up)));
        if was_up {
            self.up_gpus -= self.config.cluster.nodes[node].gpus;
            self.tell(Event::NodeDown { node });
        }
        if up < Time::MAX {
            self.coming.push(Reverse((up, Coming::NodeUp(node))));
        }
    }

    /// The end of an outage; the node is back unless it is down for longer by another one.
    pub(super) fn node_up(&mut self, node: NodeId) {
        if self.down[node.0 as usize].is_none_or(|until| until > self.now) {
            return;
        }
        self.down[node.0 as usize] = None;
        let spec = self.config.cluster.nodes[node].clone();
        self.up_gpus += spec.gpus;
        self.tell(Event::NodeUp { node, spec });
        if let Some(outage) = self.process.as_mut().map(|p| p.next(node, self.now)) {
            let up = outage.up.unwrap_or(Time::MAX);
            self.coming
                .push(Reverse((outage.down, Coming::NodeDown(node, up))));
        }
    }
}
