//! What goes wrong, as a document (RFC 9457) with a code that does not change.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dovetail_control::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request that was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Names the kind of problem: `urn:dovetail:problem:` and the code.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The kind in a few words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what would be right.
    pub detail: String,
    /// The code: `invalid`, `not-found`, `forbidden`, `unauthenticated`, `conflict`, `too-many`, `unsupported`, `too-large`,
    /// `method-not-allowed` or `unavailable`.
    #[serde(default)]
    pub code: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Problem {
    fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:dovetail:problem:{code}"),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
        }
    }

    /// The request makes no sense.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    /// There is no such thing, or whoever asks may not know of it.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// Whoever asks may not.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Nobody knows who asks.
    pub(crate) fn unauthenticated() -> Self {
        let detail = "sign in, or show a token of this scheduler: `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// It does not go with how things are.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The password is wrong, or there is nobody of that name.
    pub(crate) fn wrong_password() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "the name or the password is wrong",
        )
    }

    /// Too often.
    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail)
    }

    /// Not in this form.
    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported", detail)
    }

    /// Not now.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => Self::invalid(detail),
            Refusal::Unknown(_) => Self::not_found(detail),
            Refusal::Conflict(_) => Self::conflict(detail),
            Refusal::Stuck(_) | Refusal::ShuttingDown => Self::unavailable(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, kind, body).into_response()
    }
}

/// The most of an answer that is looked at.
const LOOKED_AT: usize = 4_096;

/// What the framework refuses in its own words is a problem document too.
pub(crate) async fn every_refusal(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind == "application/problem+json");
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let words = axum::body::to_bytes(response.into_body(), LOOKED_AT).await;
    let words = String::from_utf8_lossy(&words.unwrap_or_default())
        .trim()
        .to_owned();
    let code = match status {
        StatusCode::NOT_FOUND => "not-found",
        StatusCode::METHOD_NOT_ALLOWED => "method-not-allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "too-large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported",
        _ if status.is_client_error() => "invalid",
        _ => "unavailable",
    };
    let detail = match words.is_empty() {
        true => status.canonical_reason().unwrap_or("it was not done").to_owned(),
        false => words,
    };
    Problem::new(status, code, detail).into_response()
}

/// A path that leads nowhere.
pub(crate) async fn no_such_page() -> Problem {
    Problem::not_found("there is nothing at this path; the API is below /api/v1")
}
