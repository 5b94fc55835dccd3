//! Our own kinds of objects: virtual clusters, the topology they own parts of, and the policy.

use std::collections::BTreeMap;

use dovetail_cluster::{
    DefaultAccess, GuaranteeMode, PolicyText, VirtualCluster as Promised, VirtualClusters,
};
use dovetail_kubeapi::{Condition, Meta, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Where our kinds are.
pub const API: &str = "/apis/dovetail.io/v1alpha1";

/// What a team is promised.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VirtualCluster {
    /// Its name is that of the virtual cluster.
    pub metadata: Meta,
    /// The promise.
    pub spec: VirtualClusterSpec,
    /// How it stands.
    pub status: Value,
}

/// The promise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VirtualClusterSpec {
    /// GPUs it gets whenever it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u32>,
    /// The most it may borrow beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_borrowed: Option<u32>,
    /// The most one user may have at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_cap_gpus: Option<u32>,
    /// The highest priority its jobs may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<i32>,
    /// The order among its own jobs, such as `srsf`; the policy's where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Cells it owns, as HiveD writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_cells: Vec<Value>,
    /// Cells it owns by name, as HiveD writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned_cells: Vec<Value>,
}

/// The cells of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterTopology {
    /// Its name.
    pub metadata: Meta,
    /// HiveD's `physicalCluster`.
    pub spec: Value,
    /// How it stands.
    pub status: Value,
}

/// The policy.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    /// Its name.
    pub metadata: Meta,
    /// What it says.
    pub spec: SchedulingPolicySpec,
    /// How it stands.
    pub status: Value,
}

/// What a policy says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulingPolicySpec {
    /// A preset with knobs, such as `tiresias:limits=3600`.
    pub policy: String,
    /// Parts in place of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
    /// Decide every so often instead of whenever something happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<String>,
    /// Decide nothing for now.
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
    /// As the scheduler takes it.
    pub fn text(&self) -> PolicyText {
        let usual = PolicyText::default();
        PolicyText {
            policy: match self.policy.is_empty() {
                true => usual.policy,
                false => self.policy.clone(),
            },
            parts: self.parts.clone(),
        }
    }
}

/// The virtual clusters that these objects describe: cells where there is a topology and somebody owns some of it, GPUs by
/// number where somebody is guaranteed any, and otherwise everything for everyone.
///
/// # Errors
/// What is wrong, with the name of the object.
pub fn virtual_clusters(
    clusters: &[VirtualCluster],
    topologies: &[ClusterTopology],
) -> Result<VirtualClusters, String> {
    if let [_, second, ..] = topologies {
        return Err(format!(
            "ClusterTopology {}: there is another one; only one can be used",
            second.metadata.name
        ));
    }
    let owns_cells =
        |c: &&VirtualCluster| !c.spec.virtual_cells.is_empty() || !c.spec.pinned_cells.is_empty();
    let counts = |c: &&VirtualCluster| c.spec.guaranteed_gpus.is_some() || c.spec.most_borrowed.is_some();
    let (owner, counter) = (clusters.iter().find(owns_cells), clusters.iter().find(counts));
    let mode = match (topologies.first(), owner, counter) {
        (_, Some(owner), Some(counter)) => {
            return Err(format!(
                "VirtualCluster {}: guaranteedGpus cannot be promised beside the cells of {}; give it cells too",
                counter.metadata.name, owner.metadata.name
            ));
        }
        (None, Some(owner), None) => {
            return Err(format!(
                "VirtualCluster {}: owns cells, but there is no ClusterTopology they could be part of",
                owner.metadata.name
            ));
        }
        (Some(_), Some(_), None) => GuaranteeMode::Cells,
        (_, None, Some(_)) => GuaranteeMode::Quota,
        (_, None, None) => GuaranteeMode::Open,
    };
    let one = |c: &VirtualCluster| {
        let promised = Promised {
            guaranteed_gpus: c.spec.guaranteed_gpus.unwrap_or(0),
            most_borrowed: c.spec.most_borrowed,
            user_cap_gpus: c.spec.user_cap_gpus,
            max_priority: c.spec.max_priority,
            everyone: DefaultAccess::Member,
            order: c.spec.order.clone(),
        };
        (c.metadata.name.clone(), promised)
    };
    let cells = match (mode, topologies.first()) {
        (GuaranteeMode::Cells, Some(topology)) => Some(cells(clusters, topology)?),
        _ => None,
    };
    let all = VirtualClusters {
        mode,
        named: clusters.iter().map(one).collect(),
        cells,
    };
    all.validate().map_err(|e| e.to_string())?;
    Ok(all)
}

/// HiveD's configuration, put together from the objects.
fn cells(clusters: &[VirtualCluster], topology: &ClusterTopology) -> Result<dovetail_cells::Config, String> {
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
    let text = serde_json::to_string_pretty(&text).map_err(|e| e.to_string())?;
    let name = format!("ClusterTopology {}", topology.metadata.name);
    dovetail_hived::parse_config(&text, &name).map_err(|e| e.to_string())
}

/// Whether something was accepted, as a status.
pub(crate) fn accepted(verdict: &Result<(), String>, generation: Option<i64>, at: String) -> Value {
    let (status, reason, message) = match verdict {
        Ok(()) => ("True", "Accepted", "it is in force".to_owned()),
        Err(why) => ("False", "Invalid", why.clone()),
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
    fn what_is_promised_follows_from_the_objects() {
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
    fn what_is_wrong_is_said_with_the_name_of_the_object() {
        let owner = vc(
            "a",
            json!({"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 3}]}),
        );
        let said = virtual_clusters(std::slice::from_ref(&owner), &[topology()]).unwrap_err();
        assert!(said.contains("POOL"), "{said}");
        assert!(
            virtual_clusters(std::slice::from_ref(&owner), &[])
                .unwrap_err()
                .contains("no ClusterTopology")
        );
        let both = [owner, vc("b", json!({"guaranteedGpus": 1}))];
        assert!(
            virtual_clusters(&both, &[topology()])
                .unwrap_err()
                .contains("VirtualCluster b")
        );
    }
}
