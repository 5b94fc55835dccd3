//! The REST API of OpenPAI, below `/rest-server/api/v2`, for its clients: job files in, job details out, errors as
//! `{code, message}`.
//!
//! A job is named `user~name`. A job from an OpenPAI file has the name in that file; another job has its own name with its id
//! appended. Instances that start independently are one job here.

mod clusters;
mod error;
mod jobs;
mod model;
mod past;
mod shapes;
mod users;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::routing::{delete, get, post, put};
use serde_json::{Value, json};

use crate::Api;
use crate::accounts::User;
use error::PaiError;

/// The path that all routes are below.
pub(crate) const BASE: &str = "/rest-server/api/v2";

/// Returns all routes.
pub(crate) fn routes() -> Router<Api> {
    let job = Router::new()
        .route("/", get(jobs::show))
        .route("/attempts/{attempt}", get(jobs::show_attempt))
        .route("/config", get(jobs::config))
        .route("/executionType", put(jobs::execute))
        .route("/tag", put(jobs::tag).delete(jobs::untag))
        .route("/events", get(jobs::events));
    Router::new()
        .route("/info", get(users::info))
        .route("/authn/basic/login", post(users::login))
        .route("/authn/basic/logout", delete(users::logout))
        .route("/tokens", get(users::tokens))
        .route("/tokens/application", post(users::application_token))
        .route("/tokens/check", get(users::check_token))
        .route("/tokens/{token}", delete(users::remove_token))
        .route("/users", get(users::list).post(users::add).put(users::change))
        .route("/users/me", put(users::change_me))
        .route("/users/{name}", get(users::show).delete(users::remove))
        .route("/virtual-clusters", get(clusters::list))
        .route("/virtual-clusters/{name}", get(clusters::show))
        .route("/cluster/sku-types", get(clusters::sku_types))
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .nest("/jobs/{job}", job)
        .fallback(unknown_path)
}

async fn unknown_path() -> PaiError {
    PaiError::new(StatusCode::NOT_FOUND, "NoApiError", "unknown path")
}

/// Returns the body of a successful change.
fn message(text: impl Into<String>) -> axum::Json<Value> {
    axum::Json(json!({ "message": text.into() }))
}

/// An authenticated caller. A token is also accepted as the password of HTTP Basic authentication.
#[derive(Debug)]
struct PaiCaller(crate::accounts::Caller);

impl PaiCaller {
    fn user(&self) -> &User {
        &self.0.user
    }
}

impl FromRequestParts<Api> for PaiCaller {
    type Rejection = PaiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, PaiError> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let basic = header.and_then(|v| v.strip_prefix("Basic "));
        let token = basic
            .and_then(decode_base64)
            .and_then(|pair| Some(pair.split_once(':')?.1.to_owned()));
        if let Some(bearer) = token.and_then(|t| HeaderValue::from_str(&format!("Bearer {t}")).ok()) {
            parts.headers.insert(AUTHORIZATION, bearer);
        }
        let caller = crate::accounts::Caller::from_request_parts(parts, api).await;
        caller.map(PaiCaller).map_err(PaiError::from)
    }
}

/// Decodes base64 text.
fn decode_base64(text: &str) -> Option<String> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim().trim_end_matches('=').bytes() {
        bits = (bits << 6) | value(byte)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, expected) in [
            ("YW5uOmR0XzEyMw==", Some("ann:dt_123")),
            ("YTpi", Some("a:b")),
            ("", Some("")),
            ("a*b", None),
        ] {
            assert_eq!(decode_base64(text).as_deref(), expected, "{text}");
        }
    }
}
