//! Encryption of connections.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The PEM text is invalid.
    #[error("server certificate: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The chain and the key do not belong together, or are not supported.
    #[error("server certificate: {0}")]
    Certificate(#[from] rustls::Error),
}

/// Encryption of connections.
#[derive(Clone)]
pub enum Tls {
    /// TLS with a certificate chain and its key.
    On(Arc<ServerConfig>),
    /// No encryption: only for a socket of this machine.
    Off,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On(_) => "Tls::On",
            Self::Off => "Tls::Off",
        })
    }
}

impl Tls {
    /// Creates TLS from a certificate chain and a key, both in PEM.
    ///
    /// # Errors
    /// When the chain or the key is not valid.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self::On(Arc::new(config)))
    }
}
