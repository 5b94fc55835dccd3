//! Our own kinds of objects: virtual clusters, the topology whose cells they own, and the policy.

use std::collections::BTreeMap;

use dovetail_cluster::{
    DefaultAccess, GuaranteeMode, PolicyText, VirtualCluster as ClusterDefinition, VirtualClusters,
};
use dovetail_kubeapi::{Condition, Meta, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// API version of our objects.
pub(crate) const API_VERSION: &str = "dovetail.io/v1alpha1";
/// Path of our API group.
pub const API: &str = "/apis/dovetail.io/v1alpha1";

/// `apiVersion` of our objects.
pub(crate) const GROUP_VERSION: &str = "dovetail.io/v1alpha1";

/// A virtual cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VirtualCluster {
    /// Metadata; the name is that of the virtual cluster.
    pub metadata: Meta,
    /// Guarantees and limits.
    pub spec: VirtualClusterSpec,
    /// Status that the scheduler writes.
    pub status: Value,
}

/// Guarantees and limits of a virtual cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VirtualClusterSpec {
    /// Number of guaranteed GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u32>,
    /// Maximum number of borrowed GPUs beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_borrowed: Option<u32>,
    /// Maximum number of GPUs of one user at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_cap_gpus: Option<u32>,
    /// Highest priority of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<i32>,
    /// Order of its own jobs, such as `srsf`; defaults to that of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Cells it owns, in HiveD's format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_cells: Vec<Value>,
    /// Pinned cells it owns, in HiveD's format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned_cells: Vec<Value>,
}

/// The cells of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterTopology {
    /// Metadata of the object.
    pub metadata: Meta,
    /// HiveD's `physicalCluster`.
    pub spec: Value,
    /// Status that the scheduler writes.
    pub status: Value,
}

/// The scheduling policy.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    /// Metadata of the object.
    pub metadata: Meta,
    /// The policy and how it is applied.
    pub spec: SchedulingPolicySpec,
    /// Status that the scheduler writes.
    pub status: Value,
}

/// A policy and how it is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulingPolicySpec {
    /// A preset with options, such as `tiresias:limits=3600`.
    pub policy: String,
    /// Parts that replace those of the preset.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
    /// Length of scheduling rounds; without it, every event is scheduled at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<String>,
    /// Whether scheduling is paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

macro_rules! objects {
    ($($kind:ty),*) => { $(impl Object for $kind {
        fn meta(&self) -> &Meta { &self.metadata }
    })* };
}
objects!(VirtualCluster, ClusterTopology, SchedulingPolicy);

impl SchedulingPolicySpec {
    /// Returns the policy as the cluster state takes it.
    pub fn text(&self) -> PolicyText {
        let default = PolicyText::default();
        PolicyText {
            policy: match self.policy.is_empty() {
                true => default.policy,
                false => self.policy.clone(),
            },
            parts: self.parts.clone(),
        }
    }
}

/// Why the objects do not define virtual clusters. The message names the object and is written to the status of all of them.
#[derive(Debug, thiserror::Error)]
pub enum VirtualClusterError {
    /// There are several topologies.
    #[error("ClusterTopology {0}: another ClusterTopology exists; only one can be used")]
    SecondTopology(String),
    /// Guaranteed GPUs and cells are mixed.
    #[error(
        "VirtualCluster {counted}: guaranteedGpus cannot be combined with the cells of {owner}; give it cells too"
    )]
    Mixed {
        /// Virtual cluster with guaranteed GPUs.
        counted: String,
        /// Virtual cluster with cells.
        owner: String,
    },
    /// Cells are owned without a topology.
    #[error("VirtualCluster {0}: it owns cells, but there is no ClusterTopology")]
    NoTopology(String),
    /// The cells are not valid.
    #[error(transparent)]
    Cells(#[from] dovetail_hived::ConfigError),
    /// The topology cannot be written as text.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The definitions are not valid.
    #[error("{0}")]
    Invalid(String),
}

/// Returns the virtual clusters that the objects define: by cells if a virtual cluster owns some, by numbers of GPUs if one has
/// guaranteed GPUs, and otherwise without guarantees.
///
/// # Errors
/// If the objects contradict each other.
pub fn virtual_clusters(
    clusters: &[VirtualCluster],
    topologies: &[ClusterTopology],
) -> Result<VirtualClusters, VirtualClusterError> {
    if let [_, second, ..] = topologies {
        return Err(VirtualClusterError::SecondTopology(second.metadata.name.clone()));
    }
    let owns_cells =
        |c: &&VirtualCluster| !c.spec.virtual_cells.is_empty() || !c.spec.pinned_cells.is_empty();
    let is_counted = |c: &&VirtualCluster| c.spec.guaranteed_gpus.is_some() || c.spec.most_borrowed.is_some();
    let (owner, counted) = (clusters.iter().find(owns_cells), clusters.iter().find(is_counted));
    let mode = match (topologies.first(), owner, counted) {
        (_, Some(owner), Some(counted)) => {
            return Err(VirtualClusterError::Mixed {
                counted: counted.metadata.name.clone(),
                owner: owner.metadata.name.clone(),
            });
        }
        (None, Some(owner), None) => {
            return Err(VirtualClusterError::NoTopology(owner.metadata.name.clone()));
        }
        (Some(_), Some(_), None) => GuaranteeMode::Cells,
        (_, None, Some(_)) => GuaranteeMode::Quota,
        (_, None, None) => GuaranteeMode::Open,
    };
    let definition = |c: &VirtualCluster| {
        let definition = ClusterDefinition {
            guaranteed_gpus: c.spec.guaranteed_gpus.unwrap_or(0),
            most_borrowed: c.spec.most_borrowed,
            user_cap_gpus: c.spec.user_cap_gpus,
            max_priority: c.spec.max_priority,
            everyone: DefaultAccess::Member,
            order: c.spec.order.clone(),
        };
        (c.metadata.name.clone(), definition)
    };
    let cells = match (mode, topologies.first()) {
        (GuaranteeMode::Cells, Some(topology)) => Some(cells(clusters, topology)?),
        _ => None,
    };
    let all = VirtualClusters {
        mode,
        named: clusters.iter().map(definition).collect(),
        cells,
    };
    all.validate()
        .map_err(|error| VirtualClusterError::Invalid(error.to_string()))?;
    Ok(all)
}

/// Returns HiveD's configuration of the objects.
fn cells(
    clusters: &[VirtualCluster],
    topology: &ClusterTopology,
) -> Result<dovetail_cells::Config, VirtualClusterError> {
    let owner = |c: &VirtualCluster| {
        let mut owns = Map::new();
        if !c.spec.virtual_cells.is_empty() {
            owns.insert(
                "virtualCells".to_owned(),
                Value::Array(c.spec.virtual_cells.clone()),
            );
        }
        if !c.spec.pinned_cells.is_empty() {
            owns.insert(
                "pinnedCells".to_owned(),
                Value::Array(c.spec.pinned_cells.clone()),
            );
        }
        (c.metadata.name.clone(), Value::Object(owns))
    };
    let owners: Map<String, Value> = clusters.iter().map(owner).collect();
    let text = json!({"physicalCluster": topology.spec, "virtualClusters": owners});
    let text = serde_json::to_string_pretty(&text)?;
    let name = format!("ClusterTopology {}", topology.metadata.name);
    Ok(dovetail_hived::parse_config(&text, &name).map_err(dovetail_hived::ConfigError::from)?)
}

/// Returns the status of an object that was accepted, or the error for which it was not.
pub(crate) fn accepted_status(error: Option<&str>, generation: Option<i64>, at: String) -> Value {
    let (status, reason, message) = match error {
        None => ("True", "Accepted", "in use".to_owned()),
        Some(error) => ("False", "Invalid", error.to_owned()),
    };
    let condition = Condition {
        kind: "Accepted".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.clone(),
        last_transition_time: Some(at),
    };
    json!({"conditions": [condition], "accepted": status == "True", "message": message, "observedGeneration": generation})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vc(name: &str, spec: Value) -> VirtualCluster {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn topology() -> ClusterTopology {
        let spec = json!({
            "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": true},
                "POOL": {"childCellType": "NODE", "childCellNumber": 2}},
            "physicalCells": [{"cellType": "POOL", "cellChildren": [{"cellAddress": "a"}, {"cellAddress": "b"}]}]});
        serde_json::from_value(json!({"metadata": {"name": "main"}, "spec": spec})).unwrap()
    }

    #[test]
    fn the_guarantee_mode_follows_from_the_objects() {
        let open = virtual_clusters(&[vc("a", json!({}))], &[]).unwrap();
        assert_eq!(open.mode, GuaranteeMode::Open);
        let quota = virtual_clusters(&[vc("a", json!({"guaranteedGpus": 8}))], &[]).unwrap();
        assert_eq!(
            (quota.mode, quota.named["a"].guaranteed_gpus),
            (GuaranteeMode::Quota, 8)
        );
        let owner = vc(
            "a",
            json!({"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 1}]}),
        );
        let cells = virtual_clusters(&[owner], &[topology()]).unwrap();
        assert_eq!(cells.mode, GuaranteeMode::Cells);
    }

    #[test]
    fn errors_name_the_object() {
        let owner = vc(
            "a",
            json!({"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 3}]}),
        );
        let error = virtual_clusters(std::slice::from_ref(&owner), &[topology()]).unwrap_err();
        assert!(error.to_string().contains("POOL"), "{error}");
        assert!(
            virtual_clusters(std::slice::from_ref(&owner), &[])
                .unwrap_err()
                .to_string()
                .contains("no ClusterTopology")
        );
        let both = [owner, vc("b", json!({"guaranteedGpus": 1}))];
        assert!(
            virtual_clusters(&both, &[topology()])
                .unwrap_err()
                .to_string()
                .contains("VirtualCluster b")
        );
    }
}
