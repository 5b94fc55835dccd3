//! The settings of a server: overrides, the file, and defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dovetail_client::data_folder;
use dovetail_cluster::PolicyText;
use dovetail_engine::Clock;
use dovetail_web::{NotifyConfig, OidcConfig};

use crate::file::{RunAs, ServerFile};
use crate::{ConfigError, host_name, parse_positive_span};

/// Default port of the API and the page.
const HTTP_PORT: u16 = 7878;
/// Default port for agents.
const GRPC_PORT: u16 = 7879;
/// Default heartbeat interval of agents.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Default duration for which agents continue without an answer.
const LEASE: Duration = Duration::from_secs(60);
/// Default time after its lease at which a silent node counts as lost.
const MARGIN: Duration = Duration::from_secs(10);
/// Default limit of requests per minute and user.
const REQUESTS_PER_MINUTE: u32 = 12_000;

/// Settings that take precedence over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Data folder.
    pub data: Option<PathBuf>,
    /// Address of the API.
    pub http: Option<SocketAddr>,
    /// Address for agents.
    pub grpc: Option<SocketAddr>,
    /// The policy of a new journal.
    pub policy: Option<String>,
    /// Serve the API without TLS.
    pub no_tls: bool,
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Data folder.
    pub data: PathBuf,
    /// Address of the API.
    pub http: SocketAddr,
    /// Address for agents.
    pub grpc: SocketAddr,
    /// Names in its certificate.
    pub names: Vec<String>,
    /// The policy of a new journal.
    pub policy: PolicyText,
    /// When a new journal's engine decides.
    pub clock: Clock,
    /// The folder, shared by all nodes, for checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Heartbeat interval of agents.
    pub heartbeat: Duration,
    /// How long agents continue without an answer.
    pub lease: Duration,
    /// How long after that a silent node counts as lost.
    pub margin: Duration,
    /// Whether jobs run under the account of the user who submitted them.
    pub run_as_user: bool,
    /// Whether the API is served over TLS.
    pub tls: bool,
    /// Requests per minute and user; zero for no limit.
    pub requests_per_minute: u32,
    /// The folder of templates for job files.
    pub templates: PathBuf,
    /// OpenID Connect.
    pub oidc: Option<OidcConfig>,
    /// Notifications.
    pub notify: NotifyConfig,
}

impl ServerConfig {
    /// Combines overrides, the file `server.yaml` and defaults, in this order of precedence.
    ///
    /// # Errors
    /// Names the file and the key.
    pub fn read(overrides: Overrides, file: Option<&Path>) -> Result<Self, ConfigError> {
        let file = ServerFile::read(file)?;
        let data = match overrides.data.or(file.data) {
            Some(data) => data,
            None => data_folder()?,
        };
        let data = std::path::absolute(data).map_err(ConfigError::DataPath)?;
        let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let http = overrides.http.or(file.http).unwrap_or(loopback(HTTP_PORT));
        let grpc = overrides.grpc.or(file.grpc).unwrap_or(loopback(GRPC_PORT));
        let tls = file.tls.unwrap_or(true) && !overrides.no_tls;
        if !tls && !http.ip().is_loopback() {
            return Err(ConfigError::Unencrypted { http });
        }
        let heartbeat = duration_or(file.heartbeat, "heartbeat", HEARTBEAT)?;
        let lease = duration_or(file.lease, "lease", LEASE)?;
        if lease < heartbeat * 3 {
            return Err(ConfigError::ShortLease { lease, heartbeat });
        }
        let policy = overrides.policy.or(file.policy);
        Ok(Self {
            requests_per_minute: file.requests_per_minute.unwrap_or(REQUESTS_PER_MINUTE),
            templates: file.templates.unwrap_or_else(|| data.join("templates")),
            oidc: file.oidc,
            notify: file.notify.unwrap_or_default(),
            data,
            http,
            grpc,
            names: certificate_names(file.names, [http, grpc]),
            policy: PolicyText {
                policy: policy.unwrap_or_else(|| PolicyText::default().policy),
                parts: file.parts,
            },
            clock: match file.round {
                Some(round) => Clock::rounds(parse_positive_span(&round, "round")?),
                None => Clock::Events,
            },
            checkpoints: file.checkpoints,
            heartbeat,
            lease,
            margin: duration_or(file.margin, "margin", MARGIN)?,
            run_as_user: file.run_as == Some(RunAs::User),
            tls,
        })
    }
}

fn duration_or(text: Option<String>, key: &str, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    let span = parse_positive_span(&text, key)?;
    Ok(Duration::from_secs_f64(span.as_secs_f64()))
}

/// Returns all names of the server's certificate.
fn certificate_names(configured: Vec<String>, addresses: [SocketAddr; 2]) -> Vec<String> {
    let mut names = configured;
    names.extend(["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()]);
    names.extend(host_name());
    let specified = addresses.iter().filter(|a| !a.ip().is_unspecified());
    names.extend(specified.map(|address| address.ip().to_string()));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str, overrides: Overrides) -> Result<ServerConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.yaml");
        std::fs::write(&path, format!("data: {}\n{yaml}", dir.path().display())).unwrap();
        ServerConfig::read(overrides, Some(&path)).map_err(|e| e.to_string())
    }

    #[test]
    fn overrides_take_precedence_over_the_file() {
        let overrides = Overrides {
            policy: Some("srsf".to_owned()),
            ..Overrides::default()
        };
        let config = read("policy: fifo\nlease: 90s\nround: 5m\nrun_as: user", overrides).unwrap();
        assert_eq!(config.policy.policy, "srsf");
        assert_eq!(
            (config.lease, config.heartbeat),
            (Duration::from_secs(90), HEARTBEAT)
        );
        assert!(config.run_as_user && config.tls);
        assert_eq!(config.http.port(), HTTP_PORT);
    }

    #[test]
    fn errors_name_the_key() {
        let error = |yaml: &str| read(yaml, Overrides::default()).unwrap_err();
        assert!(error("lease: 1s").starts_with("lease: 1 s is too short for a heartbeat of 2 s"));
        assert!(error("margin: soon").starts_with("margin: invalid span of time \"soon\""));
        assert!(
            error("tls: false\nhttp: 0.0.0.0:80").starts_with("http: 0.0.0.0:80 is not a loopback address")
        );
        assert!(error("polices: fifo").contains("unknown field"));
    }
}
