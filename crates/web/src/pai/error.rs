//! Errors, in the format of OpenPAI.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::Problem;

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl PaiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// The job does not exist, or the caller may not see it.
    pub(super) fn no_job(name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NoJobError",
            format!("Job {name} is not found."),
        )
    }

    /// A parameter is not valid.
    pub(super) fn parameters(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidParametersError", message)
    }

    /// The caller may not do this.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ForbiddenUserError", message)
    }

    /// Returns the same error with another code.
    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Converts a problem with a submission.
    pub(super) fn from_submission(problem: Problem) -> Self {
        let error = Self::from(problem);
        match error.status {
            StatusCode::BAD_REQUEST => error.with_code("InvalidProtocolError"),
            StatusCode::CONFLICT => error.with_code("ConflictJobError"),
            _ => error,
        }
    }
}

impl From<Problem> for PaiError {
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

impl IntoResponse for PaiError {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}
