//! The committed OpenAPI document is up to date, and all routes in it require authentication.

use std::path::Path;

use serde_json::Value;

use crate::server::Server;

#[test]
fn the_committed_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let current = serde_json::to_string_pretty(&dovetail_web::openapi()).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == current,
        "docs/openapi.json is out of date; update it with UPDATE_DOCS=1 cargo test -p dovetail-web --test api"
    );
    let server = Server::start(0);
    let served = server.raw("GET", "/api/v1/openapi.json", &[], b"").json();
    assert_eq!(served, dovetail_web::openapi());
}

/// Returns every path and method, with values for the parameters.
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
fn requests_without_authentication_are_refused() {
    let server = Server::start(1);
    server.submit(&server.admin, serde_json::json!({"name": "secret-name"}));
    let mut checked = 0;
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
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn all_referenced_schemas_exist() {
    let document = dovetail_web::openapi();
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for piece in text.split("#/components/schemas/").skip(1) {
        let name = piece.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    assert!(!text.contains("#/$defs/"));
}
