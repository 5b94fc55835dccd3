//! Places of the pods of a group, by names of machines and indices of leaf cells.

use std::collections::BTreeSet;

use dovetail_cells::{Cells, Group, GroupId, Pod};

use crate::answer::Answer;

/// Place of one pod of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Leaf cells the pod asks for.
    pub size: u32,
    /// Its machine.
    pub node: String,
    /// Indices of its leaf cells on that machine.
    pub leaves: Vec<i32>,
    /// Type of the virtual cluster's cell it belongs to; empty for borrowers.
    pub kind: String,
}

impl Place {
    /// Returns the place of the pod at index `at` of a group.
    pub(crate) fn of(cells: &Cells, group: &Group, at: usize) -> Self {
        let layout = cells.layout();
        let pod = &group.pods[at];
        let node = pod.leaves.first().map(|leaf| layout.machine_of(pod.chain, *leaf));
        let indices = &layout.chain(pod.chain).leaf_indices;
        Self {
            size: pod.size,
            node: node
                .map(|n| layout.machines[n.index()].name.clone())
                .unwrap_or_default(),
            leaves: pod.leaves.iter().map(|l| indices[*l as usize]).collect(),
            kind: preassigned_type(cells, group, pod).to_owned(),
        }
    }

    /// Whether it is on this machine and has these leaf cells, in any order.
    pub(crate) fn is_at(&self, node: &str, leaves: &[i32]) -> bool {
        let set = |leaves: &[i32]| leaves.iter().copied().collect::<BTreeSet<_>>();
        self.node == node && set(&self.leaves) == set(leaves)
    }
}

/// Returns the type of the virtual cluster's cell that a pod belongs to; empty for borrowers.
fn preassigned_type<'a>(cells: &'a Cells, group: &Group, pod: &Pod) -> &'a str {
    match pod.home {
        Some((_, level)) if group.effective_priority() >= 0 => &cells.layout().chain(pod.chain).types[level],
        _ => "",
    }
}

/// Returns the answer for the pod at index `at` of a group.
pub(crate) fn bind_answer(cells: &Cells, group: &Group, at: usize) -> Answer {
    let place = Place::of(cells, group, at);
    let preassigned = group
        .pods
        .iter()
        .map(|p| preassigned_type(cells, group, p).to_owned());
    Answer::Bind {
        node: place.node,
        leaves: place.leaves,
        chain: cells.layout().chain(group.pods[at].chain).name.clone(),
        preassigned: preassigned.collect(),
    }
}

/// A group with its name, places and pods.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// Name of the group.
    pub name: &'a str,
    /// The group in the cells.
    pub group: &'a Group,
    /// Its id there.
    pub id: GroupId,
    /// Name of its virtual cluster, which may no longer exist.
    pub vc: &'a str,
    /// The requested priority.
    pub priority: i32,
    /// Cell chain of its places.
    pub chain: &'a str,
    /// Places of its pods.
    pub places: &'a [Place],
    /// The pod on each place.
    pub pods: &'a [Option<String>],
    /// Pods that wait for its victims to be deleted.
    pub waiting: &'a BTreeSet<String>,
}
