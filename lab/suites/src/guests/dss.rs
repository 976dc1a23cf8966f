// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data stream switching: a packet goes on by its label alone, which is swapped for that of the
//! next hop. The label is the 20 bits of IPv6's flow label, always at the same place, so that
//! nothing else of the packet is read.

use super::counts::GuestDrop;
use super::frame::PacketView;

/// Labels and those of the next hop.
#[derive(Debug)]
pub(super) struct LabelTable {
    /// By the label; 0 where there is no stream.
    swapped: Vec<u32>,
}

impl LabelTable {
    /// A table of streams 1 to [`STREAMS`].
    pub(super) fn new() -> Self {
        let swapped = |label| if label == 0 { 0 } else { label + NEXT_HOP };
        Self { swapped: (0..=STREAMS).map(swapped).collect() }
    }

    /// Swaps the label of a frame.
    pub(super) fn apply(&self, frame: &mut [u8]) -> Result<(), GuestDrop> {
        let mut packet = PacketView::of(frame).ok_or(GuestDrop::NotIpv6)?;
        let index = usize::try_from(packet.label()).unwrap_or(usize::MAX);
        let label = self.swapped.get(index).copied().unwrap_or(0);
        if label == 0 {
            return Err(GuestDrop::LabelUnknown);
        }
        packet.set_label(label);
        Ok(())
    }
}

/// Streams that the guest switches.
const STREAMS: u32 = 4095;
/// Labels of the next hop are apart from ours.
const NEXT_HOP: u32 = 0x8_0000;

#[cfg(test)]
mod tests {
    use super::super::fixture::packet;
    use super::*;

    #[test]
    fn known_labels_are_swapped_and_others_dropped() {
        let labels = LabelTable::new();
        let switch = |label: u32| {
            let mut frame = packet(1, b"");
            PacketView::of(&mut frame).unwrap().set_label(label);
            labels.apply(&mut frame)?;
            Ok(PacketView::of(&mut frame).unwrap().label())
        };
        assert_eq!(switch(1), Ok(0x8_0001));
        assert_eq!(switch(4_095), Ok(0x8_0fff));
        for unknown in [0, 4_096, 0xf_ffff] {
            assert_eq!(switch(unknown), Err(GuestDrop::LabelUnknown));
        }
    }
}
