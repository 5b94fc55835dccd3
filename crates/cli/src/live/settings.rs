//! Settings of a server: the file, and the flags that override it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use dovetail_client::data_folder;
use dovetail_cluster::PolicyText;
use dovetail_console::{Failure, OrFailure};
use dovetail_engine::Clock;
use dovetail_model::{Time, parse_span};
use dovetail_web::{NotifyConfig, OidcConfig};
use serde::Deserialize;

use crate::live::args::ServeArgs;

/// `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerFile {
    data: Option<PathBuf>,
    http: Option<SocketAddr>,
    grpc: Option<SocketAddr>,
    /// Names and addresses under which clients and agents reach this server, in addition to those of its sockets.
    names: Vec<String>,
    policy: Option<String>,
    parts: BTreeMap<String, String>,
    /// Length of a round; without it, decisions are made at every event.
    round: Option<String>,
    checkpoints: Option<PathBuf>,
    heartbeat: Option<String>,
    lease: Option<String>,
    /// How long after its lease a silent node counts as lost.
    margin: Option<String>,
    run_as: Option<RunAs>,
    tls: Option<bool>,
    /// Requests per minute and user; 0 for no limit.
    requests_per_minute: Option<u32>,
    /// The folder of templates for job files.
    templates: Option<PathBuf>,
    /// OpenID Connect.
    oidc: Option<OidcConfig>,
    /// Notifications.
    notify: Option<NotifyConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RunAs {
    /// The agent's own account.
    Agent,
    /// The account of the user who submitted the job.
    User,
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
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

/// Parses a span of time of a key: `90s`, `5m`, `1h`.
///
/// # Errors
/// Names the key and the accepted values.
pub fn span(text: &str, key: &str) -> Result<Time, Failure> {
    parse_span(text).filter(|span| span.0 > 0).ok_or_else(|| {
        Failure::request(format!(
            "{key}: invalid span of time {text:?}: expected a value such as 90s, 5m or 1h"
        ))
    })
}

impl ServerFile {
    /// Reads the file; all keys have their defaults without one.
    fn read(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}", path.display()))
            .or_request()?;
        serde_saphyr::from_str(&text).map_err(|e| {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            Failure::request(format!("{}: {first}", path.display()))
        })
    }
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

impl Settings {
    /// Combines flags, file and defaults, in this order of precedence.
    ///
    /// # Errors
    /// Names the file and the key.
    pub fn read(args: &ServeArgs, file: Option<&Path>) -> Result<Self, Failure> {
        let file = ServerFile::read(file)?;
        let data = match args.data.clone().or(file.data) {
            Some(data) => data,
            None => data_folder()?,
        };
        let data = std::path::absolute(data).or_request()?;
        let http = args
            .http
            .or(file.http)
            .unwrap_or_else(|| ([127, 0, 0, 1], 7878).into());
        let grpc = args
            .grpc
            .or(file.grpc)
            .unwrap_or_else(|| ([127, 0, 0, 1], 7879).into());
        let tls = file.tls.unwrap_or(true) && !args.no_tls;
        if !tls && !http.ip().is_loopback() {
            return Err(Failure::request(format!(
                "http: {http} is not a loopback address: without TLS, tokens would be sent unencrypted over the network"
            )));
        }
        let names = certificate_names(file.names, [http, grpc]);
        let seconds = |text: Option<String>, key: &str, default: f64| match text {
            Some(text) => span(&text, key).map(|span| Duration::from_secs_f64(span.as_secs_f64())),
            None => Ok(Duration::from_secs_f64(default)),
        };
        let heartbeat = seconds(file.heartbeat, "heartbeat", 2.0)?;
        let lease = seconds(file.lease, "lease", 60.0)?;
        if lease < heartbeat * 3 {
            return Err(Failure::request(format!(
                "lease: {} s is too short for a heartbeat of {} s: expected at least three heartbeats",
                lease.as_secs_f64(),
                heartbeat.as_secs_f64()
            )));
        }
        Ok(Self {
            requests_per_minute: file.requests_per_minute.unwrap_or(12_000),
            templates: file.templates.unwrap_or_else(|| data.join("templates")),
            oidc: file.oidc,
            notify: file.notify.unwrap_or_default(),
            data,
            http,
            grpc,
            names,
            policy: PolicyText {
                policy: args
                    .policy
                    .clone()
                    .or(file.policy)
                    .unwrap_or_else(|| PolicyText::default().policy),
                parts: file.parts,
            },
            clock: match file.round {
                Some(round) => Clock::rounds(span(&round, "round")?),
                None => Clock::Events,
            },
            checkpoints: file.checkpoints,
            heartbeat,
            lease,
            margin: seconds(file.margin, "margin", 10.0)?,
            run_as_user: file.run_as == Some(RunAs::User),
            tls,
        })
    }
}

/// Returns the host name of this machine.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Returns the name of the current user.
pub fn user_name() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    of("USER")
        .or_else(|| of("LOGNAME"))
        .unwrap_or_else(|| "admin".to_owned())
}
