//! Settings of an agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::AgentError;

/// How the connection to the server is secured.
#[derive(Clone, Debug)]
pub enum Security {
    /// Mutual TLS; this file (PEM) has the certificate of the server's authority.
    CaFile(PathBuf),
    /// Mutual TLS; the server's authority has a certificate (DER) with this SHA-256, in hex.
    CaFingerprint(String),
    /// No TLS. Accepted only for a server on a loopback address, for tests.
    Off,
}

/// What happens to a job with a container image on a node without a container runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// The job is refused.
    #[default]
    Require,
    /// The job runs without its image; log and job record say so.
    Ignore,
}

/// Settings of an agent. [`AgentConfig::new`] has defaults for all but three.
#[derive(Clone)]
pub struct AgentConfig {
    /// Name of the node.
    pub node: String,
    /// Address of the server, `host:port`.
    pub server: String,
    /// Data folder of the agent, on a local disk. It must outlive the agent.
    pub folder: PathBuf,
    /// How the connection to the server is secured.
    pub security: Security,
    /// Token that is exchanged once for a certificate, which is then stored in the folder.
    pub join_token: Option<String>,
    /// Address at which other nodes reach this one; the address used towards the server by default.
    pub address: Option<String>,
    /// Number of GPU slots without GPUs, in place of the GPUs of the machine.
    pub virtual_gpus: Option<u32>,
    /// Rack of the node; may be empty.
    pub rack: String,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Command that starts a shim: a program and its first arguments. The program must call
    /// [`shim`](crate::shim()) with the remaining ones.
    pub shim: Vec<OsString>,
    /// Socket that trainers connect to; in the folder by default.
    pub socket: Option<PathBuf>,
    /// Cgroup (v2) below which each task gets its own; the agent's own cgroup by default. Without write access, tasks
    /// are bound to CPUs and have no memory limit.
    pub cgroup: Option<PathBuf>,
    /// Size at which a new log file is begun.
    pub log_segment_bytes: u64,
    /// Size to which the log of a task is limited; the oldest files are deleted.
    pub log_keep_bytes: u64,
    /// How long the folder of an ended task is kept.
    pub keep_ended: Duration,
    /// Total size of the folders of ended tasks; the oldest are deleted first.
    pub keep_ended_bytes: u64,
    /// Longest pause between two attempts to connect to the server.
    pub max_reconnect_delay: Duration,
    /// Container runtime; `none` disables it, and by default podman or docker is used if installed.
    pub container_runtime: Option<PathBuf>,
    /// What happens to jobs with images on a node without a container runtime.
    pub images: Images,
}

impl AgentConfig {
    /// Returns the default settings for this node name, server and folder.
    pub fn new(node: &str, server: &str, folder: PathBuf) -> Self {
        let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        Self {
            node: node.to_owned(),
            server: server.to_owned(),
            security: Security::CaFile(folder.join("ca.pem")),
            folder,
            join_token: None,
            address: None,
            virtual_gpus: None,
            rack: String::new(),
            labels: BTreeMap::new(),
            shim: vec![this.into(), "agent".into(), "--exec-task".into()],
            socket: None,
            cgroup: None,
            log_segment_bytes: 16 << 20,
            log_keep_bytes: 1 << 30,
            keep_ended: Duration::from_secs(7 * 24 * 3600),
            keep_ended_bytes: 20 << 30,
            max_reconnect_delay: Duration::from_secs(10),
            container_runtime: None,
            images: Images::default(),
        }
    }

    /// Sets a join token as the server prints it, `SECRET.FINGERPRINT`. The secret is sent only to a server whose
    /// authority has that fingerprint.
    ///
    /// # Errors
    /// When the token is malformed. The message does not contain it.
    pub fn with_join_token(mut self, token: &str) -> Result<Self, AgentError> {
        let is_hex = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_hexdigit());
        match token.trim().split_once('.') {
            Some((secret, fingerprint))
                if is_hex(secret) && is_hex(fingerprint) && fingerprint.len() == 64 =>
            {
                self.join_token = Some(secret.to_owned());
                self.security = Security::CaFingerprint(fingerprint.to_ascii_lowercase());
                Ok(self)
            }
            _ => Err(AgentError::Config {
                field: "join_token",
                reason: "invalid join token: expected hex digits, a dot and 64 hex digits, as the server prints it"
                    .to_owned(),
            }),
        }
    }

    pub(crate) fn check(&self) -> Result<(), AgentError> {
        let invalid = |field, reason: String| Err(AgentError::Config { field, reason });
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.node.is_empty() || self.node.len() > 253 || !self.node.chars().all(is_allowed) {
            let reason = format!(
                "invalid node name {:?}: expected up to 253 letters, digits, `-`, `_` and `.`",
                self.node
            );
            return invalid("node", reason);
        }
        let bad_server = || {
            invalid(
                "server",
                format!("invalid address {:?}: expected host:port", self.server),
            )
        };
        let Some((host, port)) = self.server.rsplit_once(':') else {
            return bad_server();
        };
        if host.is_empty() || port.parse::<u16>().is_err() {
            return bad_server();
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if matches!(self.security, Security::Off) && !is_loopback {
            let reason = format!("a connection without TLS must be to a loopback address, not `{host}`");
            return invalid("security", reason);
        }
        if let Security::CaFingerprint(hex) = &self.security
            && (hex.len() != 64 || !hex.chars().all(|c| c.is_ascii_hexdigit()))
        {
            return invalid(
                "security",
                format!("invalid fingerprint {hex:?}: expected the 64 hex digits of a SHA-256"),
            );
        }
        if self.shim.is_empty() {
            return invalid("shim", "missing program".to_owned());
        }
        Ok(())
    }
}

impl std::fmt::Debug for AgentConfig {
    /// Leaves out the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentConfig")
            .field("node", &self.node)
            .field("server", &self.server)
            .field("folder", &self.folder)
            .field("security", &self.security)
            .field("virtual_gpus", &self.virtual_gpus)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_is_rejected_with_what_is_expected() {
        let valid = || AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        valid().check().unwrap();
        let error = |change: fn(&mut AgentConfig)| {
            let mut config = valid();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(error(|c| c.node = "a/b".into()).contains("letters, digits"));
        assert!(error(|c| c.server = "here".into()).contains("host:port"));
        assert!(error(|c| c.security = Security::Off).contains("must be to a loopback address"));
        assert!(error(|c| c.security = Security::CaFingerprint("ab".into())).contains("64 hex digits"));
    }

    #[test]
    fn a_join_token_contains_the_fingerprint_of_the_authority() {
        let config = || AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        let token = format!("0123abcd.{}\n", "AB".repeat(32));
        let joined = config().with_join_token(&token).unwrap();
        assert_eq!(joined.join_token.as_deref(), Some("0123abcd"));
        assert!(matches!(joined.security, Security::CaFingerprint(f) if f == "ab".repeat(32)));
        for invalid in ["", "0123abcd", "0123abcd.abab", "hush!.abab"] {
            let error = config().with_join_token(invalid).unwrap_err().to_string();
            assert!(
                error.contains("64 hex digits") && !error.contains("hush"),
                "{error}"
            );
        }
    }

    #[test]
    fn debug_output_leaves_out_the_join_token() {
        let mut config = AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        config.join_token = Some("hush-hush".into());
        assert!(!format!("{config:?}").contains("hush"));
    }
}
