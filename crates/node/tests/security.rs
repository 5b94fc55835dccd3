//! Who may talk to whom: a token for a certificate, mutual TLS, and one authority only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::agent::Agent;
use common::scheduler::Scheduler;
use common::script;
use dovetail_proto::v1::JoinRequest;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use tonic::Status;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// An authority that signs nodes for one token.
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

    /// What a server shows: its own certificate and the authority's.
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
            return Err(Status::unauthenticated(
                "the token is not known, or has been used",
            ));
        }
        let signing = CertificateSigningRequestParams::from_pem(&request.signing_request).unwrap();
        Ok(signing.signed_by(&self.issuer).unwrap().pem())
    }
}

async fn secure() -> (Scheduler, String) {
    let authority = Authority::new();
    let tls = authority.server();
    let fingerprint = authority.fingerprint.clone();
    let joins = Arc::new(move |request: JoinRequest| authority.join(&request));
    (Scheduler::start_with(Some(tls), Some(joins)).await, fingerprint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_exchanged_for_a_certificate_once() {
    let (scheduler, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "right", "fingerprint": fingerprint});
    let mut agent = Agent::start_with(&scheduler, "n1", settings);
    scheduler.hello("n1", 1).await;
    assert_eq!(scheduler.heard().certified, ["n1"]);
    assert_eq!(scheduler.run("n1", script(1, "exit 3")).await.exit_code, 3);
    // The next agent needs no token.
    agent.kill();
    agent.change("token", serde_json::Value::Null);
    agent.start_again();
    scheduler.hello("n1", 2).await;
    assert_eq!(scheduler.heard().certified, ["n1", "n1"]);
    use std::os::unix::fs::PermissionsExt;
    let key = std::fs::metadata(agent.folder.join("node.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_refused_and_not_shown() {
    let (scheduler, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "wrong-token", "fingerprint": fingerprint});
    let agent = Agent::start_with(&scheduler, "n1", settings);
    let said = tokio::task::spawn_blocking(|| agent.last_words()).await.unwrap();
    assert!(
        said.contains("refused this node: the token is not known"),
        "{said}"
    );
    assert!(!said.contains("wrong-token"));
    let without = serde_json::json!({"fingerprint": fingerprint});
    let agent = Agent::start_with(&scheduler, "n2", without);
    let said = tokio::task::spawn_blocking(|| agent.last_words()).await.unwrap();
    assert!(said.contains("a join token of the scheduler is needed"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_scheduler_gets_neither_a_token_nor_a_word() {
    let (real, _) = secure().await;
    let other = Authority::new();
    let settings = serde_json::json!({"token": "right", "fingerprint": other.fingerprint});
    let mut agent = Agent::start_with(&real, "n1", settings);
    let (good, fingerprint) = secure().await;
    let settings = serde_json::json!({"token": "right", "fingerprint": fingerprint});
    let _second = Agent::start_with(&good, "n2", settings);
    // By the time the second one is through, the first has been tried as well.
    good.hello("n2", 1).await;
    assert!(real.heard().hellos.is_empty());
    agent.kill();
    assert!(!agent.folder.join("node.pem").exists());
}
