//! The placement of a pod and its group, in HiveD's annotation `pod-bind-info`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::annotation::{AnnotationError, BIND_INFO, ISOLATION, read};
use crate::place::{GroupView, Place};

/// Maximum length of an indented text, in bytes. Longer ones are written as compact JSON, because Kubernetes limits the
/// size of annotations.
const MAX_PRETTY: usize = 64 << 10;

/// The placement of a pod, and with it of its whole group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindInfo {
    /// Node of the pod.
    pub node: String,
    /// Indices of the pod's leaf cells on that node.
    #[serde(alias = "gpuIsolation")]
    pub leaf_cell_isolation: Vec<i32>,
    /// Cell chain of the group.
    pub cell_chain: String,
    /// The whole group, one element for each size of pod.
    pub affinity_group_bind_info: Vec<MemberBindInfo>,
}

/// Placements of the pods of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberBindInfo {
    /// One placement for each pod.
    pub pod_placements: Vec<PodPlacement>,
}

/// Placement of one pod of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodPlacement {
    /// Node of the pod.
    pub physical_node: String,
    /// Indices of the pod's leaf cells on that node.
    #[serde(alias = "physicalGpuIndices")]
    pub physical_leaf_cell_indices: Vec<i32>,
    /// For each leaf cell the type of the virtual cluster's cell it belongs to; empty for opportunistic pods.
    pub preassigned_cell_types: Vec<String>,
}

impl BindInfo {
    /// Describes the pod at index `at` of a group.
    pub fn new(group: &GroupView<'_>, at: usize) -> Self {
        let is_opportunistic = group.group.effective_priority() < 0;
        let mut members: BTreeMap<u32, MemberBindInfo> = BTreeMap::new();
        for place in group.places {
            let kind = if is_opportunistic {
                String::new()
            } else {
                place.kind.clone()
            };
            let member = members.entry(place.size).or_default();
            member.pod_placements.push(PodPlacement {
                physical_node: place.node.clone(),
                physical_leaf_cell_indices: place.leaves.clone(),
                preassigned_cell_types: vec![kind; place.leaves.len()],
            });
        }
        let own = group.places.get(at);
        Self {
            node: own.map(|p| p.node.clone()).unwrap_or_default(),
            leaf_cell_isolation: own.map(|p| p.leaves.clone()).unwrap_or_default(),
            cell_chain: group.chain.to_owned(),
            affinity_group_bind_info: members.into_values().collect(),
        }
    }

    /// Reads the placement from the annotations of a pod.
    ///
    /// # Errors
    /// When the annotation is missing or does not have the expected form.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, AnnotationError> {
        read(annotations, BIND_INFO)
    }

    /// Returns the annotations to write on the pod.
    ///
    /// # Errors
    /// When the placement cannot be serialized.
    pub fn annotations(&self) -> Result<BTreeMap<String, String>, AnnotationError> {
        let failed = |e: &dyn std::fmt::Display| AnnotationError::Syntax {
            annotation: BIND_INFO,
            message: e.to_string(),
        };
        let mut text = serde_saphyr::to_string(self).map_err(|e| failed(&e))?;
        if text.len() > MAX_PRETTY {
            text = serde_json::to_string(self).map_err(|e| failed(&e))?;
        }
        let indices: Vec<String> = self.leaf_cell_isolation.iter().map(i32::to_string).collect();
        Ok(BTreeMap::from([
            (ISOLATION.to_owned(), indices.join(",")),
            (BIND_INFO.to_owned(), text),
        ]))
    }

    /// Returns the places of the whole group, smallest pods first.
    pub fn places(&self) -> Vec<Place> {
        let placements = self
            .affinity_group_bind_info
            .iter()
            .flat_map(|m| &m.pod_placements);
        let mut places: Vec<Place> = placements
            .map(|p| Place {
                size: p.physical_leaf_cell_indices.len() as u32,
                node: p.physical_node.clone(),
                leaves: p.physical_leaf_cell_indices.clone(),
                kind: p.preassigned_cell_types.first().cloned().unwrap_or_default(),
            })
            .collect();
        places.sort_by_key(|p| p.size);
        places
    }
}
