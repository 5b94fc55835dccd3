//! Virtual clusters: what is guaranteed to each team, and who may use it.

use std::collections::BTreeMap;

use dovetail_cells::{Config, Fault};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the virtual cluster that always exists.
pub const DEFAULT_VIRTUAL_CLUSTER: &str = "default";

/// How GPUs are guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteeMode {
    /// Not at all: all virtual clusters may use all GPUs.
    #[default]
    Open,
    /// A number of GPUs.
    Quota,
    /// Cells: parts of the topology.
    Cells,
}

/// Access of users without a role in a virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAccess {
    /// No access.
    None,
    /// Read access.
    Viewer,
    /// Read access and running jobs.
    #[default]
    Member,
}

/// A virtual cluster: the share of the cluster that a team owns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VirtualCluster {
    /// Number of guaranteed GPUs, in mode `quota`.
    pub guaranteed_gpus: u32,
    /// Largest number of GPUs its opportunistic jobs may borrow; `null` for no limit.
    pub most_borrowed: Option<u32>,
    /// Largest number of GPUs of all running and queued jobs of one user; `null` for no limit.
    pub user_cap_gpus: Option<u32>,
    /// Highest priority of a job; `null` for no limit.
    pub max_priority: Option<i32>,
    /// Access of users without a role in it.
    pub everyone: DefaultAccess,
    /// Order of its jobs among themselves, such as `las` or `srsf`; `null` for the order of the policy.
    pub order: Option<String>,
}

/// All virtual clusters. If none is defined, every name is valid and nothing is guaranteed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VirtualClusters {
    /// How GPUs are guaranteed.
    #[serde(alias = "promise")]
    pub mode: GuaranteeMode,
    /// Virtual clusters by name.
    pub named: BTreeMap<String, VirtualCluster>,
    /// The cells, in mode `cells`: HiveD's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub cells: Option<Config>,
}

impl VirtualClusters {
    /// Returns whether every name is valid.
    pub fn any_name(&self) -> bool {
        self.mode == GuaranteeMode::Open && self.named.is_empty()
    }

    /// Returns the virtual cluster with this name.
    pub fn get(&self, name: &str) -> Option<VirtualCluster> {
        let known = self.named.get(name).cloned();
        let implied = || self.names().iter().any(|n| n == name) || self.any_name();
        known.or_else(|| implied().then(VirtualCluster::default))
    }

    /// Returns all names, including the default one and owners of cells.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.named.keys().cloned().collect();
        match (self.mode, &self.cells) {
            (GuaranteeMode::Cells, Some(cells)) => names.extend(cells.virtual_clusters.keys().cloned()),
            _ => names.push(DEFAULT_VIRTUAL_CLUSTER.to_owned()),
        }
        names.sort();
        names.dedup();
        names
    }

    /// Checks the virtual clusters without knowledge of the nodes and jobs.
    ///
    /// # Errors
    /// Names the field and what is expected.
    pub fn validate(&self) -> Result<(), VirtualClustersError> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        for name in self.names() {
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_valid) {
                return Err(VirtualClustersError::InvalidName(name));
            }
        }
        if self.mode == GuaranteeMode::Open
            && let Some((name, _)) = self.named.iter().find(|(_, c)| c.order.is_some())
        {
            return Err(VirtualClustersError::OrderWithoutGuarantee(name.clone()));
        }
        if self.mode != GuaranteeMode::Cells {
            return Ok(());
        }
        let cells = self.cells.as_ref().ok_or(VirtualClustersError::MissingCells)?;
        cells.compile().map_err(VirtualClustersError::Cells)?;
        let mut names = self.named.keys();
        match names.find(|name| !cells.virtual_clusters.contains_key(*name)) {
            Some(name) => Err(VirtualClustersError::NoCells(name.clone())),
            None => Ok(()),
        }
    }
}

/// Why virtual clusters are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VirtualClustersError {
    /// A name has other characters, or is too long.
    #[error("invalid name of a virtual cluster {0:?}: expected up to 64 letters, digits, `-`, `_` and `.`")]
    InvalidName(String),
    /// A virtual cluster has an order of its own, and nothing is guaranteed.
    #[error(
        "{0}: `order` must only be set in mode `quota` or `cells`: otherwise it would affect other virtual clusters"
    )]
    OrderWithoutGuarantee(String),
    /// GPUs are guaranteed as cells, and there are none.
    #[error("cells: missing; expected HiveD's configuration")]
    MissingCells,
    /// The cells are wrong.
    #[error("{}", list(.0))]
    Cells(Vec<Fault>),
    /// A virtual cluster owns no cells.
    #[error("{0}: owns no cells; add it to `virtualClusters` of the cells, or remove it")]
    NoCells(String),
}

fn list(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(|fault| format!("cells: {fault}")).collect();
    lines.join("\n")
}
