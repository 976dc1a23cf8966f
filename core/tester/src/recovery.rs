// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of a test of system recovery (RFC 2544, section 26.5).

use serde::{Deserialize, Serialize};

/// System recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The overload, packets a second.
    pub over_pps: u64,
    /// The load after it, packets a second.
    pub pps: u64,
    /// From the end of the overload to the last lost packet, ns.
    pub recovery_ns: u64,
    /// Length of the overload, ns.
    #[serde(default)]
    pub over_ns: u64,
    /// The DUT still lost packets at the end of the test, `recovery_ns` after the overload.
    #[serde(default)]
    pub is_lossy_at_end: bool,
    /// Packets that the tester itself missed. With any, `recovery_ns` is an upper bound, and loss
    /// at the end may be the tester's.
    #[serde(default)]
    pub tester_missed: u64,
}

impl Recovery {
    /// Returns the meaning of `recovery_ns` in a table.
    pub(crate) const fn quantity(&self) -> &'static str {
        match (self.is_lossy_at_end, self.tester_missed > 0) {
            (false, false) => "recovery",
            (true, false) => "not recovered in",
            (false, true) => "recovery: at most",
            (true, true) => "recovery: unknown; packets missing for",
        }
    }
}
