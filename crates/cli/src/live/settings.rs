//! How a server is run: the settings file, and the flags that go before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use dovetail_control::{PolicyText, parse_span};
use dovetail_engine::Clock;
use dovetail_model::Time;
use dovetail_web::{NotifyConfig, OidcConfig};
use serde::Deserialize;

use crate::failure::{Blame, Failure};
use crate::live::args::ServeArgs;
use crate::live::client::data_folder;

/// `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerFile {
    data: Option<PathBuf>,
    http: Option<SocketAddr>,
    grpc: Option<SocketAddr>,
    /// Names and addresses by which clients and agents dial this server, beside those of its sockets.
    names: Vec<String>,
    policy: Option<String>,
    parts: BTreeMap<String, String>,
    /// The length of a round; without it, decisions are made when something happens.
    round: Option<String>,
    checkpoints: Option<PathBuf>,
    heartbeat: Option<String>,
    lease: Option<String>,
    /// How long after its lease a silent node counts as lost.
    margin: Option<String>,
    run_as: Option<RunAs>,
    tls: Option<bool>,
    /// Requests of one user in a minute; 0 for any number.
    requests_per_minute: Option<u32>,
    /// The folder of templates for job files.
    templates: Option<PathBuf>,
    /// Signing in elsewhere.
    oidc: Option<OidcConfig>,
    /// How people are told of their jobs.
    notify: Option<NotifyConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RunAs {
    /// Under the agent's own account.
    Agent,
    /// Under the account of whoever sent the job.
    User,
}

/// All a server needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its folder.
    pub data: PathBuf,
    /// The socket of the API.
    pub http: SocketAddr,
    /// The socket for agents.
    pub grpc: SocketAddr,
    /// What its certificate is for.
    pub names: Vec<String>,
    /// The policy of a new journal.
    pub policy: PolicyText,
    /// When a new journal's engine decides.
    pub clock: Clock,
    /// The folder, shared by all nodes, for checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// How often agents are to be heard.
    pub heartbeat: Duration,
    /// How long agents go on without an answer.
    pub lease: Duration,
    /// How long after that a silent node counts as lost.
    pub margin: Duration,
    /// Jobs run under the account of whoever sent them.
    pub run_as_user: bool,
    /// Whether the API is served over TLS.
    pub tls: bool,
    /// Requests of one user in a minute; zero for any number.
    pub requests_per_minute: u32,
    /// The folder of templates for job files.
    pub templates: PathBuf,
    /// Signing in elsewhere.
    pub oidc: Option<OidcConfig>,
    /// How people are told of their jobs.
    pub notify: NotifyConfig,
}

/// A span of time under a key: `90s`, `5m`, `1h`.
///
/// # Errors
/// Names the key and what would be accepted.
pub fn span(text: &str, key: &str) -> Result<Time, Failure> {
    parse_span(text).filter(|span| span.0 > 0).ok_or_else(|| {
        Failure::request(format!(
            "{key}: {text:?} is no span of time; expected one such as 90s, 5m or 1h"
        ))
    })
}

impl Settings {
    /// What the flags and the file say, and the usual for the rest.
    ///
    /// # Errors
    /// Names the file and the key.
    pub fn read(args: &ServeArgs, file: Option<&Path>) -> Result<Self, Failure> {
        let file = match file {
            None => ServerFile::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("{}", path.display()))
                    .or_request()?;
                serde_saphyr::from_str(&text).map_err(|e| {
                    let what = e.to_string();
                    let lines: Vec<&str> = what.lines().take(1).collect();
                    Failure::request(format!("{}: {}", path.display(), lines.join(" ")))
                })?
            }
        };
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
                "http: without TLS only on a loopback address, not {http}: tokens would go over the network in the open"
            )));
        }
        let mut names = file.names;
        names.extend(["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()]);
        names.extend(host_name());
        for address in [http, grpc].iter().filter(|a| !a.ip().is_unspecified()) {
            names.push(address.ip().to_string());
        }
        names.sort();
        names.dedup();
        let seconds = |text: Option<String>, key: &str, usual: f64| match text {
            Some(text) => span(&text, key).map(|span| Duration::from_secs_f64(span.as_secs_f64())),
            None => Ok(Duration::from_secs_f64(usual)),
        };
        let heartbeat = seconds(file.heartbeat, "heartbeat", 2.0)?;
        let lease = seconds(file.lease, "lease", 60.0)?;
        if lease < heartbeat * 3 {
            return Err(Failure::request(format!(
                "lease: {} s is too short for a heartbeat of {} s; at least three heartbeats",
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

/// The name of this machine.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// The name of whoever runs this.
pub fn user_name() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    of("USER")
        .or_else(|| of("LOGNAME"))
        .unwrap_or_else(|| "admin".to_owned())
}
