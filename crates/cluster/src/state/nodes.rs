//! Nodes: their records, and the transitions between their states.

use std::collections::VecDeque;

use dovetail_model::ids::Id;
use dovetail_model::{Event, IdVec, NodeId, NodeSpec, Time};
use serde::{Deserialize, Serialize};

use super::events::{EventKind, EventLog};
use super::scheduler::Scheduler;
use crate::actor::{Actor, SystemRule};
use crate::fact::Fact;
use crate::virtual_clusters::VirtualClusters;

/// State of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Takes jobs.
    Up,
    /// Takes no new jobs.
    Draining {
        /// User or rule that drained it.
        by: Actor,
        /// Reason given.
        #[serde(alias = "why")]
        reason: String,
    },
    /// Silent for longer than its lease.
    Lost,
}

/// Everything the scheduler knows about a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its resources.
    pub spec: NodeSpec,
    /// Type of its GPUs.
    pub gpu_type: String,
    /// Rack it is in.
    pub rack: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Random number its agent drew at the first start.
    pub identity: u64,
    /// Current state.
    pub state: NodeState,
    /// When it entered this state.
    pub since: Time,
    /// Times of recent task failures caused by the platform.
    faults: VecDeque<Time>,
}

/// Number of platform failures within [`FAULT_WINDOW`] after which a node is drained.
const MAX_FAULTS: usize = 3;
/// Time for which platform failures count.
const FAULT_WINDOW: Time = Time::from_secs(3600);

/// All nodes that ever joined, by id.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct NodeTable {
    records: IdVec<NodeId, NodeRecord>,
}

impl NodeTable {
    pub(super) fn get(&self, id: NodeId) -> Option<&NodeRecord> {
        self.records.get(id)
    }

    /// Returns a node that exists.
    pub(super) fn known(&self, id: NodeId) -> &NodeRecord {
        &self.records[id]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.records.iter()
    }

    /// Returns all nodes that are not lost.
    pub(super) fn connected(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.values().filter(|n| n.state != NodeState::Lost)
    }

    /// Returns the node with this name.
    pub(super) fn named(&self, name: &str) -> Option<NodeId> {
        let mut nodes = self.records.iter();
        nodes.find(|(_, node)| node.spec.name == name).map(|(id, _)| id)
    }

    /// Changes the state of a node. Returns whether it exists and was in another state.
    fn set_state(&mut self, id: NodeId, state: NodeState, now: Time) -> bool {
        let Some(record) = self.records.get_mut(id).filter(|record| record.state != state) else {
            return false;
        };
        (record.state, record.since) = (state, now);
        true
    }
}

/// Changes the states of nodes: in the node table, the engine and the event log together.
#[derive(Debug)]
pub(super) struct NodeLifecycle<'a> {
    pub(super) nodes: &'a mut NodeTable,
    pub(super) scheduler: &'a mut Scheduler,
    pub(super) virtual_clusters: &'a VirtualClusters,
    pub(super) events: &'a mut EventLog,
    pub(super) now: Time,
}

impl NodeLifecycle<'_> {
    fn log(&mut self, kind: EventKind) {
        self.events.log(self.now, None, kind);
    }

    /// Adds a node, or replaces the record of one that returned ([`Fact::NodeJoined`]). A drained node stays drained.
    pub(super) fn join(&mut self, fact: &Fact) {
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
        if node.index() > self.nodes.records.len() {
            return;
        }
        let mut spec = (**spec).clone();
        (spec.gpu_type, spec.zone) = self.scheduler.register_node(gpu_type, rack);
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
        match self.nodes.records.get_mut(*node) {
            Some(known) => *known = record,
            None => {
                self.nodes.records.push(record);
            }
        }
        self.scheduler
            .handle(self.now, Event::NodeUp { node: *node, spec });
        self.scheduler
            .refresh_cells(self.now, self.virtual_clusters, self.nodes);
        self.log(EventKind::NodeJoined { node: *node });
        if let Some((by, reason)) = draining {
            self.drain(*node, &by, &reason);
        }
    }

    /// Marks a node as lost. Returns whether it was not before.
    pub(super) fn lose(&mut self, node: NodeId) -> bool {
        if !self.nodes.set_state(node, NodeState::Lost, self.now) {
            return false;
        }
        self.log(EventKind::NodeLost { node });
        self.scheduler.handle(self.now, Event::NodeDown { node });
        true
    }

    /// Drains a node: it gets no new jobs.
    pub(super) fn drain(&mut self, node: NodeId, by: &Actor, reason: &str) {
        let state = NodeState::Draining {
            by: by.clone(),
            reason: reason.to_owned(),
        };
        let is_lost = self.nodes.get(node).is_some_and(|n| n.state == NodeState::Lost);
        if is_lost || !self.nodes.set_state(node, state, self.now) {
            return;
        }
        self.scheduler.handle(self.now, Event::NodeDraining { node });
        self.log(EventKind::NodeDrained {
            node,
            by: by.clone(),
            reason: reason.to_owned(),
        });
    }

    /// Lets a drained node take jobs again.
    pub(super) fn resume(&mut self, node: NodeId, by: &Actor) {
        let record = self.nodes.records.get_mut(node);
        let is_draining = |n: &&mut NodeRecord| matches!(n.state, NodeState::Draining { .. });
        let Some(record) = record.filter(is_draining) else {
            return;
        };
        record.faults.clear();
        (record.state, record.since) = (NodeState::Up, self.now);
        self.scheduler.handle(self.now, Event::NodeResumed { node });
        self.log(EventKind::NodeResumed { node, by: by.clone() });
    }

    /// Records a task failure that the platform caused. A node with too many of them is drained.
    pub(super) fn record_fault(&mut self, node: NodeId, error: &str) {
        let now = self.now;
        let Some(record) = self.nodes.records.get_mut(node) else {
            return;
        };
        record.faults.push_back(now);
        while record.faults.front().is_some_and(|at| *at + FAULT_WINDOW < now) {
            record.faults.pop_front();
        }
        if record.faults.len() >= MAX_FAULTS && record.state == NodeState::Up {
            let reason = format!(
                "{} tasks failed within an hour because of the platform; last error: {error}",
                record.faults.len()
            );
            self.drain(node, &Actor::System(SystemRule::Health), &reason);
        }
    }
}
