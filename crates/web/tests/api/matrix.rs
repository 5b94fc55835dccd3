//! Authorization of every route, for each kind of caller: unauthenticated, without a role, viewer, member, operator and
//! administrator of the virtual cluster, owner of a job, and administrator. A route that is missing in the table fails the test.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dovetail_web::{ApiConfig, Notifier, NotifyConfig, NotifyTiming, Role};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// Callers that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// All callers, without authentication.
    Public,
    /// All users.
    Users,
    /// Users who may run jobs in the virtual cluster.
    Members,
    /// Users who may see the job.
    SeeJob,
    /// Owner of the job, operators of its virtual cluster, and administrators.
    ControlJob,
    /// Administrators of the virtual cluster.
    VcAdmins,
    /// Administrators of the cluster.
    Admins,
}

/// Returns each route, with its callers and a body.
fn table() -> Vec<(&'static str, &'static str, Allowed, Value)> {
    use Allowed::{Admins, ControlJob, Members, Public, SeeJob, Users, VcAdmins};
    let no = Value::Null;
    vec![
        ("GET", "/info", Public, no.clone()),
        ("GET", "/openapi.json", Public, no.clone()),
        ("POST", "/session", Public, json!({})),
        ("DELETE", "/session", Users, no.clone()),
        ("GET", "/session/options", Public, no.clone()),
        ("GET", "/session/oidc", Public, no.clone()),
        ("GET", "/session/oidc/callback", Public, no.clone()),
        ("GET", "/me", Users, no.clone()),
        ("PUT", "/me/password", Users, json!({"new": "short"})),
        ("GET", "/me/notify", Users, no.clone()),
        ("PUT", "/me/notify", Users, json!({})),
        ("POST", "/me/notify/test", Users, json!({})),
        ("GET", "/me/tokens", Users, no.clone()),
        ("POST", "/me/tokens", Users, json!({})),
        ("DELETE", "/me/tokens/{id}", Users, no.clone()),
        ("GET", "/jobs", Users, no.clone()),
        (
            "POST",
            "/jobs",
            Members,
            json!({"job": {"command": ["true"], "tenant": "lab"}, "dry_run": true}),
        ),
        ("POST", "/jobs/check", Users, json!("command: x")),
        (
            "POST",
            "/jobs/actions",
            Users,
            json!({"action": "hold", "ids": [2]}),
        ),
        ("GET", "/jobs/{id}", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/explain", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/gpus", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/progress", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/logs", ControlJob, no.clone()),
        ("GET", "/jobs/{id}/logs/search", ControlJob, no.clone()),
        ("POST", "/jobs/{id}/priority", ControlJob, json!({"priority": 1})),
        ("POST", "/jobs/{id}/{action}", ControlJob, no.clone()),
        ("GET", "/templates", Users, no.clone()),
        ("POST", "/templates/{name}/render", Users, json!({})),
        ("GET", "/queue", Users, no.clone()),
        ("GET", "/usage", Users, no.clone()),
        ("GET", "/utilization", Users, no.clone()),
        ("GET", "/events", Users, no.clone()),
        ("GET", "/cluster", Users, no.clone()),
        ("GET", "/policies", Users, no.clone()),
        ("GET", "/profiles", Users, no.clone()),
        ("GET", "/profiles/{model}", Users, no.clone()),
        ("DELETE", "/profiles/{model}", Admins, no.clone()),
        ("GET", "/nodes", Users, no.clone()),
        ("POST", "/nodes/{name}/{action}", Admins, json!({})),
        ("GET", "/vcs", Users, no.clone()),
        ("PUT", "/vcs", Admins, json!({"mode": "open"})),
        ("PUT", "/vcs/{name}", VcAdmins, json!({"user_cap_gpus": 1})),
        ("DELETE", "/vcs/{name}", Admins, no.clone()),
        ("POST", "/operate", Admins, json!({"operate": "resume"})),
        ("GET", "/users", Admins, no.clone()),
        ("POST", "/users", Admins, json!({"name": "a b"})),
        ("PATCH", "/users/{name}", Admins, json!({"admin": true})),
        ("DELETE", "/users/{name}", Admins, no.clone()),
        ("GET", "/audit", Admins, no),
    ]
}

struct Fixture {
    server: Server,
    /// Kind of caller, token, and role in the virtual cluster.
    callers: Vec<(&'static str, String, Option<Role>)>,
}

/// Creates job 1, and the private job 2, of one owner in a virtual cluster that only users with a role can see.
fn fixture() -> Fixture {
    let notifier = Notifier::open(&NotifyConfig::default(), NotifyTiming::default()).unwrap();
    let api = ApiConfig {
        notifier: Some(notifier),
        ..ApiConfig::default()
    };
    let server = Server::start_with(1, api);
    let closed = json!({"mode": "open", "vcs": {"default": {}, "lab": {"everyone": "none"}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &closed).status, 200);
    let mut callers = vec![
        ("unauthenticated", String::new(), None),
        ("stranger", server.user("eve", &[]), None),
    ];
    for (caller, name, role) in [
        ("viewer", "vic", Role::Viewer),
        ("member", "mia", Role::Member),
        ("operator", "oli", Role::Operator),
        ("administrator", "ada", Role::Administrator),
        ("owner", "ann", Role::Member),
    ] {
        callers.push((caller, server.user(name, &[("lab", role)]), Some(role)));
    }
    callers.push(("root", server.admin.clone(), Some(Role::Administrator)));
    let owner = &callers[6].1;
    for private in [false, true] {
        let job = json!({
            "name": if private { "secret-name" } else { "seen" }, "tenant": "lab", "private": private,
            "env": {"KEY": "hush-hush"}, "gpus": 4
        });
        server.submit(owner, job);
    }
    Fixture { server, callers }
}

fn path_for(path: &str, job: u64) -> String {
    // Changes of virtual clusters are dry runs, so that later requests find the same ones.
    if path == "/vcs" {
        return "/vcs?dry_run=true".to_owned();
    }
    path.replace(
        "{action}",
        if path.starts_with("/nodes") {
            "resume"
        } else {
            "release"
        },
    )
    .replace(
        "{id}",
        &if path.starts_with("/jobs") {
            job.to_string()
        } else {
            "none".to_owned()
        },
    )
    .replace("/templates/{name}", "/templates/python")
    .replace("/nodes/{name}", "/nodes/node-0")
    .replace("/vcs/{name}", "/vcs/lab?dry_run=true")
    .replace("{name}", "unknown-name")
}

fn request(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let mut head = vec!["Content-Type: application/json".to_owned()];
    if let Value::String(_) = body {
        head = vec!["Content-Type: text/yaml".to_owned()];
    }
    if !token.is_empty() {
        head.push(format!("Authorization: Bearer {token}"));
    }
    let bytes = match body {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    };
    server.raw(method, &format!("/api/v1{path}"), &head, &bytes)
}

/// Returns the expected status: 401, 403, 404, or 0 for a request that is allowed.
fn expected(may: Allowed, caller: &str, role: Option<Role>) -> u16 {
    let is_root = caller == "root";
    match may {
        Allowed::Public => 0,
        _ if caller == "unauthenticated" => 401,
        Allowed::Users => 0,
        Allowed::Members if role >= Some(Role::Member) => 0,
        Allowed::SeeJob if role.is_some() => 0,
        Allowed::ControlJob if caller == "owner" || role >= Some(Role::Operator) => 0,
        Allowed::VcAdmins if role >= Some(Role::Administrator) => 0,
        Allowed::Admins if is_root => 0,
        Allowed::SeeJob | Allowed::ControlJob if role.is_none() => 404,
        Allowed::Members | Allowed::SeeJob | Allowed::ControlJob | Allowed::VcAdmins | Allowed::Admins => 403,
    }
}

#[test]
fn every_route_is_in_the_table() {
    let document = dovetail_web::openapi();
    let mut routes = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.insert((method.to_uppercase(), path.clone()));
        }
    }
    let listed: BTreeSet<_> = table()
        .iter()
        .map(|(m, p, _, _)| ((*m).to_owned(), (*p).to_owned()))
        .collect();
    assert_eq!(routes, listed, "every route must have an entry with its callers");
    for (method, path, may, _) in table() {
        let is_public = document["paths"][path][method.to_lowercase()]["security"] == json!([]);
        assert_eq!(is_public, may == Allowed::Public, "{method} {path}");
    }
}

#[test]
fn callers_are_limited_to_their_role() {
    let Fixture { server, callers } = fixture();
    for (method, path, may, body) in table() {
        for (caller, token, role) in &callers {
            // Signing out would end the sessions of later requests.
            if path == "/session" && *caller != "unauthenticated" {
                continue;
            }
            let answer = request(&server, token, method, &path_for(path, 1), &body);
            let context = format!("{caller} {method} {path}: {answer:?}");
            assert!(
                answer.status > 0 && answer.status < 500 || path.contains("logs/search"),
                "{context}"
            );
            match expected(may, caller, *role) {
                0 => {
                    let is_wrong_password = path == "/session";
                    assert!(
                        ![401, 403].contains(&answer.status) || is_wrong_password,
                        "{context}"
                    );
                    let is_about_job = matches!(may, Allowed::SeeJob | Allowed::ControlJob);
                    assert!(!is_about_job || answer.status != 404, "{context}");
                }
                status => {
                    assert_eq!(answer.status, status, "{context}");
                    assert!(answer.head.contains("application/problem+json"), "{context}");
                    assert!(!answer.text.contains("seen"), "{context}");
                }
            }
            let may_know = ["owner", "root"].contains(caller);
            assert!(may_know || !answer.text.contains("secret-name"), "{context}");
            assert!(
                may_know
                    || ["operator", "administrator"].contains(caller)
                    || !answer.text.contains("hush-hush"),
                "{context}"
            );
        }
    }
}

#[test]
fn private_jobs_are_hidden() {
    let Fixture { server, callers } = fixture();
    let before = server.get(&server.admin, "/jobs/2").json();
    for (method, path, may, body) in table() {
        if !path.starts_with("/jobs/{id}") {
            continue;
        }
        assert!(matches!(may, Allowed::SeeJob | Allowed::ControlJob));
        for (caller, token, _) in &callers {
            if ["owner", "root"].contains(caller) {
                continue;
            }
            let answer = request(&server, token, method, &path_for(path, 2), &body);
            let status = if *caller == "unauthenticated" { 401 } else { 404 };
            assert_eq!(answer.status, status, "{caller} {method} {path}: {answer:?}");
            assert!(
                !answer.text.contains("secret-name") && !answer.text.contains("hush-hush"),
                "{answer:?}"
            );
        }
    }
    for (caller, token, _) in callers
        .iter()
        .filter(|(caller, _, _)| !["unauthenticated", "owner", "root"].contains(caller))
    {
        let done = server
            .call(
                token,
                "POST",
                "/jobs/actions",
                &json!({"action": "stop", "ids": [2]}),
            )
            .json();
        assert_eq!(done[0]["ok"], false, "{caller}");
        for path in [
            "/jobs?limit=1000",
            "/jobs?q=secret",
            "/queue",
            "/events?since=0",
            "/events?since=0&job=2",
            "/nodes",
        ] {
            let answer = server.get(token, path);
            assert!(
                !answer.text.contains("secret-name") && !answer.text.contains("\"job\":2"),
                "{caller} {path}: {answer:?}"
            );
        }
        // The same through the API of OpenPAI.
        for (method, path) in [
            ("GET", "/jobs"),
            ("GET", "/jobs/ann~secret-name_2"),
            ("GET", "/jobs/ann~secret-name_2/config"),
            ("PUT", "/jobs/ann~secret-name_2/executionType"),
        ] {
            let head = [
                format!("Authorization: Bearer {token}"),
                "Content-Type: application/json".to_owned(),
            ];
            let answer = server.raw(
                method,
                &format!("/rest-server/api/v2{path}"),
                &head,
                b"{\"value\": \"STOP\"}",
            );
            let hidden = if path == "/jobs" {
                answer.status == 200
            } else {
                [403, 404].contains(&answer.status)
            };
            assert!(hidden, "{caller} {method} {path}: {answer:?}");
            assert!(
                !answer.text.contains("hush-hush")
                    && (path != "/jobs" || !answer.text.contains("secret-name")),
                "{answer:?}"
            );
        }
    }
    let after = server.get(&server.admin, "/jobs/2").json();
    assert_eq!(before["state"], after["state"], "the job is unchanged");
    let owner = &callers[6].1;
    assert_eq!(server.get(owner, "/jobs/2").json()["name"], "secret-name");
}

#[test]
fn changes_without_the_csrf_token_are_refused() {
    let Fixture { server, .. } = fixture();
    server
        .users
        .set_password("admin", Some("correct horse"), false)
        .unwrap();
    let sign_in = json!({"name": "admin", "password": "correct horse"}).to_string();
    let head = ["Content-Type: application/json".to_owned()];
    let answer = server.raw("POST", "/api/v1/session", &head, sign_in.as_bytes());
    let cookie = answer
        .head
        .lines()
        .find_map(|l| l.strip_prefix("set-cookie: "))
        .unwrap();
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    for (method, path, may, body) in table() {
        if method == "GET" || may == Allowed::Public {
            continue;
        }
        for token in [None, Some("X-Csrf-Token: 0123"), Some("X-Csrf-Token: ")] {
            let mut head = vec![cookie.clone(), "Content-Type: application/json".to_owned()];
            head.extend(token.map(str::to_owned));
            let path = format!("/api/v1{}", path_for(path, 1));
            let answer = server.raw(method, &path, &head, body.to_string().as_bytes());
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "forbidden"),
                "{method} {path}: {answer:?}"
            );
            assert!(answer.text.contains("X-Csrf-Token"), "{answer:?}");
        }
    }
    let me = server.raw("GET", "/api/v1/me", &[cookie], b"");
    assert_eq!(me.status, 200, "the session is still valid");
}

#[test]
fn bodies_that_are_too_large_are_refused() {
    let Fixture { server, .. } = fixture();
    let document = dovetail_web::openapi();
    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(3 << 20));
    let mut checked = 0;
    for (method, path, _, _) in table() {
        if document["paths"][path][method.to_lowercase()]["requestBody"].is_null() {
            continue;
        }
        let head = [
            format!("Authorization: Bearer {}", server.admin),
            "Content-Type: application/json".to_owned(),
        ];
        let answer = server.raw(
            method,
            &format!("/api/v1{}", path_for(path, 1)),
            &head,
            large.as_bytes(),
        );
        // /jobs/check reads any text as a job file.
        assert!(
            [413, 422].contains(&answer.status),
            "{method} {path}: {}",
            answer.status
        );
        checked += 1;
    }
    assert!(checked > 12, "{checked}");
}

#[test]
fn user_input_is_returned_as_json_only() {
    let Fixture { server, callers } = fixture();
    let nasty = "<script>alert(1)</script>\"'&\u{2028}";
    let owner = &callers[6].1;
    let id = server.submit(
        owner,
        json!({"name": nasty, "tenant": "lab", "labels": {nasty: nasty}}),
    );
    for path in [
        format!("/jobs/{id}"),
        "/jobs".to_owned(),
        "/queue".to_owned(),
        format!("/jobs/{id}/explain"),
    ] {
        let answer = server.get(owner, &path);
        assert!(
            answer.head.contains("content-type: application/json"),
            "{answer:?}"
        );
        assert!(!answer.head.contains("text/html"), "{answer:?}");
        if path.starts_with("/jobs") && !path.ends_with("explain") {
            let job = if path == "/jobs" {
                answer.json()["jobs"][0].clone()
            } else {
                answer.json()
            };
            assert_eq!(job["name"], nasty);
        }
    }
    for path in ["/jobs?sort=<script>", "/templates/<script>/render", "/<script>"] {
        let answer = server.get(owner, &path.replace('<', "%3C").replace('>', "%3E"));
        assert!(
            answer.status >= 400 && answer.head.contains("application/problem+json"),
            "{answer:?}"
        );
    }
}

#[test]
fn names_cannot_leave_their_directory() {
    let Fixture { server, callers } = fixture();
    let owner = &callers[6].1;
    for name in [
        "..%2F..%2Fetc%2Fpasswd",
        "%2Fetc%2Fpasswd",
        "..",
        "python%00",
        "python.yaml",
        "..%5C..%5Cx",
    ] {
        let answer = server.call(owner, "POST", &format!("/templates/{name}/render"), &json!({}));
        assert!([400, 404, 405].contains(&answer.status), "{name}: {answer:?}");
        assert!(!answer.text.contains("root:"), "{answer:?}");
    }
    for query in [
        "node=..%2F..%2Fetc%2Fpasswd",
        "node=%2Fetc%2Fpasswd",
        "attempt=..%2F1",
        "attempt=99",
        "launch=99",
        "offset=x",
    ] {
        for path in ["/jobs/1/logs", "/jobs/1/logs/search"] {
            let answer = server.get(owner, &format!("{path}?q=x&{query}"));
            assert!([404, 422].contains(&answer.status), "{path} {query}: {answer:?}");
        }
    }
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/app.js/../../Cargo.toml",
    ] {
        let answer = server.raw("GET", path, &[], b"");
        assert!(
            !answer.text.contains("root:") && !answer.text.contains("[package]"),
            "{answer:?}"
        );
    }
}

#[test]
fn slow_requests_are_aborted() {
    let Fixture { server, callers } = fixture();
    let owner = &callers[6].1;
    let started = Instant::now();
    let timeout = Some(Duration::from_secs(60));
    let slow = |start: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(timeout).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        stream
    };
    let head = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {owner}\r\nContent-Type: application/json\r\n"
    );
    let mut in_head = slow(&head);
    let mut in_body = slow(&format!("{head}Content-Length: 1000\r\n\r\n{{"));
    let mut unauthenticated = slow("POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    // The body of an unauthenticated request is not read.
    let mut first = [0; 12];
    unauthenticated.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    assert!(started.elapsed() < Duration::from_secs(5));
    // Other requests are served at the same time.
    assert_eq!(server.get(owner, "/jobs").status, 200);
    let mut text = String::new();
    let _ = in_body.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 4"), "{text}");
    let mut rest = Vec::new();
    let _ = in_head.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"));
    let took = started.elapsed();
    assert!(
        (Duration::from_secs(8)..Duration::from_secs(50)).contains(&took),
        "{took:?}"
    );
}
