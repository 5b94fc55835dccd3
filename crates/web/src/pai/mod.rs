//! What clients of OpenPAI ask for, below `/rest-server/api/v2`, in its words: job files in, job details out, `{code, message}`
//! where something is wrong.
//!
//! A job is called `user~name`. A job that came as a file of OpenPAI has the name of that file; another has its own name
//! with its number behind it. Instances that start on their own are one job here.

mod clusters;
mod error;
mod jobs;
mod model;
mod people;
mod shapes;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::routing::{delete, get, post, put};
use serde_json::{Value, json};

use crate::Api;
use crate::people::User;
use error::Error;

/// Where all of it is.
pub(crate) const BASE: &str = "/rest-server/api/v2";

/// Everything below it.
pub(crate) fn routes() -> Router<Api> {
    let job = Router::new()
        .route("/", get(jobs::show))
        .route("/attempts/{attempt}", get(jobs::show_attempt))
        .route("/config", get(jobs::config))
        .route("/executionType", put(jobs::execute))
        .route("/tag", put(jobs::tag).delete(jobs::untag))
        .route("/events", get(jobs::events));
    Router::new()
        .route("/info", get(people::info))
        .route("/authn/basic/login", post(people::login))
        .route("/authn/basic/logout", delete(people::logout))
        .route("/tokens", get(people::tokens))
        .route("/tokens/application", post(people::application_token))
        .route("/tokens/check", get(people::check_token))
        .route("/tokens/{token}", delete(people::remove_token))
        .route("/users", get(people::list).post(people::add).put(people::change))
        .route("/users/me", put(people::change_me))
        .route("/users/{name}", get(people::show).delete(people::remove))
        .route("/virtual-clusters", get(clusters::list))
        .route("/virtual-clusters/{name}", get(clusters::show))
        .route("/cluster/sku-types", get(clusters::sku_types))
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .nest("/jobs/{job}", job)
        .fallback(no_such_page)
}

async fn no_such_page() -> Error {
    Error::new(
        StatusCode::NOT_FOUND,
        "NoApiError",
        "there is nothing at this path",
    )
}

/// A word that something was done.
fn message(text: impl Into<String>) -> axum::Json<Value> {
    axum::Json(json!({ "message": text.into() }))
}

/// Somebody who asks; a token may also come as the password of HTTP Basic.
#[derive(Debug)]
struct Asker(crate::people::Asker);

impl Asker {
    fn user(&self) -> &User {
        &self.0.user
    }
}

impl FromRequestParts<Api> for Asker {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Error> {
        let shown = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let basic = shown.and_then(|v| v.strip_prefix("Basic "));
        let token = basic
            .and_then(decoded)
            .and_then(|pair| Some(pair.split_once(':')?.1.to_owned()));
        if let Some(bearer) = token.and_then(|t| HeaderValue::from_str(&format!("Bearer {t}")).ok()) {
            parts.headers.insert(AUTHORIZATION, bearer);
        }
        let asker = crate::people::Asker::from_request_parts(parts, api).await;
        asker.map(Asker).map_err(Error::from)
    }
}

/// Base64 as text.
fn decoded(text: &str) -> Option<String> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.trim().trim_end_matches('=').bytes() {
        bits = (bits << 6) | value(byte)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        for (text, expected) in [
            ("YW5uOmR0XzEyMw==", Some("ann:dt_123")),
            ("YTpi", Some("a:b")),
            ("", Some("")),
            ("a*b", None),
        ] {
            assert_eq!(decoded(text).as_deref(), expected, "{text}");
        }
    }
}
