// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The token bucket of a tunnel's entry, and how it holds packets while their path changes.
//!
//! Packets on a shorter path, or on one whose queues are shorter, would overtake those that are
//! still under way on the old one. So the bucket lets none pass for a hold time, the path is
//! replaced, and it lets none pass for that time again. `tc` cannot stop a bucket, but packets can
//! be made dear: by an overhead of 65 000 bytes each, with tokens for one. That one may pass at any
//! moment; with a pause before the replacement and one after it, it overtakes nobody and nobody
//! overtakes it.
//!
//! The next packet's tokens are there some time after the hold. Until then nothing of what waits
//! passes by itself, since the kernel looks at a bucket when a packet comes or when it has tokens.
//! If the script is cut off, the connection goes on slowly until the router is compared.
//!
//! The queue has room for what comes meanwhile, until the old path has run empty: the room is read
//! back, so that it tells how long an entry was held.

use std::fmt::Write as _;

use serde_json::Value;
use weir_network::TUNNEL_OVERHEAD;

use crate::item::EntryItem;
use crate::links::BURST_LEAST;

/// Writes the line that puts the bucket at the entry's rate.
pub(crate) fn put(entry: &EntryItem, tc: &mut String) {
    let EntryItem { tunnel, rate_bytes: rate, hold_ms, .. } = entry;
    // A millisecond at the rate: timers are late by up to that.
    let burst = (rate / 1000).max(BURST_LEAST);
    let latency = latency_ms(*hold_ms);
    let _ = writeln!(
        tc,
        "qdisc replace dev wc{tunnel} root tbf rate {rate}bps burst {burst} latency {latency}ms \
         overhead {TUNNEL_OVERHEAD}"
    );
}

/// Writes the line that stops the bucket, but for one packet, for twice a hold and more: its own,
/// or the longer one of an entry that is changed together with it.
pub(crate) fn stop(entry: &EntryItem, hold_ms: u16, tc: &mut String) {
    let EntryItem { tunnel, rate_bytes, .. } = entry;
    let stopped_ms = 2 * u64::from(hold_ms) + SCRIPT_MS;
    let rate = HOLD_OVERHEAD * 1000 / stopped_ms;
    let burst = HOLD_OVERHEAD + PACKET_MOST;
    let room = rate_bytes.saturating_mul(latency_ms(hold_ms)) / 1000 + BURST_LEAST;
    let _ = writeln!(
        tc,
        "qdisc replace dev wc{tunnel} root tbf rate {rate}bps burst {burst} limit {room} \
         overhead {HOLD_OVERHEAD}"
    );
}

/// Reads rate and hold of a bucket as `tc` prints it; none if it is not ours. The rate is 0 while
/// it is stopped.
pub(crate) fn read(bucket: &Value) -> Option<(u64, u16)> {
    let options = &bucket["options"];
    let rate = options["rate"].as_u64().filter(|rate| *rate > 0)?;
    if options["overhead"] == HOLD_OVERHEAD {
        return Some((0, 0));
    }
    (options["overhead"] == TUNNEL_OVERHEAD).then_some(())?;
    // The room is printed as the time that it takes at the rate, less the overhead of a packet.
    let overhead_us = u64::from(TUNNEL_OVERHEAD) * 1_000_000 / rate;
    let latency_us = options["lat"].as_u64().unwrap_or_default() + overhead_us;
    let held_us = latency_us.checked_sub(HELD_LATENCY_MS * 1000);
    let hold_ms = held_us.map_or(0, |held| (held + 1000) / 2000);
    Some((rate, u16::try_from(hold_ms).unwrap_or(u16::MAX)))
}

/// Returns the room of the queue as time at the entry's rate.
fn latency_ms(hold_ms: u16) -> u64 {
    match hold_ms {
        0 => LATENCY_MS,
        hold => HELD_LATENCY_MS + 2 * u64::from(hold),
    }
}

/// Room of the queue of an entry.
const LATENCY_MS: u64 = 20;

/// Room beside that for a hold: the usual one, and what comes while the script is late.
const HELD_LATENCY_MS: u64 = LATENCY_MS + SCRIPT_MS;

/// Bytes that a stopped bucket adds to each packet: nearly the most that there may be.
const HOLD_OVERHEAD: u64 = 65_000;

/// More than the largest packet with its header.
const PACKET_MOST: u64 = 1600;

/// Time for which the commands of a hold may be late together.
const SCRIPT_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: the hold of an entry is read back from what `tc` printed of rates and rooms.
    #[test]
    fn a_hold_is_read_back() {
        // The form of iproute2 6.1, for rates of 1 Mbit/s to 1 Gbit/s and holds of 0, 7 and 500 ms.
        for (rate, latency, hold) in [
            (7_500_000, 19_995, 0),
            (7_500_000, 133_995, 7),
            (125_000, 133_680, 7),
            (125_000_000, 20_000, 0),
            (125_000_000, 1_120_000, 500),
        ] {
            let options = json!({"rate": rate, "burst": 15_000, "lat": latency, "overhead": 40});
            assert_eq!(read(&json!({ "options": options })), Some((rate, hold)));
        }
        let stopped = json!({"rate": 500_000, "burst": 66_600, "lat": 1, "overhead": 65_000});
        assert_eq!(read(&json!({ "options": stopped })), Some((0, 0)));
        let foreign = json!({"rate": 500_000, "burst": 66_600, "lat": 20_000});
        assert_eq!(read(&json!({ "options": foreign })), None);
    }
}
