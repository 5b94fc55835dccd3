//! HiveD's configuration file: how the process runs, and the cells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail_cells::{Config, Layout};
use dovetail_workload::{HivedError, parse_hived};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{}: {reason}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// A key that is not known, or a value that is no such value.
    #[error("{file}: {what}")]
    Key {
        /// The file.
        file: String,
        /// What was found, with the line.
        what: String,
    },
    /// The cells.
    #[error(transparent)]
    Cells(#[from] HivedError),
}

/// Everything the file says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address of the API server; empty if the kubeconfig says it.
    pub api_server: String,
    /// The kubeconfig; empty for that of the environment, or of the pod.
    pub kubeconfig: String,
    /// Where to listen, such as `:9096`.
    pub listen: String,
    /// A pod that has its place and is asked for so often is bound without kube-scheduler.
    pub force_bind_after: u32,
    /// How long kube-scheduler is kept waiting after it was told that a pod has to wait.
    pub block: Duration,
    /// The cells as they are written.
    pub config: Config,
    /// The cells.
    pub layout: Layout,
}

/// The keys that are known. What is in them is read again by the reader of cells; here it is only seen that nothing is
/// misspelt, and on which line it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    kube_api_server_address: Option<String>,
    kube_config_file_path: Option<String>,
    web_server_address: Option<String>,
    force_pod_bind_threshold: Option<i32>,
    waiting_pod_scheduling_block_milli_sec: Option<i64>,
    #[serde(rename = "physicalCluster")]
    _physical_cluster: Option<Physical>,
    #[serde(rename = "virtualClusters")]
    _virtual_clusters: Option<BTreeMap<String, Option<Virtual>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Physical {
    /// HiveD does not look at it; OpenPAI does.
    #[serde(rename = "skuTypes")]
    _sku_types: Option<IgnoredAny>,
    #[serde(rename = "cellTypes")]
    _cell_types: Option<BTreeMap<String, CellTypeKeys>>,
    #[serde(rename = "physicalCells")]
    _physical_cells: Option<Vec<CellKeys>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellTypeKeys {
    #[serde(rename = "childCellType")]
    _child: Option<IgnoredAny>,
    #[serde(rename = "childCellNumber")]
    _number: Option<IgnoredAny>,
    #[serde(rename = "isNodeLevel")]
    _is_node: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellKeys {
    #[serde(rename = "cellType")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "cellAddress")]
    _address: Option<IgnoredAny>,
    #[serde(rename = "pinnedCellId")]
    _pin: Option<IgnoredAny>,
    #[serde(rename = "cellChildren")]
    _children: Option<Vec<CellKeys>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Virtual {
    #[serde(rename = "virtualCells")]
    _cells: Option<Vec<VirtualKeys>>,
    #[serde(rename = "pinnedCells")]
    _pinned: Option<Vec<PinKeys>>,
    #[serde(rename = "leafCellsPerUser")]
    _per_user: Option<IgnoredAny>,
    #[serde(rename = "userLimits")]
    _limits: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VirtualKeys {
    #[serde(rename = "cellType")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "cellNumber")]
    _number: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinKeys {
    #[serde(rename = "pinnedCellId")]
    _pin: Option<IgnoredAny>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(file).map_err(|reason| SettingsError::Open {
            file: file.to_owned(),
            reason,
        })?;
        Self::parse(&text, &file.display().to_string())
    }

    /// Reads a text; `name` is what errors call it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str, name: &str) -> Result<Self, SettingsError> {
        let wrong = |what: String| SettingsError::Key {
            file: name.to_owned(),
            what,
        };
        let options = serde_saphyr::options! { strict_booleans: true };
        let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let what = e.to_string();
            wrong(what.lines().next().unwrap_or_default().to_owned())
        })?;
        let threshold = file.force_pod_bind_threshold.unwrap_or(3);
        let force_bind_after = u32::try_from(threshold).map_err(|_| {
            wrong(format!(
                "forcePodBindThreshold: found {threshold}, expected a number from 0"
            ))
        })?;
        let block = file.waiting_pod_scheduling_block_milli_sec.unwrap_or(0);
        let block = u64::try_from(block)
            .ok()
            .filter(|ms| *ms <= 60_000)
            .ok_or_else(|| {
                wrong(format!(
                    "waitingPodSchedulingBlockMilliSec: found {block}, expected a number from 0 to 60000"
                ))
            })?;
        let config = parse_hived(text, name).map_err(HivedError::from)?;
        let compiled = config.compile().map_err(|faults| HivedError::Faults {
            file: name.to_owned(),
            faults,
        })?;
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Ok(Self {
            api_server: file
                .kube_api_server_address
                .unwrap_or_else(|| variable("KUBE_APISERVER_ADDRESS")),
            kubeconfig: file.kube_config_file_path.unwrap_or_default(),
            listen: file.web_server_address.unwrap_or_else(|| ":9096".to_owned()),
            force_bind_after,
            block: Duration::from_millis(block),
            config,
            layout: compiled.layout,
        })
    }

    /// Where to listen; without a host on all of this machine's addresses.
    pub fn listen_address(listen: &str) -> String {
        match listen.strip_prefix(':') {
            Some(port) => format!("0.0.0.0:{port}"),
            None => listen.to_owned(),
        }
    }
}
