//! Clusters: `32x4`, `pool:534`, or a file.
//!
//! | spec | what it is |
//! |---|---|
//! | `32x4` | 32 nodes with 4 GPUs each, in one rack |
//! | `pool:534` | one node with 534 GPUs, so that placement sets no limit |
//! | `*.yaml` | the native description, see [`yaml`] |
//! | `*.yaml` | HiveD's configuration: its physical cells, see [`dovetail_hived::config`] |
//! | `*.ini` | Synergy's configuration, see [`ini`] |
//! | `*.csv` | Muri's cluster_spec, an openb node list, Alibaba's spot `node_info_df`, or Lingjun's `topo` |

mod hived;
pub mod ini;
mod numa;
mod tables;
pub mod yaml;

use std::collections::BTreeSet;
use std::path::Path;

use dovetail_hived::ConfigError;
use dovetail_model::ids::IdVec;
use dovetail_model::{ClusterSpec, NodeId, NodeSpec};
use dovetail_yaml::YamlError;

use crate::error::TraceError;

/// The largest node a description may have.
const MAX_NODE_GPUS: u32 = 1024;
/// The largest pool: a node without placement limits.
const MAX_POOL_GPUS: u32 = 100_000;
/// The largest cluster.
const MAX_NODES: u32 = 1_000_000;

const ACCEPTED: &str = "NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy \
                        .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun \
                        topo.csv";

/// An invalid cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Neither a shape nor a file.
    #[error("found cluster {found:?}, expected {ACCEPTED}{hint}")]
    Spec {
        /// The given text.
        found: String,
        /// A hint, where there is one.
        hint: String,
    },
    /// The file is not readable, or a line of it is invalid.
    #[error(transparent)]
    File(#[from] TraceError),
    /// The YAML is invalid.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A line of the file is invalid.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The error.
        what: String,
    },
    /// A HiveD configuration is invalid.
    #[error(transparent)]
    Hived(#[from] ConfigError),
    /// The content is not a valid cluster.
    #[error("{file}: {what}")]
    Content {
        /// The file.
        file: String,
        /// The error.
        what: String,
    },
    /// The file type is known but not supported.
    #[error("{file}: {what}; expected {ACCEPTED}")]
    Unsupported {
        /// The file.
        file: String,
        /// What was found, as text for the message.
        what: String,
    },
}

/// A cluster, and notes about its file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterDescription {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// Requests of the file that a cluster cannot express, as messages for the user.
    pub notes: Vec<String>,
}

impl From<ClusterSpec> for ClusterDescription {
    fn from(cluster: ClusterSpec) -> Self {
        Self {
            cluster,
            notes: Vec::new(),
        }
    }
}

/// Parses a spec or file: at least one node, every node with a GPU and a unique name.
pub fn parse_cluster(spec: &str) -> Result<ClusterSpec, ClusterError> {
    Ok(describe_cluster(spec)?.cluster)
}

/// Like [`parse_cluster`], with notes about settings that a cluster cannot express.
pub fn describe_cluster(spec: &str) -> Result<ClusterDescription, ClusterError> {
    let spec = spec.trim();
    let wrong = |hint: String| ClusterError::Spec {
        found: spec.to_owned(),
        hint,
    };
    if let Some(gpus) = spec.strip_prefix("pool:") {
        let gpus =
            parse_count(gpus, MAX_POOL_GPUS).map_err(|e| wrong(format!("; the GPUs of the pool: {e}")))?;
        let mut cluster = ClusterSpec::bare("gpu");
        cluster.nodes.push(NodeSpec::plain("pool", gpus));
        return Ok(cluster.into());
    }
    if let Some((nodes, gpus)) = spec.split_once('x').filter(|(n, g)| is_digits(n) && is_digits(g)) {
        let nodes = parse_count(nodes, MAX_NODES).map_err(|e| wrong(format!("; the nodes: {e}")))?;
        let gpus =
            parse_count(gpus, MAX_NODE_GPUS).map_err(|e| wrong(format!("; the GPUs of a node: {e}")))?;
        return Ok(ClusterSpec::uniform(nodes, gpus).into());
    }
    if spec.is_empty() || !Path::new(spec).exists() {
        let looks_like_a_file = spec.contains(['.', '/']);
        return Err(wrong(if looks_like_a_file {
            "; no such file".to_owned()
        } else {
            String::new()
        }));
    }
    let bytes = std::fs::read(spec).map_err(|reason| TraceError::Open {
        file: spec.to_owned(),
        reason,
    })?;
    describe_bytes(&bytes, spec)
}

/// Parses the content of a file; the extension of the name `file` determines the format.
pub fn describe_bytes(bytes: &[u8], file: &str) -> Result<ClusterDescription, ClusterError> {
    let unsupported = |what: &str| ClusterError::Unsupported {
        file: file.to_owned(),
        what: what.to_owned(),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(unsupported("the file is empty"));
    }
    let plain_name = file
        .strip_suffix(".gz")
        .or_else(|| file.strip_suffix(".zst"))
        .unwrap_or(file);
    let text = || match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.trim_start_matches('\u{feff}')),
        Err(_) => Err(unsupported("not UTF-8 text")),
    };
    match plain_name.rsplit('.').next() {
        Some("ini") => ini::parse(text()?, file),
        Some("csv") => tables::parse(bytes, file).map(ClusterDescription::from),
        _ => yaml::parse(text()?, file).map(ClusterDescription::from),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A count that is not a whole number in range.
#[derive(Debug, thiserror::Error)]
#[error("found {found:?}, expected a whole number from 1 to {most}")]
struct CountError {
    found: String,
    most: u32,
}

fn parse_count(text: &str, most: u32) -> Result<u32, CountError> {
    let count = text.parse().ok().filter(|n| (1..=most).contains(n));
    count.ok_or_else(|| CountError {
        found: text.to_owned(),
        most,
    })
}

/// Returns the first name that two nodes share.
fn repeated_name(nodes: &IdVec<NodeId, NodeSpec>) -> Option<&str> {
    let mut names = BTreeSet::new();
    nodes
        .values()
        .map(|n| n.name.as_str())
        .find(|name| !names.insert(*name))
}
