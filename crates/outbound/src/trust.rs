//! Certificate authorities that servers are verified against.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::OutboundError;

/// Usual locations of the system's authorities.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Trusted certificate authorities.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Reads the authorities from this file (PEM), or those of the system.
    ///
    /// # Errors
    /// When the file cannot be read or contains no certificate.
    pub fn open(file: Option<&Path>) -> Result<Self, OutboundError> {
        let invalid = |path: &Path, reason: &dyn std::fmt::Display| {
            OutboundError::Invalid(format!("{}: {reason}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        match file {
            Some(path) => {
                let pem = std::fs::read(path).map_err(|e| invalid(path, &e))?;
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let certificate = certificate.map_err(|e| invalid(path, &e))?;
                    roots.add(certificate).map_err(|e| invalid(path, &e))?;
                }
                if roots.is_empty() {
                    return Err(invalid(path, &"contains no PEM certificate"));
                }
            }
            // Certificates of the system that cannot be parsed are skipped, as browsers do.
            None => {
                let configured = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
                let usual = SYSTEM_FILES.iter().map(std::path::PathBuf::from);
                let pem = configured
                    .into_iter()
                    .chain(usual)
                    .find_map(|p| std::fs::read(p).ok());
                let pem = pem.unwrap_or_default();
                let parsed = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
                roots.add_parsable_certificates(parsed);
            }
        }
        Self::with_roots(roots)
    }

    fn with_roots(roots: RootCertStore) -> Result<Self, OutboundError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| OutboundError::Invalid(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Performs the TLS handshake and verifies that the server is `host`.
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, OutboundError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|e| OutboundError::Invalid(e.to_string()))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        connector
            .connect(name, stream)
            .await
            .map_err(OutboundError::unreachable)
    }
}
