//! The scheduler's authority, known by its fingerprint alone.
//!
//! A connection is opened on which nothing is said; the scheduler shows its certificates, and the one with the
//! fingerprint is the authority. Everything after that is checked against it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::NodeError;

/// The certificate with this fingerprint, as the server shows it, in PEM.
pub(super) async fn fetch(server: &str, fingerprint: &str) -> Result<String, NodeError> {
    let looker = Arc::new(Looker {
        fingerprint: fingerprint.to_ascii_lowercase(),
        provider: Arc::new(provider::default_provider()),
        found: Mutex::new(None),
    });
    let unreachable = |why: String| NodeError::Unreachable(format!("cannot reach {server}: {why}"));
    let mut config = ClientConfig::builder_with_provider(looker.provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| unreachable(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(looker.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|e| unreachable(e.to_string()))?;
    let shake = async {
        let stream = TcpStream::connect(server).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let shaken = tokio::time::timeout(Duration::from_secs(10), shake).await;
    let shaken = shaken.map_err(|_| unreachable("no answer".to_owned()))?;
    let found = looker.found.lock().map_or(None, |mut found| found.take());
    match (found, shaken) {
        (Some(pem), _) => Ok(pem),
        (None, Err(e)) => Err(unreachable(e.to_string())),
        (None, Ok(_)) => Err(unreachable("it showed no certificate".to_owned())),
    }
}

/// Whether a PEM is the certificate with this fingerprint.
pub(super) fn matches(pem: &[u8], fingerprint: &str) -> bool {
    pem::parse(pem).is_ok_and(|found| hex(found.contents()) == fingerprint.to_ascii_lowercase())
}

fn hex(der: &[u8]) -> String {
    let bytes = digest(&SHA256, der);
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[derive(Debug)]
struct Looker {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<String>>,
}

impl ServerCertVerifier for Looker {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut shown = others.iter().chain([leaf]);
        let Some(authority) = shown.find(|c| hex(c) == self.fingerprint) else {
            let why = "none of the certificates it shows has the fingerprint this node was given: \
                       it is another scheduler, or its certificate file lacks the authority";
            return Err(Error::General(why.to_owned()));
        };
        if let Ok(mut found) = self.found.lock() {
            *found = Some(pem::encode(&pem::Pem::new("CERTIFICATE", authority.to_vec())));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
