//! Finds the certificate of the server's authority by its fingerprint.
//!
//! A TLS connection is opened on which no data is sent. The certificate with the fingerprint, among those that the server
//! presents, is the authority; all later connections are verified against it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::AgentError;

/// Fetches the certificate with this fingerprint from the server, in PEM.
pub(super) async fn fetch(server: &str, fingerprint: &str) -> Result<String, AgentError> {
    let verifier = Arc::new(FingerprintVerifier {
        fingerprint: fingerprint.to_ascii_lowercase(),
        provider: Arc::new(provider::default_provider()),
        found: Mutex::new(None),
    });
    let unreachable = |reason: String| AgentError::Unreachable(format!("cannot reach {server}: {reason}"));
    let mut config = ClientConfig::builder_with_provider(verifier.provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| unreachable(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|e| unreachable(e.to_string()))?;
    let handshake = async {
        let stream = TcpStream::connect(server).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let connected = tokio::time::timeout(Duration::from_secs(10), handshake).await;
    let connected = connected.map_err(|_| unreachable("timed out".to_owned()))?;
    let found = verifier.found.lock().map_or(None, |mut found| found.take());
    match (found, connected) {
        (Some(pem), _) => Ok(pem),
        (None, Err(e)) => Err(unreachable(e.to_string())),
        (None, Ok(_)) => Err(unreachable("the server presented no certificate".to_owned())),
    }
}

/// Returns whether a certificate in PEM has this fingerprint.
pub(super) fn matches(pem: &[u8], fingerprint: &str) -> bool {
    pem::parse(pem).is_ok_and(|found| hex(found.contents()) == fingerprint.to_ascii_lowercase())
}

fn hex(der: &[u8]) -> String {
    let bytes = digest(&SHA256, der);
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Accepts a server that presents a certificate with the fingerprint, and stores that certificate.
#[derive(Debug)]
struct FingerprintVerifier {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<String>>,
}

impl ServerCertVerifier for FingerprintVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut presented = others.iter().chain([leaf]);
        let Some(authority) = presented.find(|c| hex(c) == self.fingerprint) else {
            let reason = "no certificate of the server has the fingerprint of the join token: the token belongs to \
                          another server, or the certificate file of the server lacks its authority";
            return Err(Error::General(reason.to_owned()));
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
