// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals as the server sends them: status, headers and a body of [`ApiError`].

use std::ops::Deref;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
pub(crate) use weir_api_types::error::ErrorCode;
use weir_api_types::error::{ApiError, KeyView};
use weir_node::control::{Refusal, RefusalKind};
use weir_policy::KeyPath;

/// A refused request, on its way to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection(ApiError);

impl Rejection {
    /// Makes a rejection.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ApiError::new(code, message))
    }

    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        // Every code stands for a status that HTTP knows.
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the body.
    pub(crate) const fn body(&self) -> &ApiError {
        &self.0
    }
}

impl Deref for Rejection {
    type Target = ApiError;

    fn deref(&self) -> &ApiError {
        &self.0
    }
}

impl From<ApiError> for Rejection {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.kind {
            RefusalKind::Busy => ErrorCode::Busy,
            RefusalKind::NotRunning => ErrorCode::NotRunning,
            RefusalKind::NotFound => ErrorCode::NotFound,
            RefusalKind::Conflict => ErrorCode::Conflict,
            RefusalKind::Refused => ErrorCode::Refused,
            RefusalKind::Forbidden => ErrorCode::Forbidden,
            RefusalKind::NotRecorded => ErrorCode::NotRecorded,
        };
        let view = |KeyPath { table, name, key }| KeyView { table, name, key };
        let keys = refusal.keys.into_iter().map(view).collect();
        Self(ApiError { keys, ..ApiError::new(code, refusal.message) })
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        let (name, value) = match self.code {
            ErrorCode::NotAuthenticated => (header::WWW_AUTHENTICATE, "Bearer realm=\"weir\""),
            ErrorCode::Busy | ErrorCode::NotRunning => (header::RETRY_AFTER, "1"),
            _ => return response,
        };
        response.headers_mut().insert(name, HeaderValue::from_static(value));
        response
    }
}
