//! Whom to believe that it is who it says.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::CourierError;

/// Where systems keep the authorities they believe.
const USUAL: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Authorities that are believed.
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
    /// The authorities of this file (PEM); without one, those of the system.
    ///
    /// # Errors
    /// When the file cannot be read or holds no certificate.
    pub fn open(file: Option<&Path>) -> Result<Self, CourierError> {
        let wrong = |path: &Path, what: &dyn std::fmt::Display| {
            CourierError::Invalid(format!("{}: {what}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        match file {
            Some(path) => {
                let pem = std::fs::read(path).map_err(|e| wrong(path, &e))?;
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let certificate = certificate.map_err(|e| wrong(path, &e))?;
                    roots.add(certificate).map_err(|e| wrong(path, &e))?;
                }
                if roots.is_empty() {
                    return Err(wrong(path, &"holds no certificate in PEM"));
                }
            }
            // What is not understood among those of the system is left out, as browsers do.
            None => {
                let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
                let usual = USUAL.iter().map(std::path::PathBuf::from);
                let pem = named.into_iter().chain(usual).find_map(|p| std::fs::read(p).ok());
                let pem = pem.unwrap_or_default();
                let known = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
                roots.add_parsable_certificates(known);
            }
        }
        Self::of(roots)
    }

    fn of(roots: RootCertStore) -> Result<Self, CourierError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| CourierError::Invalid(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Shakes hands with whoever must be `host`.
    pub(crate) async fn shake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, CourierError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| CourierError::Invalid(e.to_string()))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        connector
            .connect(name, stream)
            .await
            .map_err(CourierError::unreachable)
    }
}
