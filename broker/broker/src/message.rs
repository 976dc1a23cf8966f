// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages in the format that the other side speaks: JSON, or XML of the same meaning.
//!
//! `Content-Type` says what a body is, `Accept` what the answer is to be. A handler reads a
//! [`MessageBody`] and gives an [`MessageAnswer`]; it cannot tell which format they have.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{ConnectionChange, LinkSetting, RequestedConnection};

use crate::refusal::BrokerRefusal;
use crate::xml;

/// A format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageFormat {
    Json,
    Xml,
}

impl MessageFormat {
    /// Returns the format of a media type; its parameters do not count.
    fn of(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("application/json") {
            return Some(Self::Json);
        }
        let is_xml = ["application/xml", "text/xml"].iter().any(|of| name.eq_ignore_ascii_case(of));
        is_xml.then_some(Self::Xml)
    }

    /// Returns the format that is liked best: XML if it is named, with a weight above that of JSON.
    fn accepted(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
        let named = lines.flat_map(|line| line.split(','));
        let (mut json, mut xml) = (0.0, 0.0);
        for (range, format) in named.filter_map(|range| Some((range, Self::of(range)?))) {
            let liked: &mut f32 = if format == Self::Json { &mut json } else { &mut xml };
            *liked = liked.max(weight(range));
        }
        if xml > json { Self::Xml } else { Self::Json }
    }

    const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
        })
    }
}

/// Returns the weight of a media range: 1 without one (RFC 9110, 12.4.2).
fn weight(range: &str) -> f32 {
    let parameters = range.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut named = parameters.filter(|(key, _)| key.trim().eq_ignore_ascii_case("q"));
    named.next().map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0))
}

/// A body that is read, with the name of its outermost element in XML.
pub(crate) trait ReadMessage: DeserializeOwned {
    const ROOT: &'static str;

    /// Leaves out what a list of names repeats. Names are of the configuration, so that a list is
    /// no longer than what the network has, or it is refused.
    fn without_repeats(self) -> Self {
        self
    }
}

impl ReadMessage for RequestedConnection {
    const ROOT: &'static str = "request";

    fn without_repeats(mut self) -> Self {
        for names in [&mut self.avoid, &mut self.include, &mut self.exclude] {
            leave_out_repeats(names);
        }
        self
    }
}

impl ReadMessage for ConnectionChange {
    const ROOT: &'static str = "change";

    fn without_repeats(mut self) -> Self {
        if let Some(names) = &mut self.avoid {
            leave_out_repeats(names);
        }
        self
    }
}

/// Leaves each name only where it stands first.
fn leave_out_repeats(names: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
}

impl ReadMessage for LinkSetting {
    const ROOT: &'static str = "setting";
}

/// A body in either format, within bounds of size and time.
pub(crate) struct MessageBody<T>(pub(crate) T);

impl<T: ReadMessage, S: Send + Sync> FromRequest<S> for MessageBody<T> {
    type Rejection = BrokerRefusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, BrokerRefusal> {
        let named = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let named = named.unwrap_or("nothing").to_owned();
        let format = MessageFormat::of(&named).ok_or_else(|| {
            let text = format!(
                "content-type is {named:.60}; it must be application/json or application/xml"
            );
            BrokerRefusal::new(ErrorCode::NotJson, text)
        })?;
        let reading = tokio::time::timeout(BODY_PATIENCE, bytes(request.into_body()));
        let bytes = reading.await.map_err(|_| {
            let text = format!("body: it did not come within {} s", BODY_PATIENCE.as_secs());
            BrokerRefusal::new(ErrorCode::TooSlow, text)
        })??;
        let read = match format {
            MessageFormat::Json => serde_json::from_slice(&bytes).map_err(malformed),
            MessageFormat::Xml => std::str::from_utf8(&bytes)
                .map_err(malformed)
                .and_then(|text| xml::read(T::ROOT, text).map_err(malformed)),
        };
        read.map(|message: T| Self(message.without_repeats()))
    }
}

/// Reads a body to its end. One that is too long is read on for a while and forgotten, so that its
/// sender hears why it is refused.
async fn bytes(body: Body) -> Result<Vec<u8>, BrokerRefusal> {
    let (mut stream, mut bytes, mut length) = (body.into_data_stream(), Vec::new(), 0_usize);
    while let Some(part) = stream.next().await {
        let part = part.map_err(|_| malformed("it ended before its end"))?;
        length = length.saturating_add(part.len());
        if length <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&part);
        } else if length > BODY_BYTES_MAX + SWALLOWED_BYTES {
            break;
        }
    }
    if length > BODY_BYTES_MAX {
        let text = format!("body: it is longer than {BODY_BYTES_MAX} bytes");
        return Err(BrokerRefusal::new(ErrorCode::TooLarge, text));
    }
    Ok(bytes)
}

fn malformed(error: impl std::fmt::Display) -> BrokerRefusal {
    BrokerRefusal::new(ErrorCode::Malformed, format!("body: {error}"))
}

/// An answer, before it has a format.
#[derive(Clone, Debug)]
pub(crate) struct MessageAnswer {
    status: StatusCode,
    /// Name of its outermost element in XML.
    root: &'static str,
    value: Value,
}

impl MessageAnswer {
    pub(crate) fn new(status: StatusCode, root: &'static str, value: &impl Serialize) -> Self {
        // Made of texts and numbers: nothing of it can fail.
        Self { status, root, value: serde_json::to_value(value).unwrap_or_default() }
    }

    /// Makes an answer of status 200.
    pub(crate) fn ok(root: &'static str, value: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, root, value)
    }
}

impl IntoResponse for MessageAnswer {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A refusal as an answer.
impl IntoResponse for BrokerRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.error.code.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = MessageAnswer::new(status, "error", &self).into_response();
        // A stranger's body is not read, and its connection takes a place that others want.
        if self.error.code == ErrorCode::NotAuthenticated {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Gives answers the format that the caller asked for.
pub(crate) async fn write_answers(request: Request, next: Next) -> Response {
    let format = MessageFormat::accepted(request.headers());
    let mut response = next.run(request).await;
    let Some(MessageAnswer { root, value, .. }) = response.extensions_mut().remove() else {
        return response;
    };
    let text = match format {
        MessageFormat::Json => value.to_string(),
        MessageFormat::Xml => xml::write(root, &value),
    };
    *response.body_mut() = text.into();
    response.headers_mut().insert(CONTENT_TYPE, format.content_type());
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// Bytes of a request's body.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// Bytes that are read of a body beyond its bound: a sender that does not listen while it sends
/// would see a broken connection instead of an answer.
const SWALLOWED_BYTES: usize = 16 << 20;

/// The time for a request's body.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_format_that_is_liked_best() {
        for (accept, format) in [
            ("", MessageFormat::Json),
            ("*/*", MessageFormat::Json),
            ("application/xml", MessageFormat::Xml),
            ("text/html, text/XML; q=0.5, */*", MessageFormat::Xml),
            ("application/json, application/xml", MessageFormat::Json),
            ("application/json;q=0.5, application/xml; charset=utf-8;q=0.9", MessageFormat::Xml),
            ("application/xml;q=0", MessageFormat::Json),
            ("application/xml;q=x", MessageFormat::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(MessageFormat::accepted(&headers), format, "{accept}");
        }
    }
}
