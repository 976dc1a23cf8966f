// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames of simulated sources: each carries who sent it, its number, and when.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 14 | Ethernet header of the experimental type [`PROBE_TYPE`] |
//! | 14 | 4 | magic, `WSIM` |
//! | 18 | 4 | the source, by position |
//! | 22 | 8 | number of the frame, from 0 |
//! | 30 | 8 | instant at which it was offered, ns |
//!
//! A port may add a VLAN tag of four bytes before the type.

use weir_units::Instant;

/// The stamp of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) source: u32,
    pub(crate) number: u64,
    pub(crate) offered: Instant,
}

impl Probe {
    /// Writes the Ethernet header and this probe to the front of a frame.
    pub(crate) fn write(self, to: [u8; 6], from: [u8; 6], bytes: &mut [u8]) {
        let Some(head) = bytes.first_chunk_mut::<{ PROBE_BYTES as usize }>() else { return };
        head[..6].copy_from_slice(&to);
        head[6..12].copy_from_slice(&from);
        head[12..14].copy_from_slice(&PROBE_TYPE);
        head[14..18].copy_from_slice(&MAGIC);
        head[18..22].copy_from_slice(&self.source.to_be_bytes());
        head[22..30].copy_from_slice(&self.number.to_be_bytes());
        head[30..38].copy_from_slice(&self.offered.as_nanos().to_be_bytes());
    }

    /// Reads the probe of a frame; `None` if it carries none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let payload = match bytes.get(12..14)? {
            [0x81, 0x00] => bytes.get(18..)?,
            _ => bytes.get(14..)?,
        };
        let (magic, rest) = payload.split_first_chunk::<4>()?;
        let (source, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let offered = rest.first_chunk::<8>()?;
        (*magic == MAGIC).then_some(Self {
            source: u32::from_be_bytes(*source),
            number: u64::from_be_bytes(*number),
            offered: Instant::from_nanos(u64::from_be_bytes(*offered)),
        })
    }
}

/// Makes a frame of the probes' type without a probe, `length` bytes long, at least 18, that ends
/// in `mark`.
#[must_use]
pub fn frame(to: [u8; 6], from: [u8; 6], length: usize, mark: u32) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    frame.extend(to);
    frame.extend(from);
    frame.extend(PROBE_TYPE);
    frame.resize(length.max(18) - 4, 0);
    frame.extend(mark.to_be_bytes());
    frame
}

/// The `EtherType` for local experiments (IEEE 802).
pub const PROBE_TYPE: [u8; 2] = [0x88, 0xb5];

/// The shortest frame that carries a probe.
pub const PROBE_BYTES: u16 = 38;

const MAGIC: [u8; 4] = *b"WSIM";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_back_with_and_without_a_tag() {
        let probe = Probe { source: 3, number: 1 << 40, offered: Instant::from_nanos(9) };
        let mut bytes = vec![0; 60];
        probe.write([1; 6], [2; 6], &mut bytes);
        assert_eq!(Probe::read(&bytes), Some(probe));
        let mut tagged = bytes[..12].to_vec();
        tagged.extend([0x81, 0x00, 0, 7]);
        tagged.extend(&bytes[12..]);
        assert_eq!(Probe::read(&tagged), Some(probe));
        assert_eq!(Probe::read(&bytes[..37]), None);
        assert_eq!(Probe::read(&frame([1; 6], [2; 6], 60, 7)), None);
    }
}
