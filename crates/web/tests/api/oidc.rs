//! Sign-in with an OpenID Connect provider: what works, and everything that must be refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use dovetail_web::{ApiConfig, Oidc, OidcConfig, Role};
use serde_json::json;

use crate::provider::{Algorithm, CLIENT, Flaw, Provider, SECRET};
use crate::server::{Answer, Server};

struct Fixture {
    server: Server,
    provider: Provider,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

fn fixture(more: &str) -> Fixture {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (provider, issuer) = Provider::start(&runtime);
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let yaml = format!(
        "issuer: {issuer}\nclient_id: {CLIENT}\nclient_secret_file: {}\npublic_url: http://127.0.0.1:9\nlabel: Example\n{more}",
        secret.display()
    );
    let config: OidcConfig = serde_saphyr::from_str(&yaml).unwrap();
    let api = ApiConfig {
        oidc: Some(Arc::new(Oidc::open(config).unwrap())),
        ..ApiConfig::default()
    };
    Fixture {
        server: Server::start_with(1, api),
        provider,
        _runtime: runtime,
        _dir: dir,
    }
}

fn header<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let lines = answer.head.lines().filter_map(|l| l.split_once(": "));
    lines
        .filter(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
        .collect()
}

impl Fixture {
    /// Starts a sign-in at the provider, and returns the cookie and the path of the redirect back.
    fn start(&self, to: &str) -> (String, String) {
        let started = self
            .server
            .raw("GET", &format!("/api/v1/session/oidc?to={to}"), &[], b"");
        assert_eq!(started.status, 303, "{started:?}");
        let cookie = header(&started, "set-cookie")[0];
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"),
            "{cookie}"
        );
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let at = header(&started, "location")[0].strip_prefix("http://").unwrap();
        let (host, path) = at.split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let back = text
            .lines()
            .find_map(|l| l.strip_prefix("location: "))
            .unwrap_or_else(|| panic!("{text}"));
        let back = back.strip_prefix("http://127.0.0.1:9").unwrap().to_owned();
        (cookie, back)
    }

    fn callback(&self, cookie: &str, path: &str) -> Answer {
        self.server.raw("GET", path, &[format!("Cookie: {cookie}")], b"")
    }

    /// Signs in, and returns where it leads and the session, if there is one.
    fn sign_in(&self) -> (String, Option<String>) {
        let (cookie, path) = self.start("/jobs");
        outcome(&self.callback(&cookie, &path))
    }

    fn set(&self, flaw: Flaw) {
        self.provider.inner.lock().unwrap().flaw = flaw;
    }
}

fn outcome(answer: &Answer) -> (String, Option<String>) {
    assert_eq!(answer.status, 303, "{answer:?}");
    let cookies = header(answer, "set-cookie");
    let session = cookies.iter().find(|c| c.starts_with("dovetail_session="));
    let session = session.map(|c| {
        assert!(c.contains("HttpOnly") && c.contains("SameSite=Strict"), "{c}");
        c.split(';').next().unwrap().to_owned()
    });
    assert!(
        cookies.iter().any(|c| c.starts_with("dovetail_oidc=;")),
        "the pending sign-in is cleared: {cookies:?}"
    );
    (header(answer, "location")[0].to_owned(), session)
}

const GROUPS: &str = "roles: {lab: {staff: member, leads: operator}}\nadmin_groups: [root]\n";

#[test]
fn a_user_of_the_organisation_signs_in() {
    let fixture = fixture(GROUPS);
    let options = fixture
        .server
        .raw("GET", "/api/v1/session/options", &[], b"")
        .json();
    assert_eq!(
        options,
        json!({"password": true, "oidc": {"label": "Example", "url": "/api/v1/session/oidc"}})
    );
    let info = fixture.server.raw("GET", "/api/v1/info", &[], b"").json();
    assert_eq!(info["oidc_url"], "/api/v1/session/oidc");
    for algorithm in [Algorithm::Rs256, Algorithm::Es256] {
        fixture.provider.inner.lock().unwrap().algorithm = algorithm;
        let (to, session) = fixture.sign_in();
        assert_eq!(to, "/jobs");
        let cookie = format!("Cookie: {}", session.unwrap());
        let me = fixture
            .server
            .raw("GET", "/api/v1/me", std::slice::from_ref(&cookie), b"")
            .json();
        assert_eq!(
            (&me["name"], &me["email"], &me["admin"]),
            (&json!("ann"), &json!("ann@example.org"), &json!(false))
        );
        assert_eq!(me["roles"], json!({"lab": "member"}));
        let forged = fixture.server.raw("POST", "/api/v1/jobs", &[cookie], b"{}");
        assert_eq!(
            forged.status, 403,
            "an external session also needs the CSRF token"
        );
    }
    let account = fixture.server.users.account("ann").unwrap();
    assert!(!account.has_password());
    assert_eq!(account.roles["lab"], Role::Member);
    // Groups are applied at each sign-in.
    fixture.provider.inner.lock().unwrap().claims["groups"] = json!(["leads", "root"]);
    assert!(fixture.sign_in().1.is_some());
    let account = fixture.server.users.account("ann").unwrap();
    assert!(account.admin && account.roles["lab"] == Role::Operator);
    fixture.provider.inner.lock().unwrap().claims["groups"] = json!([]);
    assert!(fixture.sign_in().1.is_some());
    let account = fixture.server.users.account("ann").unwrap();
    assert!(!account.admin && account.roles.is_empty());
    let audit = fixture
        .server
        .get(&fixture.server.admin, "/audit?what=ann")
        .json();
    let what: Vec<&str> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        what.iter().filter(|w| **w == "user-changed").count(),
        2,
        "{audit}"
    );
    assert_eq!(what.last(), Some(&"user-added"));
}

#[test]
fn flawed_tokens_are_refused() {
    let fixture = fixture(GROUPS);
    for (flaw, word) in [
        (Flaw::Nonce, "untrusted"),
        (Flaw::Expired, "untrusted"),
        (Flaw::Audience, "untrusted"),
        (Flaw::Issuer, "untrusted"),
        (Flaw::NoSubject, "untrusted"),
        (Flaw::Signature, "untrusted"),
        (Flaw::Tampered, "untrusted"),
        (Flaw::AlgNone, "untrusted"),
        (Flaw::AlgHmac, "untrusted"),
        (Flaw::UnknownKey, "untrusted"),
    ] {
        fixture.set(flaw);
        let (to, session) = fixture.sign_in();
        assert_eq!(
            (to.as_str(), session),
            (format!("/?sign_in={word}").as_str(), None),
            "{flaw:?}"
        );
    }
    assert!(fixture.server.users.account("ann").is_none() && fixture.server.users.account("root").is_none());
    fixture.set(Flaw::Nothing);
    assert!(
        fixture.sign_in().1.is_some(),
        "the same provider is accepted without a flaw"
    );
}

#[test]
fn a_sign_in_must_be_finished_where_it_was_started() {
    let fixture = fixture("");
    let (cookie, path) = fixture.start("/");
    let (other, _) = fixture.start("/");
    let query = path.split_once('?').unwrap().1.to_owned();
    let forged = |query: &str| format!("/api/v1/session/oidc/callback?{query}");
    let with_state = |state: &str| {
        let kept: Vec<&str> = query.split('&').filter(|p| !p.starts_with("state=")).collect();
        forged(&format!("{}&state={state}", kept.join("&")))
    };
    for (cookie, path, word) in [
        ("x=y", path.clone(), "expired"),
        (other.as_str(), path.clone(), "expired"),
        ("dovetail_oidc=nonsense", path.clone(), "expired"),
        (cookie.as_str(), with_state("another"), "expired"),
        (cookie.as_str(), with_state(""), "expired"),
        (
            cookie.as_str(),
            forged(&query.replace("code=", "error=access_denied&was=")),
            "denied",
        ),
        (
            cookie.as_str(),
            forged(&query.replace("iss=http", "iss=https")),
            "untrusted",
        ),
        (
            cookie.as_str(),
            forged(query.split("&iss").next().unwrap()),
            "untrusted",
        ),
        (
            cookie.as_str(),
            forged(&query.replace("code=", "code=x")),
            "denied",
        ),
    ] {
        let (to, session) = outcome(&fixture.callback(cookie, &path));
        assert_eq!(
            (to.as_str(), session),
            (format!("/?sign_in={word}").as_str(), None),
            "{path}"
        );
    }
    assert!(outcome(&fixture.callback(&cookie, &path)).1.is_some());
    let (to, again) = outcome(&fixture.callback(&cookie, &path));
    assert_eq!(
        (to.as_str(), again),
        ("/?sign_in=denied", None),
        "a code is valid once"
    );
    for elsewhere in ["//evil.example", "https://evil.example", "/%5Cevil.example"] {
        let (cookie, path) = fixture.start(elsewhere);
        assert_eq!(outcome(&fixture.callback(&cookie, &path)).0, "/");
    }
}

#[test]
fn local_users_cannot_be_taken_over_and_groups_limit_access() {
    let fixture = fixture("allowed_groups: [staff]\n");
    fixture.provider.inner.lock().unwrap().claims["preferred_username"] = json!("admin");
    let (to, session) = fixture.sign_in();
    assert_eq!((to.as_str(), session), ("/?sign_in=name", None));
    assert!(fixture.server.users.account("admin").unwrap().subject.is_none());
    fixture.provider.inner.lock().unwrap().claims["preferred_username"] = json!("a b");
    assert_eq!(fixture.sign_in().0, "/?sign_in=name");
    fixture.provider.inner.lock().unwrap().claims["preferred_username"] = json!("ann@example.org");
    fixture.provider.inner.lock().unwrap().claims["groups"] = json!(["guests"]);
    assert_eq!(fixture.sign_in().0, "/?sign_in=forbidden");
    fixture.provider.inner.lock().unwrap().claims["groups"] = json!(["staff"]);
    assert!(fixture.sign_in().1.is_some());
    assert!(fixture.server.users.account("ann").is_some());
}

#[test]
fn new_keys_and_userinfo_claims_are_fetched() {
    let fixture = fixture(GROUPS);
    assert!(fixture.sign_in().1.is_some());
    fixture.provider.inner.lock().unwrap().rotated = true;
    assert!(fixture.sign_in().1.is_some(), "a new key is fetched");
    assert_eq!(fixture.provider.inner.lock().unwrap().key_requests, 2);
    fixture.set(Flaw::UnknownKey);
    assert!(fixture.sign_in().1.is_none());
    assert_eq!(
        fixture.provider.inner.lock().unwrap().key_requests,
        2,
        "but not repeatedly"
    );
    fixture.set(Flaw::Nothing);
    fixture.provider.inner.lock().unwrap().only_userinfo = vec!["groups", "preferred_username"];
    fixture.provider.inner.lock().unwrap().claims["groups"] = json!(["leads"]);
    assert!(fixture.sign_in().1.is_some());
    assert_eq!(
        fixture.server.users.account("ann").unwrap().roles["lab"],
        Role::Operator
    );
    fixture.set(Flaw::OtherUserinfo);
    assert_eq!(fixture.sign_in().0, "/?sign_in=untrusted");
}

#[test]
fn a_discovery_document_of_another_issuer_is_refused() {
    let fixture = fixture("");
    fixture.set(Flaw::Discovery);
    let started = fixture.server.raw("GET", "/api/v1/session/oidc", &[], b"");
    assert_eq!(
        (started.status, started.code().as_str()),
        (503, "unavailable"),
        "{started:?}"
    );
    let none = Server::start(0);
    for path in [
        "/api/v1/session/oidc",
        "/api/v1/session/oidc/callback?code=1&state=2",
    ] {
        assert_eq!(none.raw("GET", path, &[], b"").status, 404);
    }
    let options = none.raw("GET", "/api/v1/session/options", &[], b"").json();
    assert_eq!(options, json!({"password": true, "oidc": null}));
}
