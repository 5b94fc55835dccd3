//! The settings file of a server, `server.yaml`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dovetail_web::{NotifyConfig, OidcConfig};
use serde::Deserialize;

use crate::ConfigError;

/// `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerFile {
    pub(crate) data: Option<PathBuf>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) grpc: Option<SocketAddr>,
    /// Names and addresses under which clients and agents reach this server, in addition to those of its sockets.
    pub(crate) names: Vec<String>,
    pub(crate) policy: Option<String>,
    pub(crate) parts: BTreeMap<String, String>,
    /// Length of a round; without it, decisions are made at every event.
    pub(crate) round: Option<String>,
    pub(crate) checkpoints: Option<PathBuf>,
    pub(crate) heartbeat: Option<String>,
    pub(crate) lease: Option<String>,
    /// How long after its lease a silent node counts as lost.
    pub(crate) margin: Option<String>,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) tls: Option<bool>,
    /// Requests per minute and user; 0 for no limit.
    pub(crate) requests_per_minute: Option<u32>,
    /// The folder of templates for job files.
    pub(crate) templates: Option<PathBuf>,
    /// OpenID Connect.
    pub(crate) oidc: Option<OidcConfig>,
    /// Notifications.
    pub(crate) notify: Option<NotifyConfig>,
}

/// The account that jobs run under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunAs {
    /// The agent's own account.
    Agent,
    /// The account of the user who submitted the job.
    User,
}

impl ServerFile {
    /// Reads the file; all keys have their defaults without one.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = file else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        serde_saphyr::from_str(&text).map_err(|e| ConfigError::Syntax {
            path: path.to_owned(),
            problem: e.to_string().lines().next().unwrap_or_default().to_owned(),
        })
    }
}
