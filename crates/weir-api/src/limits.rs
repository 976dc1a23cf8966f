// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of the interface.

use std::time::Duration;

/// What a caller can make the node hold or do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a request's body.
    pub(crate) body_bytes: usize,
    /// Bytes of a request's head.
    pub(crate) head_bytes: usize,
    /// Connections open at once.
    pub(crate) connections: usize,
    /// From the first byte of a request's head, or the end of the last answer, to the head's end.
    pub(crate) header_time: Duration,
    /// From a head's end to the body's end.
    pub(crate) body_time: Duration,
    /// Requests that wait for the node at once.
    pub(crate) waiting: usize,
    /// Threads that they wait on.
    pub(crate) blocking_threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 10,
            head_bytes: 16 << 10,
            connections: 256,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            waiting: 64,
            blocking_threads: 4,
        }
    }
}
