//! Errors of the API, as problem documents (RFC 9457) with a stable code.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dovetail_cluster::Refusal;
use dovetail_history::HistoryError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Type of the problem: `urn:dovetail:problem:` and the code.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Title of the status.
    #[serde(default)]
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What is wrong, and what is expected.
    pub detail: String,
    /// Code: `invalid`, `not-found`, `forbidden`, `unauthenticated`, `conflict`, `too-many`, `unsupported`, `too-large`,
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

    /// The request is not valid.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    /// The resource does not exist, or the caller may not see it.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// The caller may not do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The caller is not authenticated.
    pub(crate) fn unauthenticated() -> Self {
        let detail = "not authenticated; sign in, or send a token: `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// The request conflicts with the current state.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The user name or the password is wrong.
    pub(crate) fn wrong_password() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "wrong user name or password",
        )
    }

    /// The rate limit is exceeded.
    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail)
    }

    /// The media type is not supported.
    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported", detail)
    }

    /// The server cannot do this now.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// The history database cannot be read. The path stays in the log.
    pub(crate) fn history(error: HistoryError) -> Self {
        tracing::error!(%error, "cannot read the history");
        Self::unavailable("the history of ended jobs cannot be read; see the log of the server")
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => Self::invalid(detail),
            Refusal::NotFound(_) => Self::not_found(detail),
            Refusal::Conflict(_) => Self::conflict(detail),
            Refusal::HistoryMoved
            | Refusal::HistoryBehind { .. }
            | Refusal::JournalUnavailable(_)
            | Refusal::ShuttingDown => Self::unavailable(detail),
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

/// Maximum size of a response body that is read, in bytes.
const MAX_BODY: usize = 4_096;

/// Turns errors of the framework into problem documents.
pub(crate) async fn to_problem(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind == "application/problem+json");
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let body = axum::body::to_bytes(response.into_body(), MAX_BODY).await;
    let text = String::from_utf8_lossy(&body.unwrap_or_default())
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
    let detail = match text.is_empty() {
        true => status.canonical_reason().unwrap_or("request failed").to_owned(),
        false => text,
    };
    Problem::new(status, code, detail).into_response()
}

/// Answers requests to unknown paths.
pub(crate) async fn unknown_path() -> Problem {
    Problem::not_found("unknown path; the API is below /api/v1")
}
