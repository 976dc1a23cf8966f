// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The factor of the rates of a run, for machines without the speed for the scenarios' own.

use weir_policy::Queue;
use weir_units::{BitRate, PacketRate};

/// The factor, 1 at most, by which all rates of a run are scaled down: `part` of `whole`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunScale {
    part: u64,
    whole: u64,
}

impl RunScale {
    /// Returns the factor that scales `promised` down to `most`; 1 if `promised` is less.
    pub(super) fn to(most: BitRate, promised: BitRate) -> Self {
        Self { part: most.min(promised).as_bps(), whole: promised.as_bps().max(1) }
    }

    /// Returns an amount, scaled.
    pub(super) fn of(self, amount: u64) -> u64 {
        let scaled = u128::from(amount) * u128::from(self.part) / u128::from(self.whole);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Returns true if nothing is scaled.
    pub(super) const fn is_whole(self) -> bool {
        self.part == self.whole
    }

    /// Returns a bit rate, scaled.
    pub(super) fn of_mbps(self, mbps: u64) -> BitRate {
        BitRate::from_bps(self.of(mbps * 1_000_000))
    }

    /// Returns a packet rate, scaled, but not so far that the burst of 64 packets lasts for more
    /// than the second that is not judged.
    pub(super) fn of_packets(self, pps: u64) -> PacketRate {
        PacketRate::from_pps(self.of(pps).max(pps.min(SCALED_PPS_MIN)))
    }

    /// Returns the packets that a vif's queue holds, scaled like the rates: a queue then lasts as
    /// long as at the scenario's own. `None`: as many as a policy gives it.
    pub(super) fn queue_packets(self) -> Option<u32> {
        let scaled = self.of(Queue::default().packets.into()).max(QUEUE_PACKETS_MIN);
        u32::try_from(scaled).ok().filter(|_| !self.is_whole())
    }
}

impl Default for RunScale {
    fn default() -> Self {
        Self { part: 1, whole: 1 }
    }
}

/// A packet rate that is not scaled further. The load is half as much again: 150 a second drain a
/// burst of 64 packets and a short queue within a second.
const SCALED_PPS_MIN: u64 = 300;

/// The shortest queue of a scaled run: a frame that is sent and a few that wait.
const QUEUE_PACKETS_MIN: u64 = 8;
