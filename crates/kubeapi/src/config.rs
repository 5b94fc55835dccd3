//! Configuration of an API server: address, TLS and credentials.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::error::{ConfigError, Error};
use crate::time::{now_micros, parse_time};

/// Configuration of an API server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Path prefix, such as that of a proxy; usually empty.
    pub prefix: String,
    /// TLS settings; `None` for plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// Credentials.
    pub auth: Auth,
    /// The default namespace.
    pub namespace: String,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// Credentials beside a TLS certificate.
#[derive(Debug, Clone)]
pub enum Auth {
    /// No credentials; the client is anonymous or identified by its certificate.
    None,
    /// A token.
    Token(String),
    /// A token in a file that is rewritten from time to time.
    TokenFile(PathBuf),
    /// A token from a program.
    Exec(Arc<ExecPlugin>),
}

/// A program that prints credentials.
#[derive(Debug)]
pub struct ExecPlugin {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment variables.
    pub env: Vec<(String, String)>,
    /// API version of its output.
    pub api_version: String,
    /// The last token, and its expiry in microseconds since 1970.
    pub last: Mutex<Option<(String, Option<i64>)>>,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: ExecStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    expiration_timestamp: Option<String>,
}

impl Auth {
    /// Returns the current token.
    pub(crate) async fn token(&self) -> Result<Option<String>, Error> {
        match self {
            Self::None => Ok(None),
            Self::Token(token) => Ok(Some(token.clone())),
            Self::TokenFile(path) => {
                let token = tokio::fs::read_to_string(path).await;
                let token = token.map_err(|e| Error::Credentials(format!("{}: {e}", path.display())))?;
                Ok(Some(token.trim().to_owned()))
            }
            Self::Exec(plugin) => plugin.token().await.map(Some),
        }
    }
}

impl ExecPlugin {
    async fn token(&self) -> Result<String, Error> {
        let mut last = self.last.lock().await;
        let now = now_micros();
        let soon = now + 60_000_000;
        if let Some((token, until)) = last.as_ref()
            && until.is_none_or(|until| until > soon)
        {
            return Ok(token.clone());
        }
        let failed = |reason: String| Error::Credentials(format!("{}: {reason}", self.command));
        let info = format!(
            r#"{{"apiVersion":"{}","kind":"ExecCredential","spec":{{}}}}"#,
            self.api_version
        );
        let started = Instant::now();
        let output = tokio::process::Command::new(&self.command)
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .env("KUBERNETES_EXEC_INFO", info)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(60), output).await;
        let output = output.map_err(|_| failed(format!("no response after {:?}", started.elapsed())))?;
        let output = output.map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let credential: ExecCredential = serde_json::from_slice(&output.stdout)
            .map_err(|e| failed(format!("expected an ExecCredential with status.token: {e}")))?;
        let token = credential
            .status
            .token
            .ok_or_else(|| failed("returned a certificate; only tokens are supported".to_owned()))?;
        let until = credential
            .status
            .expiration_timestamp
            .as_deref()
            .and_then(parse_time);
        *last = Some((token.clone(), until));
        Ok(token)
    }
}

impl Config {
    /// Configures a server by its address, with certificates in PEM if needed.
    ///
    /// # Errors
    /// When the address or a certificate is invalid.
    pub fn new(
        server: &str,
        ca: Option<&[u8]>,
        identity: Option<(&[u8], &[u8])>,
    ) -> Result<Self, ConfigError> {
        let (secure, rest) = match (server.strip_prefix("https://"), server.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(ConfigError::Address(server.to_owned())),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = || ConfigError::Address(server.to_owned());
        let default_port = if secure { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| address())?),
            _ => (authority, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(address());
        }
        let prefix = match path.trim_end_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        let tls = match secure {
            true => Some(Arc::new(tls(ca, identity)?)),
            false => None,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            prefix,
            tls,
            auth: Auth::None,
            namespace: "default".to_owned(),
            timeout: Duration::from_secs(30),
        })
    }

    /// Uses the service account of the pod that this process runs in.
    ///
    /// # Errors
    /// When the process does not run in a pod with a service account.
    pub fn in_cluster() -> Result<Self, ConfigError> {
        let folder = PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount");
        let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(ConfigError::NotConfigured)?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host,
        };
        let read = |path: PathBuf| {
            std::fs::read(&path).map_err(|source| ConfigError::File {
                path: path.clone(),
                source,
            })
        };
        let ca = read(folder.join("ca.crt"))?;
        let mut config = Self::new(&format!("https://{host}:{port}"), Some(&ca), None)?;
        config.auth = Auth::TokenFile(folder.join("token"));
        if let Ok(namespace) = read(folder.join("namespace")) {
            config.namespace = String::from_utf8_lossy(&namespace).trim().to_owned();
        }
        Ok(config)
    }
}

fn tls(ca: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<ClientConfig, ConfigError> {
    let invalid =
        |field: &str, reason: &dyn std::fmt::Display| ConfigError::Tls(format!("{field}: {reason}"));
    let mut roots = RootCertStore::empty();
    let ca = ca.ok_or_else(|| {
        ConfigError::Tls(
            "certificate-authority is missing: the identity of the server cannot be verified".to_owned(),
        )
    })?;
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|e| invalid("certificate-authority", &e))?;
        roots
            .add(certificate)
            .map_err(|e| invalid("certificate-authority", &e))?;
    }
    if roots.is_empty() {
        return Err(invalid("certificate-authority", &"contains no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid("versions", &e))?
        .with_root_certificates(roots);
    let Some((certificate, key)) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|e| invalid("client-certificate", &e))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| invalid("client-key", &e))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| invalid("client-certificate", &e))
}
