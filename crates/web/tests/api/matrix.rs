//! Every path of the API, asked by everybody: nobody, a stranger, a viewer, a member, an operator and an administrator of the
//! virtual cluster, the owner of a job, and an administrator of all. A path that is not in the table fails the test.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dovetail_web::{ApiConfig, Notifier, NotifyConfig, Pace, Role};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    /// Everybody, also without saying who asks.
    All,
    /// Whoever is known.
    Known,
    /// Whoever may run jobs in the virtual cluster.
    Members,
    /// Whoever may see the job.
    SeeJob,
    /// Its owner, operators of its virtual cluster, and administrators.
    TouchJob,
    /// Administrators of the virtual cluster.
    Clusters,
    /// Administrators of all.
    Admins,
}

/// Each path: who may, and what is sent.
fn table() -> Vec<(&'static str, &'static str, May, Value)> {
    use May::{Admins, All, Clusters, Known, Members, SeeJob, TouchJob};
    let no = Value::Null;
    vec![
        ("GET", "/info", All, no.clone()),
        ("GET", "/openapi.json", All, no.clone()),
        ("POST", "/session", All, json!({})),
        ("DELETE", "/session", Known, no.clone()),
        ("GET", "/session/options", All, no.clone()),
        ("GET", "/session/oidc", All, no.clone()),
        ("GET", "/session/oidc/callback", All, no.clone()),
        ("GET", "/me", Known, no.clone()),
        ("PUT", "/me/password", Known, json!({"new": "short"})),
        ("GET", "/me/notify", Known, no.clone()),
        ("PUT", "/me/notify", Known, json!({})),
        ("POST", "/me/notify/test", Known, json!({})),
        ("GET", "/me/tokens", Known, no.clone()),
        ("POST", "/me/tokens", Known, json!({})),
        ("DELETE", "/me/tokens/{id}", Known, no.clone()),
        ("GET", "/jobs", Known, no.clone()),
        (
            "POST",
            "/jobs",
            Members,
            json!({"job": {"command": ["true"], "tenant": "lab"}, "dry_run": true}),
        ),
        ("POST", "/jobs/check", Known, json!("command: x")),
        (
            "POST",
            "/jobs/actions",
            Known,
            json!({"action": "hold", "ids": [2]}),
        ),
        ("GET", "/jobs/{id}", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/explain", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/gpus", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/progress", SeeJob, no.clone()),
        ("GET", "/jobs/{id}/logs", TouchJob, no.clone()),
        ("GET", "/jobs/{id}/logs/search", TouchJob, no.clone()),
        ("POST", "/jobs/{id}/priority", TouchJob, json!({"priority": 1})),
        ("POST", "/jobs/{id}/{action}", TouchJob, no.clone()),
        ("GET", "/templates", Known, no.clone()),
        ("POST", "/templates/{name}/render", Known, json!({})),
        ("GET", "/queue", Known, no.clone()),
        ("GET", "/usage", Known, no.clone()),
        ("GET", "/events", Known, no.clone()),
        ("GET", "/cluster", Known, no.clone()),
        ("GET", "/policies", Known, no.clone()),
        ("GET", "/nodes", Known, no.clone()),
        ("POST", "/nodes/{name}/{action}", Admins, json!({})),
        ("GET", "/vcs", Known, no.clone()),
        ("PUT", "/vcs", Admins, json!({"mode": "open"})),
        ("PUT", "/vcs/{name}", Clusters, json!({"user_cap_gpus": 1})),
        ("DELETE", "/vcs/{name}", Admins, no.clone()),
        ("POST", "/operate", Admins, json!({"operate": "resume"})),
        ("GET", "/users", Admins, no.clone()),
        ("POST", "/users", Admins, json!({"name": "a b"})),
        ("PATCH", "/users/{name}", Admins, json!({"admin": true})),
        ("DELETE", "/users/{name}", Admins, no.clone()),
        ("GET", "/audit", Admins, no),
    ]
}

struct World {
    server: Server,
    /// Who, with which token, and which role in the virtual cluster.
    people: Vec<(&'static str, String, Option<Role>)>,
}

/// Job 1 is the owner's, job 2 is the owner's and private; both are in a virtual cluster that is closed to strangers.
fn world() -> World {
    let notifier = Notifier::open(&NotifyConfig::default(), Pace::default()).unwrap();
    let api = ApiConfig {
        notifier: Some(notifier),
        ..ApiConfig::default()
    };
    let server = Server::start_with(1, api);
    let closed = json!({"mode": "open", "vcs": {"default": {}, "lab": {"everyone": "none"}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &closed).status, 200);
    let mut people = vec![
        ("nobody", String::new(), None),
        ("stranger", server.user("eve", &[]), None),
    ];
    for (who, name, role) in [
        ("viewer", "vic", Role::Viewer),
        ("member", "mia", Role::Member),
        ("operator", "oli", Role::Operator),
        ("administrator", "ada", Role::Administrator),
        ("owner", "ann", Role::Member),
    ] {
        people.push((who, server.user(name, &[("lab", role)]), Some(role)));
    }
    people.push(("root", server.admin.clone(), Some(Role::Administrator)));
    let owner = &people[6].1;
    for private in [false, true] {
        let job = json!({
            "name": if private { "secret-name" } else { "seen" }, "tenant": "lab", "private": private,
            "env": {"KEY": "hush-hush"}, "gpus": 4
        });
        server.submit(owner, job);
    }
    World { server, people }
}

fn filled(path: &str, job: u64) -> String {
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
    .replace("{name}", "nobody-of-that-name")
}

fn ask(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Answer {
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

/// What somebody gets: 401, 403, 404, or 0 for being let through.
fn expected(may: May, who: &str, role: Option<Role>) -> u16 {
    let is_root = who == "root";
    match may {
        May::All => 0,
        _ if who == "nobody" => 401,
        May::Known => 0,
        May::Members if role >= Some(Role::Member) => 0,
        May::SeeJob if role.is_some() => 0,
        May::TouchJob if who == "owner" || role >= Some(Role::Operator) => 0,
        May::Clusters if role >= Some(Role::Administrator) => 0,
        May::Admins if is_root => 0,
        May::SeeJob | May::TouchJob if role.is_none() => 404,
        May::Members | May::SeeJob | May::TouchJob | May::Clusters | May::Admins => 403,
    }
}

#[test]
fn every_path_is_in_the_table() {
    let document = dovetail_web::openapi();
    let mut there = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            there.insert((method.to_uppercase(), path.clone()));
        }
    }
    let listed: BTreeSet<_> = table()
        .iter()
        .map(|(m, p, _, _)| ((*m).to_owned(), (*p).to_owned()))
        .collect();
    assert_eq!(
        there, listed,
        "a path without an entry says nothing of who may ask for it"
    );
    for (method, path, may, _) in table() {
        let open = document["paths"][path][method.to_lowercase()]["security"] == json!([]);
        assert_eq!(open, may == May::All, "{method} {path}");
    }
}

#[test]
fn everybody_gets_what_its_role_allows_and_no_more() {
    let World { server, people } = world();
    for (method, path, may, body) in table() {
        for (who, token, role) in &people {
            // Signing out would end what the others ask with.
            if path == "/session" && *who != "nobody" {
                continue;
            }
            let said = ask(&server, token, method, &filled(path, 1), &body);
            let is = format!("{who} {method} {path}: {said:?}");
            assert!(
                said.status > 0 && said.status < 500 || path.contains("logs/search"),
                "{is}"
            );
            match expected(may, who, *role) {
                0 => {
                    let wrong_words = path == "/session";
                    assert!(![401, 403].contains(&said.status) || wrong_words, "{is}");
                    let about_a_job = matches!(may, May::SeeJob | May::TouchJob);
                    assert!(!about_a_job || said.status != 404, "{is}");
                }
                status => {
                    assert_eq!(said.status, status, "{is}");
                    assert!(said.head.contains("application/problem+json"), "{is}");
                    assert!(!said.text.contains("seen"), "{is}");
                }
            }
            let knows = ["owner", "root"].contains(who);
            assert!(knows || !said.text.contains("secret-name"), "{is}");
            assert!(
                knows || ["operator", "administrator"].contains(who) || !said.text.contains("hush-hush"),
                "{is}"
            );
        }
    }
}

#[test]
fn a_private_job_is_nobodys_business() {
    let World { server, people } = world();
    let before = server.get(&server.admin, "/jobs/2").json();
    for (method, path, may, body) in table() {
        if !path.starts_with("/jobs/{id}") {
            continue;
        }
        assert!(matches!(may, May::SeeJob | May::TouchJob));
        for (who, token, _) in &people {
            if ["owner", "root"].contains(who) {
                continue;
            }
            let said = ask(&server, token, method, &filled(path, 2), &body);
            let status = if *who == "nobody" { 401 } else { 404 };
            assert_eq!(said.status, status, "{who} {method} {path}: {said:?}");
            assert!(
                !said.text.contains("secret-name") && !said.text.contains("hush-hush"),
                "{said:?}"
            );
        }
    }
    for (who, token, _) in people
        .iter()
        .filter(|(who, _, _)| !["nobody", "owner", "root"].contains(who))
    {
        let done = server
            .call(
                token,
                "POST",
                "/jobs/actions",
                &json!({"action": "stop", "ids": [2]}),
            )
            .json();
        assert_eq!(done[0]["ok"], false, "{who}");
        for path in [
            "/jobs?limit=1000",
            "/jobs?q=secret",
            "/queue",
            "/events?since=0",
            "/events?since=0&job=2",
            "/nodes",
        ] {
            let said = server.get(token, path);
            assert!(
                !said.text.contains("secret-name") && !said.text.contains("\"job\":2"),
                "{who} {path}: {said:?}"
            );
        }
        // The same over the other door.
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
            let said = server.raw(
                method,
                &format!("/rest-server/api/v2{path}"),
                &head,
                b"{\"value\": \"STOP\"}",
            );
            let hidden = if path == "/jobs" {
                said.status == 200
            } else {
                [403, 404].contains(&said.status)
            };
            assert!(hidden, "{who} {method} {path}: {said:?}");
            assert!(
                !said.text.contains("hush-hush") && (path != "/jobs" || !said.text.contains("secret-name")),
                "{said:?}"
            );
        }
    }
    let after = server.get(&server.admin, "/jobs/2").json();
    assert_eq!(before["state"], after["state"], "nobody did anything to it");
    let owner = &people[6].1;
    assert_eq!(server.get(owner, "/jobs/2").json()["name"], "secret-name");
}

#[test]
fn a_forged_request_changes_nothing() {
    let World { server, .. } = world();
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
        if method == "GET" || may == May::All {
            continue;
        }
        for token in [None, Some("X-Csrf-Token: 0123"), Some("X-Csrf-Token: ")] {
            let mut head = vec![cookie.clone(), "Content-Type: application/json".to_owned()];
            head.extend(token.map(str::to_owned));
            let path = format!("/api/v1{}", filled(path, 1));
            let said = server.raw(method, &path, &head, body.to_string().as_bytes());
            assert_eq!(
                (said.status, said.code().as_str()),
                (403, "forbidden"),
                "{method} {path}: {said:?}"
            );
            assert!(said.text.contains("X-Csrf-Token"), "{said:?}");
        }
    }
    let me = server.raw("GET", "/api/v1/me", &[cookie], b"");
    assert_eq!(me.status, 200, "the session is still good");
}

#[test]
fn what_is_too_large_is_refused_everywhere() {
    let World { server, .. } = world();
    let document = dovetail_web::openapi();
    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(3 << 20));
    let mut asked = 0;
    for (method, path, _, _) in table() {
        if document["paths"][path][method.to_lowercase()]["requestBody"].is_null() {
            continue;
        }
        let head = [
            format!("Authorization: Bearer {}", server.admin),
            "Content-Type: application/json".to_owned(),
        ];
        let said = server.raw(
            method,
            &format!("/api/v1{}", filled(path, 1)),
            &head,
            large.as_bytes(),
        );
        // Jobs/check takes any text, and tells what is wrong with it.
        assert!(
            [413, 422].contains(&said.status),
            "{method} {path}: {}",
            said.status
        );
        asked += 1;
    }
    assert!(asked > 12, "{asked}");
}

#[test]
fn what_people_write_comes_back_as_json_and_nothing_else() {
    let World { server, people } = world();
    let nasty = "<script>alert(1)</script>\"'&\u{2028}";
    let owner = &people[6].1;
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
        let said = server.get(owner, &path);
        assert!(said.head.contains("content-type: application/json"), "{said:?}");
        assert!(!said.head.contains("text/html"), "{said:?}");
        if path.starts_with("/jobs") && !path.ends_with("explain") {
            let job = if path == "/jobs" {
                said.json()["jobs"][0].clone()
            } else {
                said.json()
            };
            assert_eq!(job["name"], nasty);
        }
    }
    for path in ["/jobs?sort=<script>", "/templates/<script>/render", "/<script>"] {
        let said = server.get(owner, &path.replace('<', "%3C").replace('>', "%3E"));
        assert!(
            said.status >= 400 && said.head.contains("application/problem+json"),
            "{said:?}"
        );
    }
}

#[test]
fn no_name_leads_out_of_its_folder() {
    let World { server, people } = world();
    let owner = &people[6].1;
    for name in [
        "..%2F..%2Fetc%2Fpasswd",
        "%2Fetc%2Fpasswd",
        "..",
        "python%00",
        "python.yaml",
        "..%5C..%5Cx",
    ] {
        let said = server.call(owner, "POST", &format!("/templates/{name}/render"), &json!({}));
        assert!([400, 404, 405].contains(&said.status), "{name}: {said:?}");
        assert!(!said.text.contains("root:"), "{said:?}");
    }
    for query in [
        "node=..%2F..%2Fetc%2Fpasswd",
        "node=%2Fetc%2Fpasswd",
        "launch=..%2F1",
        "launch=99",
        "offset=x",
    ] {
        for path in ["/jobs/1/logs", "/jobs/1/logs/search"] {
            let said = server.get(owner, &format!("{path}?q=x&{query}"));
            assert!([404, 422].contains(&said.status), "{path} {query}: {said:?}");
        }
    }
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/app.js/../../Cargo.toml",
    ] {
        let said = server.raw("GET", path, &[], b"");
        assert!(
            !said.text.contains("root:") && !said.text.contains("[package]"),
            "{said:?}"
        );
    }
}

#[test]
fn whoever_sends_byte_by_byte_is_left() {
    let World { server, people } = world();
    let owner = &people[6].1;
    let begun = Instant::now();
    let patience = Some(Duration::from_secs(60));
    let slow = |start: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(patience).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        stream
    };
    let head = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {owner}\r\nContent-Type: application/json\r\n"
    );
    let mut in_head = slow(&head);
    let mut in_body = slow(&format!("{head}Content-Length: 1000\r\n\r\n{{"));
    let mut nobody = slow("POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    // Nobody waits for a body of somebody who is not known.
    let mut first = [0; 12];
    nobody.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Others are served meanwhile.
    assert_eq!(server.get(owner, "/jobs").status, 200);
    let mut text = String::new();
    let _ = in_body.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 4"), "{text}");
    let mut rest = Vec::new();
    let _ = in_head.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"));
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(8)..Duration::from_secs(50)).contains(&took),
        "{took:?}"
    );
}
