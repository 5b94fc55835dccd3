//! A join token is exchanged for a certificate, and connections use mutual TLS with one authority.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::agent::Agent;
use common::script;
use common::server::TestServer;
use dovetail_proto::v1::JoinRequest;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use tonic::Status;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// An authority that signs certificates for one token.
struct Authority {
    pem: String,
    fingerprint: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate.der());
        Self {
            pem: certificate.pem(),
            fingerprint: digest.as_ref().iter().map(|b| format!("{b:02x}")).collect(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns the TLS settings of a server, whose chain includes the authority.
    fn server(&self) -> ServerTlsConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        let chain = format!("{}{}", own.pem(), self.pem);
        ServerTlsConfig::new()
            .identity(Identity::from_pem(chain, key.serialize_pem()))
            .client_ca_root(Certificate::from_pem(&self.pem))
            .client_auth_optional(true)
    }

    fn join(&self, request: &JoinRequest) -> Result<String, Status> {
        if request.token != "right" {
            return Err(Status::unauthenticated("unknown join token"));
        }
        let signing = CertificateSigningRequestParams::from_pem(&request.signing_request).unwrap();
        Ok(signing.signed_by(&self.issuer).unwrap().pem())
    }
}

async fn secure() -> (TestServer, String) {
    let authority = Authority::new();
    let tls = authority.server();
    let fingerprint = authority.fingerprint.clone();
    let join = Arc::new(move |request: JoinRequest| authority.join(&request));
    (TestServer::start_with(Some(tls), Some(join)).await, fingerprint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_exchanged_for_a_certificate_once() {
    let (server, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "right", "fingerprint": fingerprint});
    let mut agent = Agent::start_with(&server, "n1", settings);
    server.hello("n1", 1).await;
    assert_eq!(server.received().certified, ["n1"]);
    assert_eq!(server.run("n1", script(1, "exit 3")).await.exit_code, 3);
    // The next agent in the folder needs no token.
    agent.kill();
    agent.set("token", serde_json::Value::Null);
    agent.restart();
    server.hello("n1", 2).await;
    assert_eq!(server.received().certified, ["n1", "n1"]);
    use std::os::unix::fs::PermissionsExt;
    let key = std::fs::metadata(agent.folder.join("node.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_rejected_and_not_printed() {
    let (server, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "wrong-token", "fingerprint": fingerprint});
    let agent = Agent::start_with(&server, "n1", settings);
    let output = tokio::task::spawn_blocking(|| agent.wait_for_exit())
        .await
        .unwrap();
    assert!(
        output.contains("rejected this node: unknown join token"),
        "{output}"
    );
    assert!(!output.contains("wrong-token"));
    let without = serde_json::json!({"fingerprint": fingerprint});
    let agent = Agent::start_with(&server, "n2", without);
    let output = tokio::task::spawn_blocking(|| agent.wait_for_exit())
        .await
        .unwrap();
    assert!(output.contains("join_token: missing"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_authority_receives_neither_token_nor_hello() {
    let (real, _) = secure().await;
    let other = Authority::new();
    let settings = serde_json::json!({"token": "right", "fingerprint": other.fingerprint});
    let mut agent = Agent::start_with(&real, "n1", settings);
    let (good, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "right", "fingerprint": fingerprint});
    let _second = Agent::start_with(&good, "n2", settings);
    // When the second agent is connected, the first has tried as well.
    good.hello("n2", 1).await;
    assert!(real.received().hellos.is_empty());
    agent.kill();
    assert!(!agent.folder.join("node.pem").exists());
}
