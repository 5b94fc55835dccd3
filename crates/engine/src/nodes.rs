//! Nodes that join, are lost, drain and come back.

use dovetail_model::{Allocation, FenceId, JobId, NodeId, Share, StopReason};

use crate::engine::Engine;
use crate::job::Live;

impl Engine {
    pub(crate) fn node_up(&mut self, node: NodeId, spec: dovetail_model::NodeSpec) {
        self.books.dirty = true;
        if let Some(known) = self.state.cluster.node(node) {
            if known.up && known.spec == spec {
                self.state.cluster.set_node(node, true, false);
                self.tell_of_node(node);
                return;
            }
            self.node_down(node);
        }
        self.state.cluster.node_up(node, spec);
        self.tell_of_node(node);
    }

    /// Tells the tenancy how the node is now.
    fn tell_of_node(&mut self, node: NodeId) {
        if let Some(known) = self.state.cluster.node(node) {
            self.policy.tenancy.node(node, known);
        }
    }

    /// Tells a tenancy that knows nothing yet of all jobs that hold GPUs, and then of all nodes.
    pub(crate) fn tell_tenancy(&mut self) {
        let tenancy = &mut self.policy.tenancy;
        for job in self.state.jobs() {
            if let Some(allocation) = &job.allocation {
                tenancy.taken(&job.spec, allocation);
            }
        }
        for (id, node) in self.state.cluster.nodes() {
            tenancy.node(id, node);
        }
        for id in tenancy.decided() {
            self.state.mark_stale(id);
        }
    }

    pub(crate) fn node_down(&mut self, node: NodeId) {
        if !self.state.cluster.node(node).is_some_and(|n| n.up) {
            return;
        }
        self.books.dirty = true;
        let touched = |a: &Option<Allocation>| a.as_ref().is_some_and(|a| a.touches(node));
        let hit: Vec<JobId> = self
            .state
            .jobs()
            .filter(|j| touched(&j.allocation))
            .map(|j| j.spec.id)
            .collect();
        for id in hit {
            let held = self.take_back(id);
            if self.state.known(id).is_up() {
                self.stop(id, held, StopReason::NodeLost(node));
            }
        }
        // Whatever was still stopping there is gone too: a late answer must not free what others hold by then.
        for entry in self.state.jobs.values_mut().flatten() {
            if let Live::Stopping(held) = &mut entry.job.live {
                held.shares.retain(|share| share.node != node);
            }
        }
        self.state.cluster.set_node(node, false, false);
        self.tell_of_node(node);
    }

    pub(crate) fn node_withheld(&mut self, node: NodeId, gpus: u32, beside: Share) {
        if self.state.cluster.withhold(node, gpus, beside) {
            self.books.dirty = true;
            self.withhold_what_is_free();
            self.tell_of_node(node);
        }
    }

    pub(crate) fn fenced(&mut self, fence: FenceId, nodes: &[NodeId]) {
        if self.state.cluster.fence(fence, nodes) {
            self.books.dirty = true;
        }
    }

    /// What was granted beyond promises on these nodes is shared out anew.
    pub(crate) fn withhold_what_is_free(&mut self) {
        let nodes = self.state.cluster.withhold_what_is_free();
        if self.state.fills {
            self.state.touched.extend(nodes);
        }
    }

    pub(crate) fn node_open(&mut self, node: NodeId, draining: bool) {
        if self
            .state
            .cluster
            .node(node)
            .is_some_and(|n| n.up && n.draining != draining)
        {
            self.state.cluster.set_node(node, true, draining);
            self.tell_of_node(node);
            self.books.dirty = true;
            if draining {
                self.unplace_from(node);
            }
        }
    }

    /// Jobs that were placed on the node and not launched yet go back in line.
    fn unplace_from(&mut self, node: NodeId) {
        let placed = |id: &JobId| {
            self.state
                .known(*id)
                .allocation
                .as_ref()
                .is_some_and(|a| a.touches(node))
        };
        let placed: Vec<JobId> = self.state.pending.iter().copied().filter(placed).collect();
        for id in placed {
            self.take_back(id);
        }
    }
}
