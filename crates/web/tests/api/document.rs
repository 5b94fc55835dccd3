//! The document that describes the API is the one that is committed, and every path in it asks who is there.

use std::path::Path;

use serde_json::Value;

use crate::server::Server;

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let now = serde_json::to_string_pretty(&dovetail_web::openapi()).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "docs/openapi.json is out of date; UPDATE_DOCS=1 cargo test -p dovetail-web --test api writes it anew"
    );
    let server = Server::start(0);
    let served = server.raw("GET", "/api/v1/openapi.json", &[], b"").json();
    assert_eq!(served, dovetail_web::openapi());
}

/// Every path and method, with something for the parameters.
pub(crate) fn operations() -> Vec<(String, String, Value)> {
    let document = dovetail_web::openapi();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path
                .replace("{id}", "1")
                .replace("{name}", "x")
                .replace("{action}", "stop");
            all.push((method.to_uppercase(), path, operation.clone()));
        }
    }
    all
}

#[test]
fn nobody_is_told_anything_without_saying_who_asks() {
    let server = Server::start(1);
    server.submit(&server.admin, serde_json::json!({"name": "secret-name"}));
    let mut asked = 0;
    for (method, path, operation) in operations() {
        if operation["security"] == serde_json::json!([]) {
            continue;
        }
        for head in [
            vec![],
            vec!["Authorization: Bearer dt_wrong".to_owned()],
            vec!["Cookie: dovetail_session=x".to_owned()],
        ] {
            let answer = server.raw(&method, &format!("/api/v1{path}"), &head, b"{}");
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            assert_eq!(answer.code(), "unauthenticated");
            assert!(!answer.text.contains("secret-name"));
        }
        asked += 1;
    }
    assert!(asked > 30, "{asked}");
}

#[test]
fn schemas_that_are_named_are_there() {
    let document = dovetail_web::openapi();
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for piece in text.split("#/components/schemas/").skip(1) {
        let name = piece.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    assert!(!text.contains("#/$defs/"));
}
