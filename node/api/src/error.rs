// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a request is refused with: a code that stays, a text for people.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_node::control::{Refusal, RefusalKind};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of refusal; a program can rely on it.
    pub code: Code,
    /// The thing, the value and the bound; for people.
    pub message: String,
}

/// Kinds of refusals. None is ever renamed; new ones may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// 400: the request is not of the form that the interface takes.
    Malformed,
    /// 401: no token, or one that is not known.
    NotAuthenticated,
    /// 403: not for this caller.
    Forbidden,
    /// 404: there is no such thing, or the caller may not know of it.
    NotFound,
    /// 405: the thing cannot be asked that.
    MethodNotAllowed,
    /// 408: the request did not come to its end in time.
    TooSlow,
    /// 409: something else holds than the request takes for granted.
    Conflict,
    /// 413: the request's body is longer than the bound.
    TooLarge,
    /// 415: the body is not JSON.
    NotJson,
    /// 422: the policy that would be is not sound, or a running node cannot take it over.
    Refused,
    /// 429: too many requests, connections or listeners; ask again later.
    Busy,
    /// 431: the request's head is longer than the bound.
    HeadTooLarge,
    /// 503: the node is starting or ending.
    NotRunning,
    /// 507: the record of changes cannot be written.
    NotRecorded,
}

impl ApiError {
    /// A refusal.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl Code {
    /// The status that goes with it.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NotAuthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::NotRunning => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotRecorded => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.kind {
            RefusalKind::Busy => Code::Busy,
            RefusalKind::NotRunning => Code::NotRunning,
            RefusalKind::NotFound => Code::NotFound,
            RefusalKind::Conflict => Code::Conflict,
            RefusalKind::Refused => Code::Refused,
            RefusalKind::Forbidden => Code::Forbidden,
            RefusalKind::NotRecorded => Code::NotRecorded,
        };
        Self { code, message: refusal.message }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.code;
        let mut response = (code.status(), Json(self)).into_response();
        let (name, value) = match code {
            Code::NotAuthenticated => (header::WWW_AUTHENTICATE, "Bearer realm=\"weir\""),
            Code::Busy | Code::NotRunning => (header::RETRY_AFTER, "1"),
            _ => return response,
        };
        response.headers_mut().insert(name, HeaderValue::from_static(value));
        response
    }
}
