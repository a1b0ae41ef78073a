//! What a reader is told when a request cannot be answered: what is wrong, where, and what to do.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error as JSON: `{"error":{"what":…,"where":…,"do":…}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    what: String,
    place: String,
    advice: String,
}

#[derive(Serialize)]
struct Body<'e> {
    error: Words<'e>,
}

#[derive(Serialize)]
struct Words<'e> {
    what: &'e str,
    #[serde(rename = "where")]
    place: &'e str,
    #[serde(rename = "do")]
    advice: &'e str,
}

impl ApiError {
    /// An error of a status.
    pub fn new(
        status: StatusCode,
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { status, what: what.into(), place: place.into(), advice: advice.into() }
    }

    /// A parameter cannot be used.
    pub fn parameter(name: &str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what, format!("query parameter {name}"), advice)
    }

    /// The answer is not there yet.
    pub fn later(what: impl Into<String>, place: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, what, place, "ask again in some seconds")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let words = Words { what: &self.what, place: &self.place, advice: &self.advice };
        let mut response = (self.status, Json(Body { error: words })).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert("retry-after", axum::http::HeaderValue::from_static("2"));
        }
        response
    }
}
