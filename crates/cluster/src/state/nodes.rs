//! Nodes: how they come and go.

use std::collections::VecDeque;

use dovetail_model::ids::Id;
use dovetail_model::{Event, GpuTypeId, NodeId, NodeSpec, Time, Zone, ZoneId};
use serde::{Deserialize, Serialize};

use super::{ClusterState, EventKind, Names};
use crate::actor::{Actor, SystemRule};
use crate::fact::Fact;

/// Whether a node can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It takes jobs.
    Up,
    /// It takes no new jobs: who said so, and why.
    Draining {
        /// Who, or which rule.
        by: Actor,
        /// Why.
        #[serde(alias = "why")]
        reason: String,
    },
    /// It was not heard of for too long.
    Lost,
}

/// All that is known of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// What it has.
    pub spec: NodeSpec,
    /// The kind of its GPUs.
    pub gpu_type: String,
    /// Its rack.
    pub rack: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Drawn when its agent first started.
    pub identity: u64,
    /// Whether it can be used.
    pub state: NodeState,
    /// Since when.
    pub since: Time,
    /// When tasks failed here through the platform's fault, lately.
    pub(super) faults: VecDeque<Time>,
}

/// So many faults of the platform on a node ...
const FAULTS: usize = 3;
/// ... within this time, and it takes no new jobs.
const FAULT_WINDOW: Time = Time::from_secs(3600);

impl ClusterState {
    pub(super) fn node_joined(&mut self, fact: &Fact) {
        let Fact::NodeJoined {
            node,
            spec,
            gpu_type,
            rack,
            address,
            identity,
        } = fact
        else {
            return;
        };
        if node.index() > self.nodes.len() {
            return;
        }
        let mut spec = (**spec).clone();
        spec.gpu_type = GpuTypeId(Names::number(&mut self.names.gpu_types, gpu_type));
        spec.zone = ZoneId(Names::number(&mut self.names.racks, rack));
        let zone = |name: &String| Zone {
            name: name.clone(),
            parent: None,
        };
        let zones = self.names.racks.iter().map(zone).collect();
        self.engine.set_zones(zones);
        let draining = match self.nodes.get(*node).map(|n| &n.state) {
            Some(NodeState::Draining { by, reason }) => Some((by.clone(), reason.clone())),
            _ => None,
        };
        let record = NodeRecord {
            spec: spec.clone(),
            gpu_type: gpu_type.clone(),
            rack: rack.clone(),
            address: address.clone(),
            identity: *identity,
            state: NodeState::Up,
            since: self.now,
            faults: VecDeque::new(),
        };
        match self.nodes.get_mut(*node) {
            Some(known) => *known = record,
            None => {
                self.nodes.push(record);
            }
        }
        self.tell(Event::NodeUp { node: *node, spec });
        self.refresh_cells();
        self.log_event(None, EventKind::NodeJoined { node: *node });
        if let Some((by, reason)) = draining {
            self.node_drained(*node, &by, &reason);
        }
    }

    pub(super) fn node_lost(&mut self, node: NodeId) {
        if !self.set_node(node, NodeState::Lost) {
            return;
        }
        self.log_event(None, EventKind::NodeLost { node });
        self.tell(Event::NodeDown { node });
        // What the engine stops for it must be known to have stopped there.
        self.pump();
        self.tasks_lost_with(node);
    }

    pub(super) fn node_drained(&mut self, node: NodeId, by: &Actor, reason: &str) {
        let state = NodeState::Draining {
            by: by.clone(),
            reason: reason.to_owned(),
        };
        if self.nodes.get(node).is_some_and(|n| n.state == NodeState::Lost) || !self.set_node(node, state) {
            return;
        }
        self.tell(Event::NodeDraining { node });
        self.log_event(
            None,
            EventKind::NodeDrained {
                node,
                by: by.clone(),
                reason: reason.to_owned(),
            },
        );
    }

    pub(super) fn node_resumed(&mut self, node: NodeId, by: &Actor) {
        let draining = |n: &super::NodeRecord| matches!(n.state, NodeState::Draining { .. });
        if !self.nodes.get(node).is_some_and(draining) {
            return;
        }
        self.set_node(node, NodeState::Up);
        if let Some(record) = self.nodes.get_mut(node) {
            record.faults.clear();
        }
        self.tell(Event::NodeResumed { node });
        self.log_event(None, EventKind::NodeResumed { node, by: by.clone() });
    }

    /// Whether that changed anything.
    fn set_node(&mut self, node: NodeId, state: NodeState) -> bool {
        let now = self.now;
        let Some(record) = self.nodes.get_mut(node) else {
            return false;
        };
        if record.state == state {
            return false;
        }
        (record.state, record.since) = (state, now);
        true
    }

    /// A task failed here through no fault of its job. A node on which that happens again and again takes no new jobs.
    pub(super) fn fault_on(&mut self, node: NodeId, what: &str) {
        let now = self.now;
        let Some(record) = self.nodes.get_mut(node) else {
            return;
        };
        record.faults.push_back(now);
        while record.faults.front().is_some_and(|at| *at + FAULT_WINDOW < now) {
            record.faults.pop_front();
        }
        if record.faults.len() >= FAULTS && record.state == NodeState::Up {
            let why = format!(
                "{} tasks failed here within an hour through no fault of theirs, the last one: {what}",
                record.faults.len()
            );
            self.node_drained(node, &Actor::System(SystemRule::Health), &why);
        }
    }
}
