// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a broker, timed from the request sent to the answer.

use std::sync::Barrier;
use std::time::Instant;

use serde_json::Value;
use weir_client::{Client, Method};
use weir_experiment::prelude::*;

use super::broker_lab::parsed;

/// Asks for something to be made. Returns the answer, and the milliseconds until it was there.
pub(super) fn timed_post(client: &Client, path: &str, body: &Value) -> Result<(Value, f64)> {
    timed(client, &Barrier::new(1), (Method::POST, path, Some(body)), 201)
}

/// Asks over a connection that is open before, once all are `ready`, and expects a status.
pub(super) fn timed(
    client: &Client,
    ready: &Barrier,
    (method, path, body): (Method, &str, Option<&Value>),
    expected: u16,
) -> Result<(Value, f64)> {
    let broken = |error| ExperimentError::io(path, error);
    let opened = client.connect().map_err(ExperimentError::from).and_then(|mut open| {
        // The handshake is over with the first answer.
        open.ask(Method::GET, "/v1/none", "").map_err(broken)?;
        Ok(open)
    });
    // Others wait for it, whatever came of it.
    ready.wait();
    let mut open = opened?;
    let begun = Instant::now();
    let body = body.map(Value::to_string).unwrap_or_default();
    let asked = open.ask(method, path, &body);
    let total_ms = begun.elapsed().as_secs_f64() * 1e3;
    let (status, answer) = asked.map_err(broken)?;
    let answer = String::from_utf8_lossy(&answer);
    if status != expected {
        return Err(ExperimentError::Node(format!("{path}: {status}: {answer}")));
    }
    let answer = if answer.is_empty() { Value::Null } else { parsed(&answer)? };
    Ok((answer, total_ms))
}
