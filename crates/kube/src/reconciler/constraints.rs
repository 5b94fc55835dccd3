//! Node constraints: the nodes that selectors, affinity, taints and rejections leave for the pods of a gang.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::Fact;
use dovetail_model::ids::Id;
use dovetail_model::{NodeConstraintId, NodeId, Time};

use super::ClusterTransaction;
use super::error::GangError;
use super::gang::{AvoidedNode, Member};
use super::gang_table::GangTable;
use super::nodes::{KnownNode, NodeTable, gpu_type};
use crate::node_fit::NodeRequirements;

/// What a pod requires of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    requirements: NodeRequirements,
    /// Whether its GPUs are allocated by ResourceClaims instead of by count; `None` for a pod without GPUs.
    by_claims: Option<bool>,
}

impl Requirement {
    fn of(member: &Member) -> Self {
        Self {
            requirements: member.requirements.clone(),
            by_claims: (member.identity.resources.gpus > 0).then_some(!member.claims.is_empty()),
        }
    }

    /// Returns why the pod may not run on the node; `None` if it may.
    fn mismatch(&self, name: &str, node: &KnownNode) -> Option<String> {
        match (self.by_claims, node.by_claims) {
            (Some(true), false) => {
                Some("its GPUs are allocated by count, and the pod uses ResourceClaims".to_owned())
            }
            (Some(false), true) => {
                Some("its GPUs are allocated by ResourceClaims, and the pod requests a count".to_owned())
            }
            _ => self.requirements.mismatch(name, &node.labels, &node.taints),
        }
    }
}

/// The node constraints of all gangs. Thousands of gangs share one, because their pods require the same.
#[derive(Debug, Default)]
pub(crate) struct ConstraintTable(Vec<NodeConstraint>);

#[derive(Debug, Default)]
struct NodeConstraint {
    /// Each different requirement once; a node must meet all of them.
    requirements: Vec<Requirement>,
    /// Nodes that are left out, and until when.
    avoided: BTreeMap<NodeId, Time>,
    nodes: BTreeSet<NodeId>,
}

impl NodeConstraint {
    fn admits(&self, name: &str, node: &KnownNode) -> bool {
        let is_avoided = node.id.is_some_and(|id| self.avoided.contains_key(&id));
        !is_avoided && self.requirements.iter().all(|r| r.mismatch(name, node).is_none())
    }

    fn find_nodes(&mut self, nodes: &NodeTable) {
        let admitted = nodes.iter().filter(|(name, node)| self.admits(name, node));
        self.nodes = admitted.filter_map(|(_, node)| node.id).collect();
    }
}

impl ConstraintTable {
    /// Updates all constraints after a node has changed or was deleted.
    pub(super) fn update_node(
        &mut self,
        name: &str,
        id: NodeId,
        nodes: &NodeTable,
        tx: &mut impl ClusterTransaction,
    ) {
        let node = nodes.get(name);
        for (index, constraint) in self.0.iter_mut().enumerate() {
            let changed = match node.is_some_and(|node| constraint.admits(name, node)) {
                true => constraint.nodes.insert(id),
                false => constraint.nodes.remove(&id),
            };
            if changed {
                record(index, constraint, tx);
            }
        }
    }

    /// Ends the avoidance of nodes whose time has passed.
    pub(super) fn expire_avoided(&mut self, now: Time, nodes: &NodeTable, tx: &mut impl ClusterTransaction) {
        for (index, constraint) in self.0.iter_mut().enumerate() {
            let before = constraint.avoided.len();
            constraint.avoided.retain(|_, until| *until > now);
            if constraint.avoided.len() < before {
                constraint.find_nodes(nodes);
                record(index, constraint, tx);
            }
        }
    }

    /// Returns the constraint of these pods.
    ///
    /// # Errors
    /// If no node is left, or if there are too many different constraints.
    pub(super) fn with_nodes(
        &mut self,
        members: &[Member],
        avoided: &BTreeMap<NodeId, AvoidedNode>,
        (nodes, gangs): (&NodeTable, &GangTable),
        tx: &mut impl ClusterTransaction,
    ) -> Result<NodeConstraintId, GangError> {
        let id = self.get_or_create(members, avoided, (nodes, gangs), tx)?;
        if !self.0[id.index()].nodes.is_empty() {
            return Ok(id);
        }
        let requirements = &self.0[id.index()].requirements;
        let would_fit = |id: &NodeId| {
            let name = nodes.name(*id);
            let node = nodes.get(&name);
            node.is_some_and(|node| requirements.iter().all(|r| r.mismatch(&name, node).is_none()))
        };
        if let Some((_, node)) = avoided.iter().find(|(id, _)| would_fit(id)) {
            return Err(GangError::AllNodesAvoided(node.reason.clone()));
        }
        match no_node(members, nodes) {
            Some(error) => Err(error),
            None => Ok(id),
        }
    }

    /// Returns the constraint of these pods, even if it leaves no node.
    ///
    /// # Errors
    /// If there are too many different constraints.
    pub(super) fn get_or_create(
        &mut self,
        members: &[Member],
        avoided: &BTreeMap<NodeId, AvoidedNode>,
        (nodes, gangs): (&NodeTable, &GangTable),
        tx: &mut impl ClusterTransaction,
    ) -> Result<NodeConstraintId, GangError> {
        let mut requirements: Vec<Requirement> = Vec::new();
        for requirement in members.iter().map(Requirement::of) {
            if !requirements.contains(&requirement) {
                requirements.push(requirement);
            }
        }
        let avoided: BTreeMap<NodeId, Time> = avoided.iter().map(|(id, node)| (*id, node.until)).collect();
        let same = |c: &NodeConstraint| c.requirements == requirements && c.avoided == avoided;
        if let Some(known) = self.0.iter().position(same) {
            return Ok(NodeConstraintId::from_index(known));
        }
        let index = match self.0.len() < NodeConstraintId::MAX_COUNT as usize {
            true => self.0.len(),
            false => self
                .unused(gangs)
                .ok_or(GangError::TooManyConstraints(NodeConstraintId::MAX_COUNT))?,
        };
        let mut constraint = NodeConstraint {
            requirements,
            avoided,
            nodes: BTreeSet::new(),
        };
        constraint.find_nodes(nodes);
        record(index, &constraint, tx);
        match self.0.get_mut(index) {
            Some(unused) => *unused = constraint,
            None => self.0.push(constraint),
        }
        Ok(NodeConstraintId::from_index(index))
    }

    /// Returns a constraint that no job uses.
    fn unused(&self, gangs: &GangTable) -> Option<usize> {
        let with_job = gangs.iter().filter(|gang| gang.job.is_some());
        let used: BTreeSet<NodeConstraintId> = with_job.filter_map(|gang| gang.constraint).collect();
        (0..self.0.len()).find(|index| !used.contains(&NodeConstraintId::from_index(*index)))
    }
}

fn record(index: usize, constraint: &NodeConstraint, tx: &mut impl ClusterTransaction) {
    tx.record(Fact::NodeConstraintSet {
        constraint: NodeConstraintId::from_index(index),
        nodes: constraint.nodes.iter().copied().collect(),
    });
}

/// Returns an example of a node with GPUs for the pods that may not take one of them; `None` if there is no such node.
fn no_node(members: &[Member], nodes: &NodeTable) -> Option<GangError> {
    members.iter().find_map(|member| {
        let gpu_type_asked = member.identity.gpu_type.as_ref();
        let has_gpus = |node: &KnownNode| {
            node.id.is_some() && gpu_type_asked.is_none_or(|asked| *asked == gpu_type(&node.labels))
        };
        let mut with_gpus = nodes.iter().filter(|(_, node)| has_gpus(node));
        with_gpus.find_map(|(name, node)| {
            let mismatch = Requirement::of(member).mismatch(name, node)?;
            Some(GangError::NoNode {
                nodes: nodes.iter().filter(|(_, node)| node.id.is_some()).count(),
                pod: member.id.name.clone(),
                node: name.clone(),
                mismatch,
            })
        })
    })
}
