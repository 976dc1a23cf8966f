// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks of tunnels' packets at the router where these enter.

use crate::item::PROTOCOL;

/// The upper eight bits of all marks of ours: the number of the broker's protocol.
pub(crate) const MARKS: u32 = PROTOCOL << 24;

/// The bit of packets that have passed their bucket.
pub(crate) const BEHIND: u32 = 1 << 16;

/// Returns the mark of a tunnel's packets before its bucket.
pub(crate) fn mark_before(tunnel: u16) -> u32 {
    MARKS | u32::from(tunnel)
}

/// Returns the mark of a tunnel's packets behind its bucket.
pub(crate) fn mark_behind(tunnel: u16) -> u32 {
    mark_before(tunnel) | BEHIND
}
