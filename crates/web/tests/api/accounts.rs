//! Sessions, tokens and roles.

use dovetail_web::Role;
use serde_json::{Value, json};

use crate::document::operations;
use crate::server::Server;

#[test]
fn a_browser_signs_in_and_needs_the_csrf_token_for_changes() {
    let server = Server::start(1);
    let ann = server.call(
        &server.admin,
        "POST",
        "/users",
        &json!({"name": "ann", "password": "correct horse"}),
    );
    assert_eq!(
        (ann.status, ann.json()["password"].is_null()),
        (201, true),
        "{ann:?}"
    );
    let sign_in = |password: &str| {
        let body = json!({"name": "ann", "password": password}).to_string();
        server.raw(
            "POST",
            "/api/v1/session",
            &["Content-Type: application/json".to_owned()],
            body.as_bytes(),
        )
    };
    assert_eq!(sign_in("wrong horse").status, 401);
    let answer = sign_in("correct horse");
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer
        .head
        .lines()
        .find_map(|l| l.strip_prefix("set-cookie: "))
        .unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let csrf = answer.json()["user"]["csrf"].as_str().unwrap().to_owned();
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let with = |extra: &[&str]| {
        let mut head = vec![cookie.clone(), "Content-Type: application/json".to_owned()];
        head.extend(extra.iter().map(|line| (*line).to_owned()));
        head
    };
    let me = server.raw("GET", "/api/v1/me", &with(&[]), b"");
    assert_eq!(
        (me.status, &me.json()["csrf"], &me.json()["must_change_password"]),
        (200, &json!(csrf), &json!(true))
    );
    let job = json!({"job": {"command": ["true"]}}).to_string();
    let forged = server.raw("POST", "/api/v1/jobs", &with(&[]), job.as_bytes());
    assert_eq!(
        (forged.status, forged.code().as_str()),
        (403, "forbidden"),
        "{forged:?}"
    );
    let token = format!("X-Csrf-Token: {csrf}");
    let sent = server.raw("POST", "/api/v1/jobs", &with(&[&token]), job.as_bytes());
    assert_eq!(sent.status, 201, "{sent:?}");
    let changed = json!({"old": "correct horse", "new": "battery staple"}).to_string();
    let changed = server.raw("PUT", "/api/v1/me/password", &with(&[&token]), changed.as_bytes());
    assert_eq!(changed.status, 204, "{changed:?}");
    assert_eq!(
        server.raw("GET", "/api/v1/me", &with(&[]), b"").status,
        401,
        "a new password ends sessions"
    );
    assert_eq!(
        (sign_in("correct horse").status, sign_in("battery staple").status),
        (401, 200)
    );
}

#[test]
fn password_guesses_are_limited() {
    let server = Server::start(0);
    let guess = || {
        let body = json!({"name": "admin", "password": "guess"}).to_string();
        let head = ["Content-Type: application/json".to_owned()];
        server
            .raw("POST", "/api/v1/session", &head, body.as_bytes())
            .status
    };
    let statuses: Vec<u16> = (0..12).map(|_| guess()).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[11], 429);
}

#[test]
fn a_token_is_limited_to_its_scope() {
    let server = Server::start(1);
    let ann = server.user("ann", &[]);
    let token = |scope: &str| {
        let made = server.call(
            &ann,
            "POST",
            "/me/tokens",
            &json!({"label": scope, "scope": scope}),
        );
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let (read, jobs) = (token("read"), token("jobs"));
    let job = json!({"job": {"command": ["true"]}});
    assert_eq!(server.get(&read, "/jobs").status, 200);
    assert_eq!(server.call(&read, "POST", "/jobs", &job).status, 403);
    assert_eq!(server.call(&jobs, "POST", "/jobs", &job).status, 201);
    assert_eq!(server.call(&jobs, "POST", "/me/tokens", &json!({})).status, 403);
    let mine = server.get(&ann, "/me/tokens").json();
    assert_eq!(mine.as_array().unwrap().len(), 3);
    assert!(
        !mine.to_string().contains(&read[3..]),
        "tokens are not shown again"
    );
    let id = mine[1]["id"].as_str().unwrap();
    assert_eq!(
        server
            .call(&ann, "DELETE", &format!("/me/tokens/{id}"), &Value::Null)
            .status,
        204
    );
    assert_eq!(server.get(&read, "/jobs").status, 401);
    assert_eq!(
        server
            .call(&ann, "DELETE", "/me/tokens/none", &Value::Null)
            .status,
        404
    );
    assert_eq!(
        server
            .call(&ann, "POST", "/me/tokens", &json!({"expires_s": -1}))
            .status,
        422
    );
}

/// Every route of a job, requested by users with each role.
#[test]
fn jobs_of_other_users_are_hidden() {
    let server = Server::start(1);
    let closed = json!({"mode": "open", "vcs": {"default": {}, "lab": {"everyone": "none"}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &closed).status, 200);
    let ann = server.user("ann", &[("lab", Role::Member)]);
    let stranger = server.user("eve", &[]);
    let viewer = server.user("vic", &[("lab", Role::Viewer)]);
    let operator = server.user("oli", &[("lab", Role::Operator)]);
    let job = server.submit(
        &ann,
        json!({"name": "secret-name", "tenant": "lab", "env": {"KEY": "hush"}}),
    );
    assert_eq!(job, 1);
    let private = server.submit(
        &ann,
        json!({"name": "secret-name", "tenant": "lab", "private": true}),
    );
    for (method, path, _) in operations() {
        if !path.starts_with("/jobs/1") {
            continue;
        }
        let body = json!({"priority": 1});
        let answer = server.call(&stranger, &method, &path, &body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not-found"),
            "eve {method} {path}: {answer:?}"
        );
        let hidden = path.replace("/jobs/1", &format!("/jobs/{private}"));
        for (who, token) in [("eve", &stranger), ("vic", &viewer), ("oli", &operator)] {
            let answer = server.call(token, &method, &hidden, &body);
            assert_eq!(answer.status, 404, "{who} {method} {hidden}: {answer:?}");
        }
        let is_read_only = method == "GET" && !path.contains("/logs");
        let answer = server.call(&viewer, &method, &path, &body);
        assert_eq!(
            answer.status,
            if is_read_only { 200 } else { 403 },
            "vic {method} {path}: {answer:?}"
        );
        assert!(
            !answer.text.contains("hush"),
            "only the owner sees the request: {answer:?}"
        );
    }
    for (token, n) in [
        (&stranger, 0),
        (&viewer, 1),
        (&operator, 1),
        (&ann, 2),
        (&server.admin, 2),
    ] {
        let list = server.get(token, "/jobs").json();
        assert_eq!(list["total"], json!(n), "{list}");
        assert!(n > 0 || !list.to_string().contains("secret-name"));
    }
    assert!(!server.get(&stranger, "/queue").text.contains("secret-name"));
    assert!(
        !server
            .get(&stranger, "/events?since=0")
            .text
            .contains("\"job\":1")
    );
    for (token, status) in [(&stranger, 403), (&viewer, 403), (&operator, 201)] {
        let job = json!({"job": {"command": ["true"], "tenant": "lab"}});
        assert_eq!(server.call(token, "POST", "/jobs", &job).status, status);
    }
    assert_eq!(
        server
            .call(&operator, "POST", "/jobs/1/stop", &Value::Null)
            .status,
        200
    );
    let audit = server.get(&server.admin, "/audit?who=oli").json();
    assert_eq!(audit["entries"][0]["what"], "job-stop", "{audit}");
}

#[test]
fn administration_is_for_administrators() {
    let server = Server::start(1);
    let ann = server.user("ann", &[("default", Role::Operator)]);
    let only_admins = [
        ("GET", "/users", Value::Null),
        ("POST", "/users", json!({"name": "x"})),
        ("PATCH", "/users/ann", json!({"admin": true})),
        ("DELETE", "/users/admin", Value::Null),
        ("POST", "/operate", json!({"operate": "pause"})),
        ("POST", "/nodes/node-0/drain", json!({})),
        ("PUT", "/vcs", json!({"mode": "open"})),
        ("PUT", "/vcs/default", json!({"user_cap_gpus": 1})),
        ("DELETE", "/vcs/default", Value::Null),
        ("GET", "/audit", Value::Null),
    ];
    for (method, path, body) in &only_admins {
        let answer = server.call(&ann, method, path, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "forbidden"),
            "{method} {path}: {answer:?}"
        );
    }
    assert!(!server.users.account("ann").unwrap().admin);
    let admin = |method: &str, path: &str, body: Value| server.call(&server.admin, method, path, &body);
    assert_eq!(
        admin("DELETE", "/users/admin", Value::Null).status,
        409,
        "administrators cannot remove themselves"
    );
    assert_eq!(
        admin("PATCH", "/users/admin", json!({"admin": false})).status,
        409
    );
    let changed = admin(
        "PATCH",
        "/users/ann",
        json!({"roles": {"default": "administrator"}, "email": "a@b"}),
    );
    assert_eq!(changed.status, 200, "{changed:?}");
    let cap = |token: &str| server.call(token, "PUT", "/vcs/default", &json!({"user_cap_gpus": 3}));
    assert_eq!(
        cap(&ann).status,
        200,
        "an administrator of a virtual cluster changes its limits"
    );
    let more = server.call(&ann, "PUT", "/vcs/default", &json!({"guaranteed_gpus": 4}));
    assert_eq!(more.status, 403, "but cannot change its guarantee");
    let audit = admin("GET", "/audit", Value::Null).json();
    let first = &audit["entries"][0];
    assert_eq!(
        (&first["who"], &first["what"]),
        (&json!("ann"), &json!("virtual-clusters")),
        "{audit}"
    );
    let user = &audit["entries"][1];
    assert_eq!(
        (
            &user["before"]["roles"]["default"],
            &user["after"]["roles"]["default"]
        ),
        (&json!("operator"), &json!("administrator"))
    );
    assert_eq!(admin("DELETE", "/users/ann", Value::Null).status, 204);
    assert_eq!(server.get(&ann, "/me").status, 401);
}

#[test]
fn an_open_event_stream_follows_changes_of_rights() {
    use std::io::{Read, Write};
    let server = Server::start(1);
    let closed = json!({"mode": "open", "vcs": {"default": {}, "lab": {"everyone": "none"}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &closed).status, 200);
    let ann = server.user("ann", &[("lab", Role::Member)]);
    let vic = server.user("vic", &[("lab", Role::Viewer)]);
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET /api/v1/events?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {vic}\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    let mut until = |part: &str| {
        let mut piece = [0; 4096];
        while !text.contains(part) {
            let n = stream.read(&mut piece).unwrap();
            assert_ne!(n, 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
        text.clone()
    };
    until("\r\n\r\n");
    server.submit(&ann, json!({"tenant": "lab"}));
    until("\"job\":1");
    server.users.edit("vic", |account| account.roles.clear()).unwrap();
    server.submit(&ann, json!({"tenant": "lab"}));
    server.submit(&ann, json!({"tenant": "default"}));
    let seen = until("\"job\":3");
    assert!(!seen.contains("\"job\":2"), "{seen}");
    server.users.remove("vic").unwrap();
    server.submit(&ann, json!({"tenant": "default"}));
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(!rest.contains("\"job\":4"), "{rest}");
}
