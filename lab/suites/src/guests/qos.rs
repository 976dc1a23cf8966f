// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPv6 QoS: each packet gets a class of service by its flow, is held against the rate of the
//! class, and carries the class's mark from here on (RFC 2475's classifier, meter and marker).
//!
//! Classes are found by the source port: flows of telephony, of video, and all others. Telephony
//! beyond its rate is dropped (RFC 3246); video beyond it is marked to be dropped first (RFC 2597).

use std::ops::RangeInclusive;

use weir_sched::TokenBucket;
use weir_units::Instant;

use super::counts::GuestDrop;
use super::frame::PacketView;

/// The classes of a guest, each with its meter.
#[derive(Debug)]
pub(super) struct ClassPolicer {
    /// The first that has the flow's port; one that has all is the last.
    classes: [ServiceClass; 3],
}

#[derive(Debug)]
struct ServiceClass {
    ports: RangeInclusive<u16>,
    dscp: u8,
    excess: Excess,
    meter: TokenBucket,
}

/// The fate of packets beyond the rate of their class.
#[derive(Debug)]
enum Excess {
    Dropped,
    Marked(u8),
}

impl ClassPolicer {
    /// Classes whose meters are full.
    pub(super) fn new(now: Instant) -> Self {
        let class = |ports, dscp, excess, bytes_per_second| {
            let meter = TokenBucket::new(bytes_per_second, bytes_per_second / BURST_PARTS, now);
            ServiceClass { ports, dscp, excess, meter }
        };
        Self {
            classes: [
                class(TELEPHONY_PORTS, EXPEDITED, Excess::Dropped, GIGABIT / 4),
                class(VIDEO_PORTS, ASSURED_LOW, Excess::Marked(ASSURED_HIGH), GIGABIT / 4),
                class(0..=u16::MAX, BEST_EFFORT, Excess::Marked(BEST_EFFORT), GIGABIT),
            ],
        }
    }

    /// Classifies, meters and marks a frame.
    pub(super) fn apply(&mut self, frame: &mut [u8], now: Instant) -> Result<(), GuestDrop> {
        let bytes = frame.len() as u64;
        let mut packet = PacketView::of(frame).ok_or(GuestDrop::NotIpv6)?;
        // What has no ports is best effort's.
        let port = packet.ports().map_or(0, |ports| ports.source);
        let class = self.classes.iter_mut().find(|class| class.ports.contains(&port));
        let Some(class) = class else { return Ok(()) };
        let dscp = match (class.meter.try_take(now, bytes), &class.excess) {
            (Ok(()), _) => class.dscp,
            (Err(_), Excess::Marked(dscp)) => *dscp,
            (Err(_), Excess::Dropped) => return Err(GuestDrop::Policed),
        };
        packet.mark(dscp);
        Ok(())
    }
}

/// Two flows in eight of the test's are telephony, two are video.
const TELEPHONY_PORTS: RangeInclusive<u16> = 49_152..=49_153;
const VIDEO_PORTS: RangeInclusive<u16> = 49_154..=49_155;
/// Code points (RFC 3246, RFC 2597).
const EXPEDITED: u8 = 46;
const ASSURED_LOW: u8 = 34;
const ASSURED_HIGH: u8 = 38;
const BEST_EFFORT: u8 = 0;
/// Bytes a second.
const GIGABIT: u64 = 125_000_000;
/// A burst of 50 ms.
const BURST_PARTS: u64 = 20;

#[cfg(test)]
mod tests {
    use weir_units::Nanos;

    use super::super::fixture::packet;
    use super::*;

    /// The class that a frame left with.
    fn class(policer: &mut ClassPolicer, port: u16, now: Instant) -> Result<u8, GuestDrop> {
        let mut frame = packet(port, &[0; 1000]);
        policer.apply(&mut frame, now)?;
        Ok((frame[14] & 0x0f) << 2 | frame[15] >> 6)
    }

    #[test]
    fn flows_are_marked_by_class() {
        let (mut policer, now) = (ClassPolicer::new(Instant::ZERO), Instant::ZERO);
        for (port, dscp) in [(49_152, 46), (49_155, 34), (49_156, 0), (9, 0)] {
            assert_eq!(class(&mut policer, port, now), Ok(dscp), "port {port}");
        }
    }

    /// Goal: each class has its own rate; beyond it telephony goes and video is marked. By hand: a
    /// quarter of a gigabit holds 1 562 500 bytes in 50 ms, 1471 frames of 1062 bytes.
    #[test]
    fn classes_are_held_at_their_rates() {
        let mut policer = ClassPolicer::new(Instant::ZERO);
        let mut many = |port: u16, now: Instant| {
            let all: Vec<_> = (0..1_500).map(|_| class(&mut policer, port, now)).collect();
            all.iter().filter(|one| **one == all[0]).count()
        };
        assert_eq!(many(49_152, Instant::ZERO), 1_471);
        assert_eq!(many(49_154, Instant::ZERO), 1_471);
        assert_eq!(class(&mut policer, 49_152, Instant::ZERO), Err(GuestDrop::Policed));
        assert_eq!(class(&mut policer, 49_154, Instant::ZERO), Ok(ASSURED_HIGH));
        let later = Instant::ZERO + Nanos::from_millis(1);
        assert_eq!(class(&mut policer, 49_152, later), Ok(EXPEDITED));
    }
}
