// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals of requests: a code that programs can rely on, and a text for people.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Kind of the refusal. Programs can rely on it.
    pub code: ErrorCode,
    /// Names the thing, the value and the bound. For people.
    pub message: String,
    /// Keys of the policy that the refusal is about. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyView>,
}

/// A key of the policy's document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyView {
    /// `node`, `api`, `report`, `xtc`, `port`, `slice`, `router` or `vif`.
    pub table: String,
    /// Name of the port, slice, router or vif; empty for the others.
    pub name: String,
    /// Key in that table, such as `send.min_rate`; empty for all of it.
    pub key: String,
}

/// Kinds of refusals. A code is never renamed; new ones may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is malformed.
    Malformed,
    /// 401: the token is missing or unknown.
    NotAuthenticated,
    /// 403: the caller is not allowed to do this.
    Forbidden,
    /// 404: the thing does not exist, or the caller may not know of it.
    NotFound,
    /// 405: the path does not support this method.
    MethodNotAllowed,
    /// 408: the request did not arrive within the time limit.
    TooSlow,
    /// 409: the state of the node contradicts the request.
    Conflict,
    /// 413: the request's body is too long.
    TooLarge,
    /// 415: the request's body is not JSON.
    NotJson,
    /// 422: the resulting policy is invalid, or a running node cannot apply it.
    Refused,
    /// 429: too many requests, connections or listeners; retry later.
    Busy,
    /// 431: the request's head is too long.
    HeadTooLarge,
    /// 503: the node is starting or stopping.
    NotRunning,
    /// 507: the record of changes cannot be written.
    NotRecorded,
}

impl ApiError {
    /// Makes a refusal.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), keys: Vec::new() }
    }

    /// Makes the refusal of a path that does not exist.
    #[must_use]
    pub fn unknown_path(path: &str) -> Self {
        let path = shown(path);
        let text = format!("path: {path:?} does not exist; /v1/openapi.json lists all");
        Self::new(ErrorCode::NotFound, text)
    }

    /// Makes the refusal of a method that a path does not have.
    #[must_use]
    pub fn unknown_method(method: &str, path: &str) -> Self {
        let (method, path) = (shown(method), shown(path));
        let text = format!("method: {method:?} is not allowed on {path:?}");
        Self::new(ErrorCode::MethodNotAllowed, text)
    }
}

/// Returns the first 200 characters of a text that a caller sent, for a refusal.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Most characters of a caller's text that a refusal repeats.
const SHOWN_CHARS_MAX: usize = 200;

impl ErrorCode {
    /// Returns the HTTP status of the code.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::NotAuthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TooSlow => 408,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::NotJson => 415,
            Self::Refused => 422,
            Self::Busy => 429,
            Self::HeadTooLarge => 431,
            Self::NotRunning => 503,
            Self::NotRecorded => 507,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_at_most_two_hundred_characters_of_the_path() {
        let refused = ApiError::unknown_path("/v1/nothing").message;
        assert_eq!(refused, "path: \"/v1/nothing\" does not exist; /v1/openapi.json lists all");
        let refused = ApiError::unknown_method("PUT", &format!("/{}", "é".repeat(300))).message;
        let path = format!("/{}", "é".repeat(199));
        assert_eq!(refused, format!("method: \"PUT\" is not allowed on {path:?}"));
    }
}
