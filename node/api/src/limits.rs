// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of the interface: those that the policy sets, and a few that nobody needs to change.

use std::time::Duration;

use weir_policy::Api;

/// Bounds on everything that callers can make the node hold or do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiLimits {
    /// Bytes of a request's body.
    pub(crate) body_bytes: usize,
    /// Bytes of a request's head.
    pub(crate) head_bytes: usize,
    /// Connections open at once.
    pub(crate) connections: usize,
    /// Time for a request's head, counted from the start of the connection or from the last answer,
    /// and again for its body.
    pub(crate) request_time: Duration,
    /// Requests a second of one caller.
    pub(crate) requests_per_second: u32,
    /// Requests a minute without a known token from one address; also logged refusals a minute of
    /// one tenant or reader.
    pub(crate) wrong_tokens_per_minute: u32,
    /// Callers that listen to events or wait for an explanation at once.
    pub(crate) listeners: usize,
    /// Requests that wait for the node at once.
    pub(crate) waiting: usize,
    /// Threads on which requests wait for the node.
    pub(crate) blocking_threads: usize,
}

impl ApiLimits {
    /// Returns the bounds that a policy sets.
    pub(crate) fn of(api: &Api) -> Self {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            body_bytes: size(api.body_bytes),
            head_bytes: HEAD_BYTES,
            connections: size(api.connections),
            request_time: Duration::from_nanos(api.request_time.as_nanos()),
            requests_per_second: api.requests_per_second,
            wrong_tokens_per_minute: api.wrong_tokens_per_minute,
            listeners: size(api.listeners),
            waiting: WAITING,
            blocking_threads: BLOCKING_THREADS,
        }
    }
}

/// The bytes of a request's head: more than any head with a token needs. Hyper takes no less than 8
/// KiB.
const HEAD_BYTES: usize = 16 << 10;
/// The most requests that wait for the node at once.
const WAITING: usize = 64;
/// The threads on which requests wait for the node. Changes are made one at a time; the other
/// threads serve readers.
const BLOCKING_THREADS: usize = 4;
