//! The request of a pod, in HiveD's annotation `pod-scheduling-spec`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::annotation::{AnnotationError, SPEC, read};

/// Maximum number of leaf cells of a group; no configuration has more.
const MAX_LEAVES: u64 = 1 << 22;

/// The request of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The virtual cluster.
    pub virtual_cluster: String,
    /// Priority from −1 (opportunistic) to 1000.
    pub priority: i32,
    /// The user, for limits per user. HiveD has no such field.
    pub user: String,
    /// The pinned cell to run in, or empty.
    pub pinned_cell_id: String,
    /// The leaf cell type to run on, or empty for any.
    pub leaf_cell_type: String,
    /// Leaf cells of this pod.
    pub leaf_cell_number: u32,
    /// Whether the group may be downgraded to opportunistic instead of being preempted.
    pub lazy_preemption_enable: bool,
    /// Whether the group may run on nodes that Kubernetes does not suggest.
    pub ignore_k8s_suggested_nodes: bool,
    /// The group of the pod; a pod without one is a group of its own.
    pub affinity_group: Option<PodGroup>,
}

impl Default for PodSpec {
    fn default() -> Self {
        Self {
            virtual_cluster: String::new(),
            priority: 0,
            user: String::new(),
            pinned_cell_id: String::new(),
            leaf_cell_type: String::new(),
            leaf_cell_number: 0,
            lazy_preemption_enable: false,
            ignore_k8s_suggested_nodes: true,
            affinity_group: None,
        }
    }
}

/// Pods that start together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Name of the group.
    pub name: String,
    /// Its pods, by size.
    pub members: Vec<Member>,
}

/// The pods of one size in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Number of pods.
    pub pod_number: u32,
    /// Leaf cells of each pod.
    pub leaf_cell_number: u32,
}

/// An invalid field in the request of a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No virtual cluster is named.
    #[error("virtualCluster is empty")]
    NoVirtualCluster,
    /// The priority is out of range.
    #[error("priority is {found}, expected a number from -1 to 1000")]
    Priority {
        /// The priority.
        found: i64,
    },
    /// A number is out of range.
    #[error("{field} is {found}, expected a whole number from 1 to {MAX_LEAVES}")]
    Number {
        /// Path of the field.
        field: String,
        /// The number; 0 if it is missing.
        found: i64,
    },
    /// The group has no name.
    #[error("affinityGroup.name is empty")]
    NoGroupName,
    /// The group has no pod of the size of this pod.
    #[error("affinityGroup.members has no pod with {size} leaf cells, but this pod asks for {size}")]
    NotAMember {
        /// Leaf cells of the pod.
        size: u32,
    },
    /// The group has too many leaf cells.
    #[error("affinityGroup.members ask for {found} leaf cells, expected at most {MAX_LEAVES}")]
    TooManyLeaves {
        /// Leaf cells of the members up to the one that exceeds the limit.
        found: u64,
    },
}

/// The annotation as written: every key may be missing or null.
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

impl PodSpec {
    /// Reads the request from the annotations of a pod.
    ///
    /// # Errors
    /// When the annotation is missing or invalid. The error names the field, the value and what is expected.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, AnnotationError> {
        let raw: RawSpec = read(annotations, SPEC)?;
        Ok(raw.check()?)
    }

    /// Returns the group of the pod, or one with this pod alone, called `own_name`.
    pub fn group_or_own(&self, own_name: &str) -> PodGroup {
        self.affinity_group.clone().unwrap_or_else(|| PodGroup {
            name: own_name.to_owned(),
            members: vec![Member {
                pod_number: 1,
                leaf_cell_number: self.leaf_cell_number,
            }],
        })
    }
}

impl RawSpec {
    fn check(self) -> Result<PodSpec, SpecError> {
        let virtual_cluster = self.virtual_cluster.unwrap_or_default();
        if virtual_cluster.is_empty() {
            return Err(SpecError::NoVirtualCluster);
        }
        let priority = self.priority.unwrap_or(0);
        if !(-1..=1000).contains(&priority) {
            return Err(SpecError::Priority { found: priority });
        }
        let size = positive(self.leaf_cell_number, "leafCellNumber")?;
        let affinity_group = self.affinity_group.map(RawGroup::check).transpose()?;
        if let Some(group) = &affinity_group
            && !group.members.iter().any(|m| m.leaf_cell_number == size)
        {
            return Err(SpecError::NotAMember { size });
        }
        Ok(PodSpec {
            virtual_cluster,
            priority: priority as i32,
            user: self.user.unwrap_or_default(),
            pinned_cell_id: self.pinned_cell_id.unwrap_or_default(),
            leaf_cell_type: self.leaf_cell_type.unwrap_or_default(),
            leaf_cell_number: size,
            lazy_preemption_enable: self.lazy_preemption_enable.unwrap_or(false),
            ignore_k8s_suggested_nodes: self.ignore_k8s_suggested_nodes.unwrap_or(true),
            affinity_group,
        })
    }
}

impl RawGroup {
    /// Checks a group and merges members of equal size.
    fn check(self) -> Result<PodGroup, SpecError> {
        let name = self.name.unwrap_or_default();
        if name.is_empty() {
            return Err(SpecError::NoGroupName);
        }
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        let mut leaves = 0u64;
        for (at, member) in self.members.unwrap_or_default().into_iter().enumerate() {
            let path = |key: &str| format!("affinityGroup.members[{at}].{key}");
            let pods = positive(member.pod_number, &path("podNumber"))?;
            let size = positive(member.leaf_cell_number, &path("leafCellNumber"))?;
            leaves += u64::from(pods) * u64::from(size);
            if leaves > MAX_LEAVES {
                return Err(SpecError::TooManyLeaves { found: leaves });
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
}

fn positive(number: Option<i64>, field: &str) -> Result<u32, SpecError> {
    let found = number.unwrap_or(0);
    u32::try_from(found)
        .ok()
        .filter(|n| *n > 0 && u64::from(*n) <= MAX_LEAVES)
        .ok_or_else(|| SpecError::Number {
            field: field.to_owned(),
            found,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PodSpec, AnnotationError> {
        PodSpec::from_annotations(&BTreeMap::from([(SPEC.to_owned(), text.to_owned())]))
    }

    #[test]
    fn missing_and_null_keys_have_hiveds_defaults() {
        let spec = parse("virtualCluster: vc1\npriority: null\ngpuNumber: 2\naffinityGroup: null").unwrap();
        let expected = PodSpec {
            virtual_cluster: "vc1".to_owned(),
            leaf_cell_number: 2,
            ..PodSpec::default()
        };
        assert_eq!(spec, expected);
        assert_eq!(spec.group_or_own("n/a").name, "n/a");
    }

    #[test]
    fn members_of_equal_size_are_merged() {
        let member = "{podNumber: 2, leafCellNumber: 1}";
        let text = format!(
            "virtualCluster: v\nleafCellNumber: 1\naffinityGroup: {{name: g, members: [{member}, {member}]}}"
        );
        let group = parse(&text).unwrap().affinity_group.unwrap();
        let expected = Member {
            pod_number: 4,
            leaf_cell_number: 1,
        };
        assert_eq!(group.members, [expected]);
    }

    #[test]
    fn errors_name_the_field() {
        for (text, expected) in [
            ("  ", "does not exist or is empty"),
            ("- a", "line 1"),
            ("{}", "virtualCluster is empty"),
            ("virtualCluster: v", "leafCellNumber is 0"),
            (
                "virtualCluster: v\nleafCellNumber: 1\npriority: 1001",
                "priority is 1001, expected a number from -1 to 1000",
            ),
            (
                "virtualCluster: v\nleafCellNumber: 1\naffinityGroup: {members: []}",
                "affinityGroup.name is empty",
            ),
            (
                "virtualCluster: v\nleafCellNumber: 1\naffinityGroup: {name: g, members: [{podNumber: 0, leafCellNumber: 1}]}",
                "affinityGroup.members[0].podNumber is 0",
            ),
            (
                "virtualCluster: v\nleafCellNumber: 1\naffinityGroup: {name: g, members: [{podNumber: 1, leafCellNumber: 2}]}",
                "affinityGroup.members has no pod with 1 leaf cells",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("annotation {SPEC}")), "{error}");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
