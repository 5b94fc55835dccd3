//! Authentication of the agent: a private key that stays on the node, and a certificate obtained with a join token.

use std::path::PathBuf;
use std::time::Duration;

use dovetail_proto::v1::JoinRequest;
use dovetail_proto::v1::scheduler_client::SchedulerClient;
use rcgen::{CertificateParams, DnType, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::config::{AgentConfig, Security};
use crate::error::AgentError;
use crate::files;
use crate::link::authority;

/// Opens connections to the server.
pub(crate) struct Connector {
    config: AgentConfig,
    /// The server did not accept the certificate, and there is a token to obtain another one.
    join_again: bool,
    has_joined: bool,
}

impl Connector {
    pub(crate) fn new(config: AgentConfig) -> Self {
        Self {
            config,
            join_again: false,
            has_joined: false,
        }
    }

    /// Opens a connection for `Attach`, and joins first if there is no certificate yet.
    pub(crate) async fn channel(&mut self) -> Result<Channel, AgentError> {
        if matches!(self.config.security, Security::Off) {
            return self.connect("http", None).await;
        }
        let authority = self.authority().await?;
        let identity = match self.identity()? {
            Some(identity) if !self.join_again => identity,
            _ => self.join(&authority).await?,
        };
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&authority))
            .identity(identity);
        self.connect("https", Some(tls)).await
    }

    /// Returns the error for a failed `Attach`.
    pub(crate) fn attach_failed(&mut self, status: &Status) -> AgentError {
        let is_credential = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
        if is_credential && self.config.join_token.is_some() && !self.has_joined {
            self.join_again = true;
            return AgentError::Unreachable(format!("{}; joining again", status.message()));
        }
        if is_credential {
            return self.rejected(status.message());
        }
        AgentError::Unreachable(status.message().to_owned())
    }

    pub(crate) fn rejected(&self, reason: &str) -> AgentError {
        AgentError::Rejected {
            server: self.config.server.clone(),
            reason: reason.to_owned(),
        }
    }

    async fn connect(&self, scheme: &str, tls: Option<ClientTlsConfig>) -> Result<Channel, AgentError> {
        let server = &self.config.server;
        let invalid = |e: tonic::transport::Error| AgentError::Config {
            field: "server",
            reason: format!("{server}: {}", with_sources(&e)),
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{server}"))
            .map_err(invalid)?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).map_err(invalid)?;
        }
        let unreachable = |e| AgentError::Unreachable(format!("cannot reach {server}: {}", with_sources(&e)));
        endpoint.connect().await.map_err(unreachable)
    }

    /// Returns the certificate of the server's authority. One that is found by its fingerprint is stored.
    async fn authority(&self) -> Result<Vec<u8>, AgentError> {
        match &self.config.security {
            Security::CaFile(path) => files::read(path)?.ok_or_else(|| AgentError::Config {
                field: "security",
                reason: format!(
                    "{}: no such file; expected the certificate of the server's authority",
                    path.display()
                ),
            }),
            Security::CaFingerprint(fingerprint) => {
                let path = self.file("ca.pem");
                if let Ok(Some(stored)) = files::read(&path)
                    && authority::matches(&stored, fingerprint)
                {
                    return Ok(stored);
                }
                let found = authority::fetch(&self.config.server, fingerprint).await?;
                files::write(&path, found.as_bytes())?;
                Ok(found.into_bytes())
            }
            Security::Off => Ok(Vec::new()),
        }
    }

    fn identity(&self) -> Result<Option<Identity>, AgentError> {
        let key = files::read(&self.file("node.key"))?;
        let certificate = files::read(&self.file("node.pem"))?;
        Ok(certificate.zip(key).map(|(c, k)| Identity::from_pem(c, k)))
    }

    /// Exchanges the join token for a certificate.
    async fn join(&mut self, authority: &[u8]) -> Result<Identity, AgentError> {
        let Some(token) = self.config.join_token.clone() else {
            return Err(AgentError::Config {
                field: "join_token",
                reason: "missing: this node has no certificate yet; `dovetail server --print-join-token` prints a token"
                    .to_owned(),
            });
        };
        let (key, request) = signing_request(&self.config.node)?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        let channel = self.connect("https", Some(tls)).await?;
        let message = JoinRequest {
            node: self.config.node.clone(),
            token,
            signing_request: request,
        };
        let reply = SchedulerClient::new(channel).join(message).await;
        let certificate = match reply {
            Ok(reply) => reply.into_inner().certificate,
            Err(e) => {
                let permanent = [
                    Code::Unauthenticated,
                    Code::PermissionDenied,
                    Code::InvalidArgument,
                    Code::AlreadyExists,
                ];
                return Err(match permanent.contains(&e.code()) {
                    true => self.rejected(e.message()),
                    false => AgentError::Unreachable(format!("cannot join: {}", e.message())),
                });
            }
        };
        files::write(&self.file("node.key"), key.as_bytes())?;
        files::write(&self.file("node.pem"), certificate.as_bytes())?;
        self.has_joined = true;
        self.join_again = false;
        tracing::info!(
            server = self.config.server,
            "joined; the certificate is stored in the agent's folder"
        );
        Ok(Identity::from_pem(certificate, key))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.config.folder.join(name)
    }
}

/// Returns a new private key and a request to sign it, both in PEM.
fn signing_request(node: &str) -> Result<(String, String), AgentError> {
    let failed = |e: rcgen::Error| AgentError::Config {
        field: "node",
        reason: format!("cannot create a certificate request for `{node}`: {e}"),
    };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(vec![node.to_owned()]).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, node);
    let request = params.serialize_request(&key).map_err(failed)?;
    Ok((key.serialize_pem(), request.pem().map_err(failed)?))
}

/// Formats an error with its sources. The transport error alone does not mention the TLS error behind it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let cause = inner.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = inner.source();
    }
    text
}
