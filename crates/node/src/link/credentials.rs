//! How the agent shows who it is: a key that never leaves the node, and a certificate that a join token was exchanged
//! for.

use std::path::PathBuf;
use std::time::Duration;

use dovetail_proto::v1::JoinRequest;
use dovetail_proto::v1::scheduler_client::SchedulerClient;
use rcgen::{CertificateParams, DnType, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::config::{AgentConfig, Security};
use crate::error::NodeError;
use crate::files;
use crate::link::authority;

/// Opens connections to the scheduler.
pub(crate) struct Dialer {
    config: AgentConfig,
    /// The certificate was turned away, and there is a token for another one.
    join_again: bool,
    has_joined: bool,
}

impl Dialer {
    pub(crate) fn new(config: AgentConfig) -> Self {
        Self {
            config,
            join_again: false,
            has_joined: false,
        }
    }

    /// A connection on which `Attach` can be called.
    pub(crate) async fn channel(&mut self) -> Result<Channel, NodeError> {
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

    /// What it means that `Attach` was answered like this.
    pub(crate) fn turned_away(&mut self, status: &Status) -> NodeError {
        let is_about_us = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
        if is_about_us && self.config.join_token.is_some() && !self.has_joined {
            self.join_again = true;
            return NodeError::Unreachable(format!("{}; joining anew", status.message()));
        }
        if is_about_us {
            return self.refused(status.message());
        }
        NodeError::Unreachable(status.message().to_owned())
    }

    pub(crate) fn refused(&self, why: &str) -> NodeError {
        NodeError::Refused {
            server: self.config.server.clone(),
            why: why.to_owned(),
        }
    }

    async fn connect(&self, scheme: &str, tls: Option<ClientTlsConfig>) -> Result<Channel, NodeError> {
        let server = &self.config.server;
        let wrong = |e: tonic::transport::Error| NodeError::Setting {
            field: "server",
            why: format!("{server}: {}", chain(&e)),
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{server}"))
            .map_err(wrong)?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).map_err(wrong)?;
        }
        let unreachable = |e| NodeError::Unreachable(format!("cannot reach {server}: {}", chain(&e)));
        endpoint.connect().await.map_err(unreachable)
    }

    /// The certificate of the scheduler's authority. One that was found by its fingerprint is kept.
    async fn authority(&self) -> Result<Vec<u8>, NodeError> {
        match &self.config.security {
            Security::CaFile(path) => files::read(path)?.ok_or_else(|| NodeError::Setting {
                field: "security",
                why: format!(
                    "{}: no such file; it has the scheduler's authority",
                    path.display()
                ),
            }),
            Security::CaFingerprint(fingerprint) => {
                let path = self.file("ca.pem");
                if let Ok(Some(known)) = files::read(&path)
                    && authority::matches(&known, fingerprint)
                {
                    return Ok(known);
                }
                let found = authority::fetch(&self.config.server, fingerprint).await?;
                files::write(&path, found.as_bytes())?;
                Ok(found.into_bytes())
            }
            Security::Off => Ok(Vec::new()),
        }
    }

    fn identity(&self) -> Result<Option<Identity>, NodeError> {
        let key = files::read(&self.file("node.key"))?;
        let certificate = files::read(&self.file("node.pem"))?;
        Ok(certificate.zip(key).map(|(c, k)| Identity::from_pem(c, k)))
    }

    /// Exchanges the token for a certificate.
    async fn join(&mut self, authority: &[u8]) -> Result<Identity, NodeError> {
        let Some(token) = self.config.join_token.clone() else {
            return Err(NodeError::Setting {
                field: "join_token",
                why: "this node has no certificate yet; a join token of the scheduler is needed".to_owned(),
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
                let final_codes = [
                    Code::Unauthenticated,
                    Code::PermissionDenied,
                    Code::InvalidArgument,
                    Code::AlreadyExists,
                ];
                return Err(match final_codes.contains(&e.code()) {
                    true => self.refused(e.message()),
                    false => NodeError::Unreachable(format!("cannot join: {}", e.message())),
                });
            }
        };
        files::write(&self.file("node.key"), key.as_bytes())?;
        files::write(&self.file("node.pem"), certificate.as_bytes())?;
        self.has_joined = true;
        self.join_again = false;
        tracing::info!(
            server = self.config.server,
            "joined; the certificate is in the agent's folder"
        );
        Ok(Identity::from_pem(certificate, key))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.config.folder.join(name)
    }
}

/// A new key, and the request to sign it, both as PEM.
fn signing_request(node: &str) -> Result<(String, String), NodeError> {
    let wrong = |e: rcgen::Error| NodeError::Setting {
        field: "node",
        why: format!("no certificate can be asked for `{node}`: {e}"),
    };
    let key = KeyPair::generate().map_err(wrong)?;
    let mut params = CertificateParams::new(vec![node.to_owned()]).map_err(wrong)?;
    params.distinguished_name.push(DnType::CommonName, node);
    let request = params.serialize_request(&key).map_err(wrong)?;
    Ok((key.serialize_pem(), request.pem().map_err(wrong)?))
}

/// An error with what is behind it: the transport hides what the TLS says.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = inner.source();
    }
    text
}
