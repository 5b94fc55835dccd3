//! Signing in elsewhere, against a provider in this process: what works, and everything that must not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use dovetail_web::{ApiConfig, Oidc, OidcConfig, Role};
use serde_json::json;

use crate::provider::{CLIENT, Flaw, Provider, SECRET, Signs};
use crate::server::{Answer, Server};

struct World {
    server: Server,
    provider: Provider,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

fn world(more: &str) -> World {
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
    World {
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

impl World {
    /// Goes to the provider and comes back: the cookie, and the path and query of the way back.
    fn there(&self, to: &str) -> (String, String) {
        let begun = self
            .server
            .raw("GET", &format!("/api/v1/session/oidc?to={to}"), &[], b"");
        assert_eq!(begun.status, 303, "{begun:?}");
        let cookie = header(&begun, "set-cookie")[0];
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"),
            "{cookie}"
        );
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let at = header(&begun, "location")[0].strip_prefix("http://").unwrap();
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

    fn back(&self, cookie: &str, path: &str) -> Answer {
        self.server.raw("GET", path, &[format!("Cookie: {cookie}")], b"")
    }

    /// All of it: where it leads, and the session if there is one.
    fn sign_in(&self) -> (String, Option<String>) {
        let (cookie, path) = self.there("/jobs");
        outcome(&self.back(&cookie, &path))
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
        "what was sealed is let go: {cookies:?}"
    );
    (header(answer, "location")[0].to_owned(), session)
}

const GROUPS: &str = "roles: {lab: {staff: member, leads: operator}}\nadmin_groups: [root]\n";

#[test]
fn somebody_whom_the_organisation_knows_is_signed_in() {
    let world = world(GROUPS);
    let options = world
        .server
        .raw("GET", "/api/v1/session/options", &[], b"")
        .json();
    assert_eq!(
        options,
        json!({"password": true, "oidc": {"label": "Example", "url": "/api/v1/session/oidc"}})
    );
    let info = world.server.raw("GET", "/api/v1/info", &[], b"").json();
    assert_eq!(info["oidc_url"], "/api/v1/session/oidc");
    for signs in [Signs::Rs256, Signs::Es256] {
        world.provider.inner.lock().unwrap().signs = signs;
        let (to, session) = world.sign_in();
        assert_eq!(to, "/jobs");
        let cookie = format!("Cookie: {}", session.unwrap());
        let me = world
            .server
            .raw("GET", "/api/v1/me", std::slice::from_ref(&cookie), b"")
            .json();
        assert_eq!(
            (&me["name"], &me["email"], &me["admin"]),
            (&json!("ann"), &json!("ann@example.org"), &json!(false))
        );
        assert_eq!(me["roles"], json!({"lab": "member"}));
        let forged = world.server.raw("POST", "/api/v1/jobs", &[cookie], b"{}");
        assert_eq!(
            forged.status, 403,
            "a session from elsewhere needs the token of the page too"
        );
    }
    let account = world.server.users.account("ann").unwrap();
    assert!(!account.has_password());
    assert_eq!(account.roles["lab"], Role::Member);
    // Groups are looked at each time.
    world.provider.inner.lock().unwrap().claims["groups"] = json!(["leads", "root"]);
    assert!(world.sign_in().1.is_some());
    let account = world.server.users.account("ann").unwrap();
    assert!(account.admin && account.roles["lab"] == Role::Operator);
    world.provider.inner.lock().unwrap().claims["groups"] = json!([]);
    assert!(world.sign_in().1.is_some());
    let account = world.server.users.account("ann").unwrap();
    assert!(!account.admin && account.roles.is_empty());
    let audit = world.server.get(&world.server.admin, "/audit?what=ann").json();
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
fn a_provider_that_does_anything_wrong_signs_in_nobody() {
    let world = world(GROUPS);
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
        world.set(flaw);
        let (to, session) = world.sign_in();
        assert_eq!(
            (to.as_str(), session),
            (format!("/?sign_in={word}").as_str(), None),
            "{flaw:?}"
        );
    }
    assert!(world.server.users.account("ann").is_none() && world.server.users.account("root").is_none());
    world.set(Flaw::Nothing);
    assert!(
        world.sign_in().1.is_some(),
        "and the same provider is believed when it does nothing wrong"
    );
}

#[test]
fn a_sign_in_that_began_elsewhere_ends_nowhere() {
    let world = world("");
    let (cookie, path) = world.there("/");
    let (other, _) = world.there("/");
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
        let (to, session) = outcome(&world.back(cookie, &path));
        assert_eq!(
            (to.as_str(), session),
            (format!("/?sign_in={word}").as_str(), None),
            "{path}"
        );
    }
    assert!(outcome(&world.back(&cookie, &path)).1.is_some());
    let (to, again) = outcome(&world.back(&cookie, &path));
    assert_eq!(
        (to.as_str(), again),
        ("/?sign_in=denied", None),
        "a code is good once"
    );
    for elsewhere in ["//evil.example", "https://evil.example", "/%5Cevil.example"] {
        let (cookie, path) = world.there(elsewhere);
        assert_eq!(outcome(&world.back(&cookie, &path)).0, "/");
    }
}

#[test]
fn names_of_local_users_are_not_taken_over_and_groups_keep_people_out() {
    let world = world("allowed_groups: [staff]\n");
    world.provider.inner.lock().unwrap().claims["preferred_username"] = json!("admin");
    let (to, session) = world.sign_in();
    assert_eq!((to.as_str(), session), ("/?sign_in=name", None));
    assert!(world.server.users.account("admin").unwrap().subject.is_none());
    world.provider.inner.lock().unwrap().claims["preferred_username"] = json!("a b");
    assert_eq!(world.sign_in().0, "/?sign_in=name");
    world.provider.inner.lock().unwrap().claims["preferred_username"] = json!("ann@example.org");
    world.provider.inner.lock().unwrap().claims["groups"] = json!(["guests"]);
    assert_eq!(world.sign_in().0, "/?sign_in=forbidden");
    world.provider.inner.lock().unwrap().claims["groups"] = json!(["staff"]);
    assert!(world.sign_in().1.is_some());
    assert!(world.server.users.account("ann").is_some());
}

#[test]
fn keys_that_are_new_and_claims_of_userinfo_are_found() {
    let world = world(GROUPS);
    assert!(world.sign_in().1.is_some());
    world.provider.inner.lock().unwrap().rotated = true;
    assert!(world.sign_in().1.is_some(), "a key that is new is asked for");
    assert_eq!(world.provider.inner.lock().unwrap().asked_keys, 2);
    world.set(Flaw::UnknownKey);
    assert!(world.sign_in().1.is_none());
    assert_eq!(
        world.provider.inner.lock().unwrap().asked_keys,
        2,
        "but not over and over"
    );
    world.set(Flaw::Nothing);
    world.provider.inner.lock().unwrap().only_userinfo = vec!["groups", "preferred_username"];
    world.provider.inner.lock().unwrap().claims["groups"] = json!(["leads"]);
    assert!(world.sign_in().1.is_some());
    assert_eq!(
        world.server.users.account("ann").unwrap().roles["lab"],
        Role::Operator
    );
    world.set(Flaw::OtherUserinfo);
    assert_eq!(world.sign_in().0, "/?sign_in=untrusted");
}

#[test]
fn a_provider_that_is_not_what_it_says_is_not_gone_to() {
    let world = world("");
    world.set(Flaw::Discovery);
    let begun = world.server.raw("GET", "/api/v1/session/oidc", &[], b"");
    assert_eq!(
        (begun.status, begun.code().as_str()),
        (503, "unavailable"),
        "{begun:?}"
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
