//! Virtual clusters: what each tenant is promised, and who may use it.

use std::collections::BTreeMap;

use dovetail_cells::Config;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The virtual cluster that is always there.
pub const DEFAULT_VIRTUAL_CLUSTER: &str = "default";

/// How GPUs are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteeMode {
    /// Not at all: every tenant may use every GPU.
    #[default]
    Open,
    /// So many GPUs, whichever they are.
    Quota,
    /// Cells: parts of the cluster with a shape.
    Cells,
}

/// What people who were given no role in a virtual cluster may do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAccess {
    /// Nothing.
    None,
    /// Look.
    Viewer,
    /// Look, and run jobs.
    #[default]
    Member,
}

/// One virtual cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VirtualCluster {
    /// GPUs that are its own, where GPUs are promised by number.
    pub guaranteed_gpus: u32,
    /// The most its jobs of negative priority may borrow; none is no limit.
    pub most_borrowed: Option<u32>,
    /// GPUs that the jobs of one user may have or stand in line for; none is no limit.
    pub user_cap_gpus: Option<u32>,
    /// The highest priority a job may have; none is no limit.
    pub max_priority: Option<i32>,
    /// What everyone may do.
    pub everyone: DefaultAccess,
    /// In which order its own jobs stand on the places it has in line, such as `las` or `srsf`; none is that of the policy.
    pub order: Option<String>,
}

/// All virtual clusters. Without any, every name will do and nothing is promised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VirtualClusters {
    /// How GPUs are promised.
    #[serde(alias = "promise")]
    pub mode: GuaranteeMode,
    /// By name.
    pub named: BTreeMap<String, VirtualCluster>,
    /// The cells, where GPUs are promised as cells: HiveD's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub cells: Option<Config>,
}

impl VirtualClusters {
    /// Whether any name will do.
    pub fn any_name(&self) -> bool {
        self.mode == GuaranteeMode::Open && self.named.is_empty()
    }

    /// The virtual cluster of this name; none if there is no such thing.
    pub fn get(&self, name: &str) -> Option<VirtualCluster> {
        let known = self.named.get(name).cloned();
        let implied = || self.names().iter().any(|n| n == name) || self.any_name();
        known.or_else(|| implied().then(VirtualCluster::default))
    }

    /// All names, the default one and those that own cells too.
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

    /// Checks what can be checked without knowing the cluster.
    ///
    /// # Errors
    /// Names the field and what would be accepted.
    pub fn validate(&self) -> Result<(), String> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        for name in self.names() {
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
                return Err(format!(
                    "{name:?} is no name of a virtual cluster; expected up to 64 letters, digits, `-`, `_` and `.`"
                ));
            }
        }
        if self.mode == GuaranteeMode::Open
            && let Some((name, _)) = self.named.iter().find(|(_, c)| c.order.is_some())
        {
            return Err(format!(
                "{name}: order: only where GPUs are promised (quota or cells), so that what one virtual cluster chooses \
                 is no matter of the others"
            ));
        }
        let Some(cells) = self.cells.as_ref().filter(|_| self.mode == GuaranteeMode::Cells) else {
            return match self.mode {
                GuaranteeMode::Cells => Err("cells: are missing; expected HiveD's configuration".to_owned()),
                GuaranteeMode::Open | GuaranteeMode::Quota => Ok(()),
            };
        };
        cells.compile().map_err(|faults| {
            let all: Vec<String> = faults.iter().map(|fault| format!("cells: {fault}")).collect();
            all.join("\n")
        })?;
        if let Some(stranger) = self
            .named
            .keys()
            .find(|n| !cells.virtual_clusters.contains_key(*n))
        {
            return Err(format!(
                "{stranger}: owns no cells; add it to virtualClusters of the cells, or remove it"
            ));
        }
        Ok(())
    }
}
