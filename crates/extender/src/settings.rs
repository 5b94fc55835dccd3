//! HiveD's configuration file: settings of the process, and the cells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail_cells::{Config, Layout};
use dovetail_hived::{ConfigError, parse_config};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Maximum delay of the answer that a pod must wait, in milliseconds.
const MAX_WAIT_DELAY_MS: u64 = 60_000;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{}: cannot be opened: {reason}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        reason: std::io::Error,
    },
    /// A key is unknown or has an invalid value.
    #[error("{file}: {what}")]
    Key {
        /// The file.
        file: String,
        /// The invalid value and what is expected, with the line.
        what: String,
    },
    /// The cells are invalid.
    #[error(transparent)]
    Cells(#[from] ConfigError),
}

/// The settings of the file.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the API server; empty if the kubeconfig has it.
    pub api_server: String,
    /// Path of the kubeconfig; empty for that of the environment or the service account of the pod.
    pub kubeconfig: String,
    /// Address to listen on, such as `:9096`.
    pub listen: String,
    /// Requests for a pod that has its place after which the extender binds it without kube-scheduler.
    pub force_bind_after: u32,
    /// Delay of an answer that a pod must wait.
    pub wait_delay: Duration,
    /// The cells as written.
    pub config: Config,
    /// The compiled cells.
    pub layout: Layout,
}

/// All known keys. The cells are parsed again by the crate `hived`, which ignores unknown keys; this pass only reports
/// misspelt keys with their line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileKeys {
    kube_api_server_address: Option<String>,
    kube_config_file_path: Option<String>,
    web_server_address: Option<String>,
    force_pod_bind_threshold: Option<i32>,
    waiting_pod_scheduling_block_milli_sec: Option<i64>,
    #[serde(rename = "physicalCluster")]
    _physical_cluster: Option<PhysicalKeys>,
    #[serde(rename = "virtualClusters")]
    _virtual_clusters: Option<BTreeMap<String, Option<VirtualClusterKeys>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhysicalKeys {
    /// OpenPAI uses it; HiveD does not.
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
struct VirtualClusterKeys {
    #[serde(rename = "virtualCells")]
    _cells: Option<Vec<VirtualCellKeys>>,
    #[serde(rename = "pinnedCells")]
    _pinned: Option<Vec<PinnedCellKeys>>,
    #[serde(rename = "leafCellsPerUser")]
    _per_user: Option<IgnoredAny>,
    #[serde(rename = "userLimits")]
    _limits: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VirtualCellKeys {
    #[serde(rename = "cellType")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "cellNumber")]
    _number: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinnedCellKeys {
    #[serde(rename = "pinnedCellId")]
    _pin: Option<IgnoredAny>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, or is invalid.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(file).map_err(|reason| SettingsError::Open {
            file: file.to_owned(),
            reason,
        })?;
        Self::parse(&text, &file.display().to_string())
    }

    /// Parses a text; `name` is its name in errors.
    ///
    /// # Errors
    /// When the text is invalid; names the key or line.
    pub fn parse(text: &str, name: &str) -> Result<Self, SettingsError> {
        let invalid = |what: String| SettingsError::Key {
            file: name.to_owned(),
            what,
        };
        let file: FileKeys = dovetail_yaml::from_text(text).map_err(|e| invalid(e.to_string()))?;
        let threshold = file.force_pod_bind_threshold.unwrap_or(3);
        let force_bind_after = u32::try_from(threshold).map_err(|_| {
            invalid(format!(
                "forcePodBindThreshold: found {threshold}, expected a whole number from 0"
            ))
        })?;
        let delay = file.waiting_pod_scheduling_block_milli_sec.unwrap_or(0);
        let wait_delay = u64::try_from(delay)
            .ok()
            .filter(|ms| *ms <= MAX_WAIT_DELAY_MS)
            .ok_or_else(|| {
                invalid(format!(
                    "waitingPodSchedulingBlockMilliSec: found {delay}, expected a whole number from 0 to {MAX_WAIT_DELAY_MS}"
                ))
            })?;
        let config = parse_config(text, name).map_err(ConfigError::from)?;
        let compiled = config.compile().map_err(|faults| ConfigError::Faults {
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
            wait_delay: Duration::from_millis(wait_delay),
            config,
            layout: compiled.layout,
        })
    }

    /// Returns the address to listen on; without a host, all addresses of the machine.
    pub fn listen_address(listen: &str) -> String {
        match listen.strip_prefix(':') {
            Some(port) => format!("0.0.0.0:{port}"),
            None => listen.to_owned(),
        }
    }
}
