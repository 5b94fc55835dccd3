//! What an agent is told when it is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::NodeError;

/// How the connection to the scheduler is kept safe.
#[derive(Clone, Debug)]
pub enum Security {
    /// Mutual TLS; the authority of the scheduler is in this file (PEM).
    CaFile(PathBuf),
    /// Mutual TLS; the authority of the scheduler is known by the SHA-256 of its certificate (DER), in hex.
    CaFingerprint(String),
    /// None. Only to a scheduler on this machine (a loopback address), for tests.
    Off,
}

/// What becomes of a job that names a container image on a node without a container runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// It is refused.
    #[default]
    Require,
    /// It runs without the image, and its log and its record say so.
    Ignore,
}

/// The settings of an agent. [`AgentConfig::new`] has sensible values for all but three.
#[derive(Clone)]
pub struct AgentConfig {
    /// The name of the node.
    pub node: String,
    /// `host:port` of the scheduler.
    pub server: String,
    /// The agent's folder. It has to outlive the agent; a local disk.
    pub folder: PathBuf,
    /// How the connection is kept safe.
    pub security: Security,
    /// Needed once: it is exchanged for a certificate, which is kept in the folder.
    pub join_token: Option<String>,
    /// Where other nodes reach this one; the address towards the scheduler if not given.
    pub address: Option<String>,
    /// So many GPU slots without GPUs, instead of those of the machine.
    pub virtual_gpus: Option<u32>,
    /// The rack the node is in; may be empty.
    pub rack: String,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// How the shim is started: a program and its first arguments, which end up in [`shim`](crate::shim()).
    pub shim: Vec<OsString>,
    /// The socket by which trainers talk to the agent; in the folder if not given.
    pub socket: Option<PathBuf>,
    /// The cgroup (v2) below which tasks get theirs; the agent's own if not given. Without a writable one, tasks are
    /// bound to CPUs and have no limit of memory.
    pub cgroup: Option<PathBuf>,
    /// A log file is closed at this size, and another one begun.
    pub log_segment_bytes: u64,
    /// So much is kept of the log of a task; the oldest files are deleted.
    pub log_keep_bytes: u64,
    /// For so long the folder of a task that ended is kept.
    pub keep_ended: Duration,
    /// So much is kept of all tasks that ended; the oldest go first.
    pub keep_ended_bytes: u64,
    /// The longest pause between two attempts to reach the scheduler.
    pub redial_most: Duration,
    /// The program that runs containers; podman or docker if not given, and none if it is `none`.
    pub container_runtime: Option<PathBuf>,
    /// What becomes of jobs with images where there is no container runtime.
    pub images: Images,
}

impl AgentConfig {
    /// An agent of this name and scheduler, in this folder.
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
            redial_most: Duration::from_secs(10),
            container_runtime: None,
            images: Images::default(),
        }
    }

    /// With a join token as the scheduler prints it, `SECRET.FINGERPRINT`: the secret is shown to the scheduler whose
    /// authority has that fingerprint, and to no other.
    ///
    /// # Errors
    /// When it is not such a token. It is not shown.
    pub fn with_join_token(mut self, token: &str) -> Result<Self, NodeError> {
        let is_hex = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_hexdigit());
        match token.trim().split_once('.') {
            Some((secret, fingerprint))
                if is_hex(secret) && is_hex(fingerprint) && fingerprint.len() == 64 =>
            {
                self.join_token = Some(secret.to_owned());
                self.security = Security::CaFingerprint(fingerprint.to_ascii_lowercase());
                Ok(self)
            }
            _ => Err(NodeError::Setting {
                field: "join_token",
                why: "not a join token: hex digits, a dot and 64 hex digits, as the scheduler prints it"
                    .to_owned(),
            }),
        }
    }

    pub(crate) fn check(&self) -> Result<(), NodeError> {
        let wrong = |field, why: String| Err(NodeError::Setting { field, why });
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.node.is_empty() || self.node.len() > 253 || !self.node.chars().all(fine) {
            let why = format!("`{}` is not a name: letters, digits, `-`, `_` and `.`", self.node);
            return wrong("node", why);
        }
        let Some((host, port)) = self.server.rsplit_once(':') else {
            return wrong("server", format!("`{}` is not host:port", self.server));
        };
        if host.is_empty() || port.parse::<u16>().is_err() {
            return wrong("server", format!("`{}` is not host:port", self.server));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if matches!(self.security, Security::Off) && !loopback {
            let why = format!("without TLS only to a scheduler on this machine, not `{host}`");
            return wrong("security", why);
        }
        if let Security::CaFingerprint(hex) = &self.security
            && (hex.len() != 64 || !hex.chars().all(|c| c.is_ascii_hexdigit()))
        {
            return wrong("security", format!("`{hex}` is not a SHA-256 in hex (64 digits)"));
        }
        if self.shim.is_empty() {
            return wrong("shim", "no program to start it with".to_owned());
        }
        Ok(())
    }
}

impl std::fmt::Debug for AgentConfig {
    /// Without the token.
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
    fn settings_that_cannot_be_are_refused_with_what_would_be_accepted() {
        let good = || AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        good().check().unwrap();
        let said = |change: fn(&mut AgentConfig)| {
            let mut config = good();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(said(|c| c.node = "a/b".into()).contains("letters, digits"));
        assert!(said(|c| c.server = "here".into()).contains("host:port"));
        assert!(said(|c| c.security = Security::Off).contains("only to a scheduler on this machine"));
        assert!(said(|c| c.security = Security::CaFingerprint("ab".into())).contains("64 digits"));
    }

    #[test]
    fn a_token_names_the_authority() {
        let config = || AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        let token = format!("0123abcd.{}\n", "AB".repeat(32));
        let joined = config().with_join_token(&token).unwrap();
        assert_eq!(joined.join_token.as_deref(), Some("0123abcd"));
        assert!(matches!(joined.security, Security::CaFingerprint(f) if f == "ab".repeat(32)));
        for wrong in ["", "0123abcd", "0123abcd.abab", "hush!.abab"] {
            let said = config().with_join_token(wrong).unwrap_err().to_string();
            assert!(said.contains("64 hex digits") && !said.contains("hush"), "{said}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let mut config = AgentConfig::new("n1", "10.0.0.1:7070", "/x".into());
        config.join_token = Some("hush-hush".into());
        assert!(!format!("{config:?}").contains("hush"));
    }
}
