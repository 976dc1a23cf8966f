// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a request's body to its end, within bounds of size and time.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::error::{ErrorCode, Rejection};
use crate::limits::ApiLimits;

/// Reads the JSON value of a body.
pub(crate) async fn json<T: DeserializeOwned>(
    limits: &ApiLimits,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Rejection> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or("nothing").split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let text = format!("content-type is {kind:.60}; it must be application/json");
        return Err(Rejection::new(ErrorCode::NotJson, text));
    }
    let bytes = bytes(limits, body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Rejection::new(ErrorCode::Malformed, format!("body: {error}")))
}

/// Reads a body to its end. A body that is too long is read on and discarded up to a bound, so that
/// its sender gets the refusal.
async fn bytes(limits: &ApiLimits, body: Body) -> Result<Vec<u8>, Rejection> {
    let reading = async {
        let (mut body, mut bytes, mut length) = (body, Vec::new(), 0_usize);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                Rejection::new(ErrorCode::Malformed, "body: it ended before its end")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            length = length.saturating_add(data.len());
            if length <= limits.body_bytes {
                bytes.extend_from_slice(&data);
            } else if length > limits.body_bytes.saturating_add(SWALLOWED_BYTES) {
                break;
            }
        }
        if length > limits.body_bytes {
            let most = limits.body_bytes;
            let text = format!("body: it is longer than {most} bytes");
            return Err(Rejection::new(ErrorCode::TooLarge, text));
        }
        Ok(bytes)
    };
    tokio::time::timeout(limits.request_time, reading).await.unwrap_or_else(|_| {
        let seconds = limits.request_time.as_secs_f64();
        Err(Rejection::new(ErrorCode::TooSlow, format!("body: it did not come within {seconds} s")))
    })
}

/// The most bytes of a body that are read beyond its bound. A sender that does not listen while it
/// sends would otherwise see a broken connection instead of an answer.
const SWALLOWED_BYTES: usize = 16 << 20;
