// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accounted bytes of a frame on a port, by the port's layer and overhead.
//!
//! A rate in a contract counts bits at some layer: on the wire (with preamble, FCS and the gap
//! between frames), of Ethernet, or of IP. Schedulers and policers do not know layers; they count
//! whatever bytes a packet is said to have. So the layer is settled here, once for each frame, in
//! one addition.

use weir_policy::{Layer, Port};

/// Turns a frame's length into accounted bytes, in one addition and one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounting {
    untagged: i32,
    tagged: i32,
    least: i32,
}

impl Accounting {
    /// The accounting of a number that no port has.
    pub(crate) const NONE: Self = Self { untagged: 0, tagged: 0, least: 1 };

    /// The accounting of a port.
    #[must_use]
    pub fn of(port: &Port) -> Self {
        let overhead = port.overhead.clamp(Port::OVERHEAD_MIN, Port::OVERHEAD_MAX);
        let (tag, least) = match port.layer {
            Layer::L1 => (0, WIRE_LEAST + overhead),
            Layer::L2 => (0, 1),
            Layer::L3 => (TAG, 1),
        };
        let untagged = port.packet_overhead();
        Self { untagged, tagged: untagged - tag, least: least.max(1) }
    }

    /// Accounted bytes of a frame of `len` bytes (without FCS; with its tag, if `tagged`). At least
    /// 1: a packet that counts for nothing would never be limited.
    #[inline]
    #[must_use]
    pub fn bytes(self, len: u16, tagged: bool) -> u32 {
        let add = if tagged { self.tagged } else { self.untagged };
        (i32::from(len) + add).max(self.least).unsigned_abs()
    }
}

/// A frame of 60 bytes, the least that is sent, on the wire.
const WIRE_LEAST: i32 = 84;
/// An 802.1Q tag.
const TAG: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::BitRate;

    #[test]
    fn each_layer_counts_what_it_says() {
        let mut port = Port::new("p", BitRate::from_mbps(100));
        let mut check = |layer, overhead, len, tagged, expected| {
            (port.layer, port.overhead) = (layer, overhead);
            assert_eq!(Accounting::of(&port).bytes(len, tagged), expected, "{layer:?} {len}");
        };
        check(Layer::L2, 0, 60, false, 60);
        check(Layer::L2, 4, 1514, false, 1518);
        check(Layer::L2, -64, 60, false, 1);
        check(Layer::L1, 0, 1514, false, 1538);
        check(Layer::L1, 0, 42, false, 84);
        check(Layer::L1, 10, 42, false, 94);
        check(Layer::L1, 0, 64, true, 88);
        check(Layer::L3, 0, 1514, false, 1500);
        check(Layer::L3, 0, 1518, true, 1500);
        check(Layer::L3, 0, 14, false, 1);
    }
}
