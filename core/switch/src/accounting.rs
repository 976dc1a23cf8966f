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
    add: i32,
    /// Set if headers of the slice count.
    counts_headers: bool,
    least: i32,
}

impl Accounting {
    /// The accounting of a number that no port has.
    pub(crate) const NONE: Self = Self { add: 0, counts_headers: true, least: 1 };

    /// Returns the accounting of a port.
    #[must_use]
    pub fn of(port: &Port) -> Self {
        let overhead = port.overhead.clamp(Port::OVERHEAD_MIN, Port::OVERHEAD_MAX);
        let least = if port.layer == Layer::L1 { WIRE_LEAST + overhead } else { 1 };
        let counts_headers = port.layer != Layer::L3;
        Self { add: port.packet_overhead(), counts_headers, least: least.max(1) }
    }

    /// Returns the accounted bytes of a frame of `len` bytes (without FCS), of which `headers` are
    /// the slice's tag and number. At least 1: a packet that counts for nothing would never be
    /// limited.
    #[inline]
    #[must_use]
    pub fn bytes(self, len: u16, headers: u16) -> u32 {
        let spared = if self.counts_headers { 0 } else { i32::from(headers) };
        (i32::from(len) + self.add - spared).max(self.least).unsigned_abs()
    }
}

/// A frame of 60 bytes, the least that is sent, on the wire.
const WIRE_LEAST: i32 = 84;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::BitRate;

    #[test]
    fn each_layer_counts_what_it_says() {
        let mut port = Port::new("p", BitRate::from_mbps(100));
        let mut check = |layer, overhead, len, headers, expected| {
            (port.layer, port.overhead) = (layer, overhead);
            assert_eq!(Accounting::of(&port).bytes(len, headers), expected, "{layer:?} {len}");
        };
        check(Layer::L2, 0, 60, 0, 60);
        check(Layer::L2, 4, 1514, 0, 1518);
        check(Layer::L2, -64, 60, 0, 1);
        check(Layer::L1, 0, 1514, 0, 1538);
        check(Layer::L1, 0, 42, 0, 84);
        check(Layer::L1, 10, 42, 0, 94);
        check(Layer::L1, 0, 64, 4, 88);
        check(Layer::L3, 0, 1514, 0, 1500);
        check(Layer::L3, 0, 1518, 4, 1500);
        check(Layer::L3, 0, 1521, 7, 1500);
        check(Layer::L3, 0, 14, 0, 1);
    }
}
