// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shaper as a bottleneck.

use std::collections::VecDeque;

use weir_units::Instant;

use super::bottleneck::{Bottleneck, Crossing};
use crate::shaper::{ShapedPacket, Shaper};

/// A shaper, what it holds, and a record of each packet that came to it.
pub struct ShapedLink {
    shaper: Box<dyn Shaper>,
    /// The packets inside, with the instants at which they leave, in order.
    inside: VecDeque<(Crossing, Instant)>,
    packets: Vec<ShapedPacket>,
}

impl ShapedLink {
    /// A shaper that holds nothing yet.
    #[must_use]
    pub fn new(shaper: Box<dyn Shaper>) -> Self {
        Self { shaper, inside: VecDeque::new(), packets: Vec::new() }
    }

    /// Every packet that came, in order.
    #[must_use]
    pub fn packets(&self) -> &[ShapedPacket] {
        &self.packets
    }
}

impl Bottleneck for ShapedLink {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        let left = self.shaper.admit(now, packet.bytes);
        let window = self.shaper.window();
        self.packets.push(ShapedPacket { arrived: now, left, bytes: packet.bytes, window });
        match left {
            Some(left) => self.inside.push_back((packet, left)),
            None => lost.push(packet),
        }
    }

    fn release(&mut self, now: Instant, _: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        self.inside.pop_front_if(|(_, left)| *left <= now)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(_, left)| *left)
    }
}
