//! On which nodes pods may be: selectors, affinity and taints, as the engine understands them.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::Fact;
use dovetail_model::ids::Id;
use dovetail_model::{NodeConstraintId, NodeId};

use super::gang::Member;
use super::nodes::{Seen, gpu_type};
use super::{Gang, Ledger, Reconciler};
use crate::fit::Wants;

/// What of a pod decides on which nodes it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    wants: Wants,
    /// Its GPUs come by ResourceClaims, or as a number; nothing where it has none.
    by_claims: Option<bool>,
}

impl Wish {
    fn of(member: &Member) -> Self {
        Self {
            wants: member.wants.clone(),
            by_claims: (member.identity.needs.gpus > 0).then_some(!member.claims.is_empty()),
        }
    }

    /// Why the pod may not be on the node; none if it may.
    fn against(&self, name: &str, node: &Seen) -> Option<String> {
        match (self.by_claims, node.by_claims) {
            (Some(true), false) => Some("its GPUs are counted, and the pod claims them".to_owned()),
            (Some(false), true) => Some("its GPUs are claimed, and the pod counts them".to_owned()),
            _ => self.wants.against(name, &node.labels, &node.taints),
        }
    }
}

/// What pods want, and the nodes that may take them. Pods by the thousand want the same.
#[derive(Debug, Default)]
pub(crate) struct NodeConstraints(Vec<NodeConstraint>);

#[derive(Debug)]
struct NodeConstraint {
    /// All of these, each once.
    wishes: Vec<Wish>,
    within: BTreeSet<NodeId>,
}

impl NodeConstraint {
    fn admits(&self, name: &str, node: &Seen) -> bool {
        self.wishes.iter().all(|wish| wish.against(name, node).is_none())
    }
}

impl NodeConstraints {
    /// A node has changed: fences that it is within now and was not, or the other way round.
    fn look_at(&mut self, name: &str, id: NodeId, node: Option<&Seen>) -> Vec<NodeConstraintId> {
        let mut changed = Vec::new();
        for (at, constraint) in self.0.iter_mut().enumerate() {
            let news = match node.is_some_and(|node| constraint.admits(name, node)) {
                true => constraint.within.insert(id),
                false => constraint.within.remove(&id),
            };
            if news {
                changed.push(NodeConstraintId::from_index(at));
            }
        }
        changed
    }

    fn nodes(&self, constraint: NodeConstraintId) -> Vec<NodeId> {
        self.0[constraint.index()].within.iter().copied().collect()
    }
}

impl Reconciler {
    /// Tells the book on which nodes pods may be, now that one has changed or is gone.
    pub(super) fn update_constraints_of(&mut self, name: &str, id: NodeId, ledger: &mut impl Ledger) {
        for constraint in self.constraints.look_at(name, id, self.nodes.get(name)) {
            let nodes = self.constraints.nodes(constraint);
            ledger.record(Fact::NodeConstraintSet { constraint, nodes });
        }
    }

    /// The same, where there is a node within it.
    ///
    /// # Errors
    /// When there is none, or when pods want too many different things.
    pub(super) fn constraint_with_nodes(
        &mut self,
        members: &[Member],
        ledger: &mut impl Ledger,
    ) -> Result<NodeConstraintId, String> {
        let constraint = self.constraint_for(members, ledger)?;
        let is_empty = self.constraints.0[constraint.index()].within.is_empty();
        match is_empty.then(|| self.none_may_take(members)).flatten() {
            Some(why) => Err(why),
            None => Ok(constraint),
        }
    }

    /// The fence around all nodes that may take each of these pods.
    ///
    /// # Errors
    /// When pods want too many different things.
    pub(super) fn constraint_for(
        &mut self,
        members: &[Member],
        ledger: &mut impl Ledger,
    ) -> Result<NodeConstraintId, String> {
        let mut wishes: Vec<Wish> = Vec::new();
        for wish in members.iter().map(Wish::of) {
            if !wishes.contains(&wish) {
                wishes.push(wish);
            }
        }
        match self.constraints.0.iter().position(|f| f.wishes == wishes) {
            Some(known) => Ok(NodeConstraintId::from_index(known)),
            None => self.new_fence(wishes, ledger),
        }
    }

    fn new_fence(&mut self, wishes: Vec<Wish>, ledger: &mut impl Ledger) -> Result<NodeConstraintId, String> {
        let mut constraint = NodeConstraint {
            wishes,
            within: BTreeSet::new(),
        };
        let admitted = self
            .nodes
            .iter()
            .filter(|(name, node)| constraint.admits(name, node));
        constraint.within = admitted.filter_map(|(_, node)| node.id).collect();
        let at = match self.constraints.0.len() < NodeConstraintId::MAX_COUNT as usize {
            true => self.constraints.0.len(),
            false => self.unused_fence().ok_or_else(|| {
                format!(
                    "pods want {} different sets of nodes already; use fewer node selectors and tolerations",
                    NodeConstraintId::MAX_COUNT
                )
            })?,
        };
        match self.constraints.0.get_mut(at) {
            Some(place) => *place = constraint,
            None => self.constraints.0.push(constraint),
        }
        let constraint = NodeConstraintId::from_index(at);
        let nodes = self.constraints.nodes(constraint);
        ledger.record(Fact::NodeConstraintSet { constraint, nodes });
        Ok(constraint)
    }

    /// A fence that no job needs any more.
    fn unused_fence(&self) -> Option<usize> {
        let with_job = |gang: &&Gang| gang.job.is_some();
        let used: BTreeSet<NodeConstraintId> = self
            .gangs
            .values()
            .filter(with_job)
            .filter_map(|g| g.constraint)
            .collect();
        (0..self.constraints.0.len()).find(|at| !used.contains(&NodeConstraintId::from_index(*at)))
    }

    /// Which node has GPUs for the pods and must not take one of them, and why.
    fn none_may_take(&self, members: &[Member]) -> Option<String> {
        let with_gpus = |nodes: &BTreeMap<String, Seen>| nodes.values().filter(|n| n.id.is_some()).count();
        let (member, name, why) = members.iter().find_map(|member| {
            let kind = member.identity.gpu_type.as_ref();
            let of_kind = |n: &Seen| n.id.is_some() && kind.is_none_or(|k| *k == gpu_type(&n.labels));
            let mut nodes = self.nodes.iter().filter(|(_, n)| of_kind(n));
            nodes.find_map(|(name, node)| {
                let why = Wish::of(member).against(name, node)?;
                Some((member, name, why))
            })
        })?;
        Some(format!(
            "none of the {} nodes with GPUs may take pod {}: node {name}, for one, must not ({why})",
            with_gpus(&self.nodes),
            member.id.name
        ))
    }
}
