//! What goes wrong, in OpenPAI's words.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::Problem;

/// A request that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Error {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Error {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// There is no such job, or whoever asks may not know of it.
    pub(super) fn no_job(name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NoJobError",
            format!("Job {name} is not found."),
        )
    }

    /// A value that is none.
    pub(super) fn parameters(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidParametersError", message)
    }

    /// Not allowed.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ForbiddenUserError", message)
    }

    /// The same status and message with another code.
    pub(super) fn called(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// A problem with a job that is sent.
    pub(super) fn of_job(problem: Problem) -> Self {
        let error = Self::from(problem);
        match error.status {
            StatusCode::BAD_REQUEST => error.called("InvalidProtocolError"),
            StatusCode::CONFLICT => error.called("ConflictJobError"),
            _ => error,
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let (status, code) = match problem.status {
            401 => (StatusCode::UNAUTHORIZED, "UnauthorizedUserError"),
            403 => (StatusCode::FORBIDDEN, "ForbiddenUserError"),
            404 => (StatusCode::NOT_FOUND, "NoApiError"),
            409 => (StatusCode::CONFLICT, "ConflictError"),
            429 => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsError"),
            503 => (StatusCode::SERVICE_UNAVAILABLE, "UnknownError"),
            _ => (StatusCode::BAD_REQUEST, "InvalidParametersError"),
        };
        Self::new(status, code, problem.detail)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}
