//! What is written on pods, in HiveD's words: what they ask for, and where they were put.

use std::collections::BTreeMap;

use dovetail_cells::hived::{GroupView, Member, Place, PodGroup, PodSpec};
use dovetail_kubeapi::Pod;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::wire::Fault;

/// What a pod asks for.
pub const SPEC: &str = "hivedscheduler.microsoft.com/pod-scheduling-spec";
/// The indices of its leaves, for its containers.
pub const ISOLATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
/// Where its whole group was put.
pub const BIND_INFO: &str = "hivedscheduler.microsoft.com/pod-bind-info";
/// The limit of a container that says that the pod is for us.
pub const ENABLE: &str = "hivedscheduler.microsoft.com/pod-scheduling-enable";

/// The most leaves a group may ask for: no configuration has more.
const MOST_LEAVES: u64 = 1 << 22;
/// Longer texts are written without line breaks, to stay below what Kubernetes stores on a pod.
const LONG: usize = 64 << 10;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    virtual_cluster: Option<String>,
    priority: Option<i64>,
    user: Option<String>,
    pinned_cell_id: Option<String>,
    #[serde(alias = "gpuType")]
    leaf_cell_type: Option<String>,
    #[serde(alias = "gpuNumber")]
    leaf_cell_number: Option<i64>,
    lazy_preemption_enable: Option<bool>,
    ignore_k8s_suggested_nodes: Option<bool>,
    affinity_group: Option<RawGroup>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawGroup {
    name: Option<String>,
    members: Option<Vec<RawMember>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMember {
    pod_number: Option<i64>,
    #[serde(alias = "gpuNumber")]
    leaf_cell_number: Option<i64>,
}

fn yaml<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, Fault> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let reason = e.to_string();
        let reason = reason.lines().next().unwrap_or_default();
        Fault::user(format!("annotation {what} is not as it should be: {reason}"))
    })
}

/// What a pod asks for, with what is left out filled in.
///
/// # Errors
/// Names the field, what was found and what is expected.
pub fn read_spec(pod: &Pod) -> Result<PodSpec, Fault> {
    let meta = &pod.metadata;
    let text = meta.annotations.get(SPEC).filter(|text| !text.trim().is_empty());
    let text = text.ok_or_else(|| Fault::user(format!("annotation {SPEC} does not exist or is empty")))?;
    spec_of(text, &format!("{}/{}", meta.namespace, meta.name))
}

fn spec_of(text: &str, own_name: &str) -> Result<PodSpec, Fault> {
    // A text without a single key is read as nothing at all.
    let raw: RawSpec = yaml::<Option<RawSpec>>(text, SPEC)?.unwrap_or_default();
    let wrong = |what: String| Fault::user(format!("annotation {SPEC}: {what}"));
    let virtual_cluster = raw.virtual_cluster.unwrap_or_default();
    if virtual_cluster.is_empty() {
        return Err(wrong("virtualCluster is empty".to_owned()));
    }
    let priority = raw.priority.unwrap_or(0);
    if !(-1..=1000).contains(&priority) {
        return Err(wrong(format!("priority {priority} is not between -1 and 1000")));
    }
    let size = positive(raw.leaf_cell_number, "leafCellNumber").map_err(wrong)?;
    let group = match raw.affinity_group {
        None => PodGroup {
            name: own_name.to_owned(),
            members: vec![Member {
                pod_number: 1,
                leaf_cell_number: size,
            }],
        },
        Some(group) => group_of(group).map_err(wrong)?,
    };
    if !group.members.iter().any(|m| m.leaf_cell_number == size) {
        let what =
            format!("affinityGroup.members has no pod with {size} leaf cells, but this pod asks for {size}");
        return Err(wrong(what));
    }
    Ok(PodSpec {
        virtual_cluster,
        priority: priority as i32,
        user: raw.user.unwrap_or_default(),
        pinned_cell_id: raw.pinned_cell_id.unwrap_or_default(),
        leaf_cell_type: raw.leaf_cell_type.unwrap_or_default(),
        leaf_cell_number: size,
        lazy_preemption_enable: raw.lazy_preemption_enable.unwrap_or(false),
        ignore_k8s_suggested_nodes: raw.ignore_k8s_suggested_nodes.unwrap_or(true),
        affinity_group: Some(group),
    })
}

/// A group with pods of equal size put together.
fn group_of(raw: RawGroup) -> Result<PodGroup, String> {
    let name = raw.name.unwrap_or_default();
    if name.is_empty() {
        return Err("affinityGroup.name is empty".to_owned());
    }
    let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
    let mut leaves = 0u64;
    for (at, member) in raw.members.unwrap_or_default().into_iter().enumerate() {
        let path = |key: &str| format!("affinityGroup.members[{at}].{key}");
        let pods = positive(member.pod_number, &path("podNumber"))?;
        let size = positive(member.leaf_cell_number, &path("leafCellNumber"))?;
        leaves += u64::from(pods) * u64::from(size);
        if leaves > MOST_LEAVES {
            return Err(format!(
                "affinityGroup.members ask for more than {MOST_LEAVES} leaf cells, which no cluster has"
            ));
        }
        *sizes.entry(size).or_default() += pods;
    }
    let members = sizes.into_iter().map(|(leaf_cell_number, pod_number)| Member {
        pod_number,
        leaf_cell_number,
    });
    Ok(PodGroup {
        name,
        members: members.collect(),
    })
}

fn positive(number: Option<i64>, what: &str) -> Result<u32, String> {
    let found = number.unwrap_or(0);
    match u32::try_from(found)
        .ok()
        .filter(|n| *n > 0 && u64::from(*n) <= MOST_LEAVES)
    {
        Some(number) => Ok(number),
        None => Err(format!(
            "{what} is {found}, expected a whole number from 1 to {MOST_LEAVES}"
        )),
    }
}

/// Where a pod was put, and with it its whole group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindInfo {
    /// Its node.
    pub node: String,
    /// The indices of its leaves there.
    #[serde(alias = "gpuIsolation")]
    pub leaf_cell_isolation: Vec<i32>,
    /// The chain of the group.
    pub cell_chain: String,
    /// The whole group, pods of one size together.
    pub affinity_group_bind_info: Vec<MemberBindInfo>,
}

/// Where the pods of one size were put.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberBindInfo {
    /// One after the other.
    pub pod_placements: Vec<PodPlacement>,
}

/// Where a pod of a group was put.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodPlacement {
    /// Its node.
    pub physical_node: String,
    /// The indices of its leaves there.
    #[serde(alias = "physicalGpuIndices")]
    pub physical_leaf_cell_indices: Vec<i32>,
    /// For each leaf the type of the cell of the virtual cluster; empty for borrowers.
    pub preassigned_cell_types: Vec<String>,
}

impl BindInfo {
    /// Of the pod at a place of its group.
    pub fn new(group: &GroupView<'_>, at: usize) -> Self {
        let lent = group.group.effective() < 0;
        let mut members: BTreeMap<u32, MemberBindInfo> = BTreeMap::new();
        for place in group.places {
            let kind = if lent { String::new() } else { place.kind.clone() };
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

    /// Reads what was written on a pod.
    ///
    /// # Errors
    /// When there is nothing, or it is not as it should be.
    pub fn read(pod: &Pod) -> Result<Self, Fault> {
        let text = pod.metadata.annotations.get(BIND_INFO);
        let text = text.filter(|text| !text.trim().is_empty());
        let text = text
            .ok_or_else(|| Fault::platform(format!("annotation {BIND_INFO} does not exist or is empty")))?;
        yaml::<Option<Self>>(text, BIND_INFO).map(Option::unwrap_or_default)
    }

    /// What is written on the pod.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn annotations(&self) -> Result<BTreeMap<String, String>, Fault> {
        let wrong = |e: &dyn std::fmt::Display| Fault::platform(format!("annotation {BIND_INFO}: {e}"));
        let mut text = serde_saphyr::to_string(self).map_err(|e| wrong(&e))?;
        if text.len() > LONG {
            text = serde_json::to_string(self).map_err(|e| wrong(&e))?;
        }
        let indices: Vec<String> = self.leaf_cell_isolation.iter().map(i32::to_string).collect();
        Ok(BTreeMap::from([
            (ISOLATION.to_owned(), indices.join(",")),
            (BIND_INFO.to_owned(), text),
        ]))
    }

    /// The places of the whole group, small pods first.
    pub(crate) fn places(&self) -> Vec<Place> {
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
