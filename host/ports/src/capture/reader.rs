// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads capture files: the classic format (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), in either byte order.

use std::io::{self, Read};

/// A capture file being read.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    format: Format,
    swapped: bool,
}

/// A frame of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Nanoseconds since 1970; 0 where the file does not say.
    pub nanos: u64,
    /// The bytes that the file holds.
    pub bytes: Vec<u8>,
    /// The frame's length on the wire; more than `bytes` if the capture cut it.
    pub length: usize,
}

#[derive(Debug)]
enum Format {
    /// The factor from the file's fraction of a second to nanoseconds.
    Classic { to_nanos: u64 },
    /// For each interface so far: whether it is Ethernet, and its ticks a second.
    Next { interfaces: Vec<(bool, u64)> },
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// The input fails, or is no capture of Ethernet frames.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic)?;
        let magic = u32::from_ne_bytes(magic);
        if magic == SECTION {
            let mut reader =
                Self { input, format: Format::Next { interfaces: Vec::new() }, swapped: false };
            reader.section()?;
            return Ok(reader);
        }
        let (to_nanos, swapped) = match (magic, magic.swap_bytes()) {
            (MAGIC_MICROS, _) => (1000, false),
            (MAGIC_NANOS, _) => (1, false),
            (_, MAGIC_MICROS) => (1000, true),
            (_, MAGIC_NANOS) => (1, true),
            _ => return Err(invalid("neither pcap nor pcapng")),
        };
        let mut reader = Self { input, format: Format::Classic { to_nanos }, swapped };
        let header: [u8; 20] = reader.array()?;
        let link = reader.word(&header, 16) & 0x0fff_ffff;
        if link == LINKTYPE_ETHERNET { Ok(reader) } else { Err(invalid("not of Ethernet frames")) }
    }

    /// Returns the next frame; `None` at the end.
    ///
    /// # Errors
    /// The input fails, ends within a frame, or contradicts its format.
    pub fn read(&mut self) -> io::Result<Option<CapturedFrame>> {
        match self.format {
            Format::Classic { to_nanos } => self.read_classic(to_nanos),
            Format::Next { .. } => self.read_next(),
        }
    }

    fn read_classic(&mut self, to_nanos: u64) -> io::Result<Option<CapturedFrame>> {
        let Some(first) = self.first_word()? else { return Ok(None) };
        let rest: [u8; 12] = self.array()?;
        let seconds = u64::from(self.word(&first, 0));
        let nanos = seconds * 1_000_000_000 + u64::from(self.word(&rest, 0)) * to_nanos;
        let (held, length) = (self.word(&rest, 4), self.word(&rest, 8) as usize);
        Ok(Some(CapturedFrame { nanos, bytes: self.bytes(held)?, length }))
    }

    fn read_next(&mut self) -> io::Result<Option<CapturedFrame>> {
        loop {
            let Some(kind) = self.first_word()? else { return Ok(None) };
            // The section's mark reads the same in both orders.
            if u32::from_ne_bytes(kind) == SECTION {
                self.section()?;
                continue;
            }
            let kind = self.word(&kind, 0);
            let total: [u8; 4] = self.array()?;
            let total = self.word(&total, 0);
            let body = total.checked_sub(12).ok_or_else(|| invalid("a block shorter than 12"))?;
            let body = self.bytes(body)?;
            let _total_again: [u8; 4] = self.array()?;
            let found = match kind {
                INTERFACE => self.interface(&body)?,
                ENHANCED_PACKET => self.enhanced_packet(&body)?,
                SIMPLE_PACKET => self.simple_packet(&body)?,
                _ => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads a section's header behind its type: the byte order. The section has no interfaces yet.
    fn section(&mut self) -> io::Result<()> {
        let total: [u8; 4] = self.array()?;
        let order: [u8; 4] = self.array()?;
        self.swapped = match u32::from_ne_bytes(order) {
            BYTE_ORDER => false,
            swapped if swapped.swap_bytes() == BYTE_ORDER => true,
            _ => return Err(invalid("a section without a byte order")),
        };
        let rest = self.word(&total, 0).checked_sub(12);
        let rest = rest.ok_or_else(|| invalid("a section shorter than 12"))?;
        self.bytes(rest)?;
        self.format = Format::Next { interfaces: Vec::new() };
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> io::Result<Option<CapturedFrame>> {
        let [low, high, ..] = body else { return Err(invalid("an interface without a type")) };
        let link = if self.swapped { [*high, *low] } else { [*low, *high] };
        let ethernet = u32::from(u16::from_ne_bytes(link)) == LINKTYPE_ETHERNET;
        let ticks = self.ticks_a_second(body.get(8..).unwrap_or_default());
        if let Format::Next { interfaces } = &mut self.format {
            if interfaces.len() == INTERFACES_MAX {
                return Err(invalid("more than 4096 interfaces"));
            }
            interfaces.push((ethernet, ticks));
        }
        Ok(None)
    }

    /// Returns the ticks a second that the option `if_tsresol` states; a million without it.
    fn ticks_a_second(&self, mut options: &[u8]) -> u64 {
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let half = |a, b| {
                let value = u16::from_ne_bytes([a, b]);
                if self.swapped { value.swap_bytes() } else { value }
            };
            let (kind, length) = (half(head[0], head[1]), usize::from(half(head[2], head[3])));
            if kind == OPTION_RESOLUTION
                && let Some(value) = rest.first()
            {
                let power = u32::from(value & 0x7f);
                let base: u64 = if value & 0x80 == 0 { 10 } else { 2 };
                return base.checked_pow(power).unwrap_or(1);
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        1_000_000
    }

    fn enhanced_packet(&self, body: &[u8]) -> io::Result<Option<CapturedFrame>> {
        let Some((head, data)) = body.split_first_chunk::<20>() else {
            return Err(invalid("a packet block shorter than its header"));
        };
        let words = [0, 4, 8, 12, 16].map(|at| self.word(head, at));
        let Format::Next { interfaces } = &self.format else { return Ok(None) };
        let Some((ethernet, ticks)) = interfaces.get(words[0] as usize) else {
            return Err(invalid("a packet of an interface that was not described"));
        };
        if !ethernet {
            return Ok(None);
        }
        let stamp = u128::from(words[1]) << 32 | u128::from(words[2]);
        let nanos = u64::try_from(stamp * 1_000_000_000 / u128::from(*ticks)).unwrap_or(u64::MAX);
        let bytes = data.get(..words[3] as usize).ok_or_else(|| invalid("a packet cut short"))?;
        Ok(Some(CapturedFrame { nanos, bytes: bytes.to_vec(), length: words[4] as usize }))
    }

    fn simple_packet(&self, body: &[u8]) -> io::Result<Option<CapturedFrame>> {
        let Some((head, data)) = body.split_first_chunk::<4>() else {
            return Err(invalid("a packet block shorter than its header"));
        };
        let length = self.word(head, 0) as usize;
        let Format::Next { interfaces } = &self.format else { return Ok(None) };
        if !interfaces.first().is_some_and(|(ethernet, _)| *ethernet) {
            return Ok(None);
        }
        let bytes = data[..length.min(data.len())].to_vec();
        Ok(Some(CapturedFrame { nanos: 0, bytes, length }))
    }

    /// Returns the next four bytes, or `None` if the input ends before the first.
    fn first_word(&mut self) -> io::Result<Option<[u8; 4]>> {
        let mut word = [0; 4];
        if self.input.read(&mut word[..1])? == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut word[1..])?;
        Ok(Some(word))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self, count: u32) -> io::Result<Vec<u8>> {
        if count > BLOCK_MAX {
            return Err(invalid("a block above 16 MiB"));
        }
        let mut bytes = vec![0; count as usize];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the word at `at` of a buffer that is known to hold it.
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        let word = word.map_or(0, u32::from_ne_bytes);
        if self.swapped { word.swap_bytes() } else { word }
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

pub(super) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
pub(super) const LINKTYPE_ETHERNET: u32 = 1;
const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const OPTION_RESOLUTION: u16 = 9;

/// The longest block that is read. A frame is at most 256 KiB, and options may add a little.
const BLOCK_MAX: u32 = 16 << 20;
const INTERFACES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file of one section, one interface with nanoseconds, and one packet of five bytes
    /// at 2³² + 7 ns.
    fn next_generation(order: fn(u32) -> [u8; 4], half: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [SECTION, 28, BYTE_ORDER, 1, u32::MAX, u32::MAX, 28] {
            file.extend(order(word));
        }
        file.extend(order(INTERFACE));
        file.extend(order(32));
        file.extend([half(1), half(0)].concat());
        file.extend(order(0));
        file.extend([half(OPTION_RESOLUTION), half(1)].concat());
        file.extend([9, 0, 0, 0]);
        file.extend(order(0));
        file.extend(order(32));
        for word in [ENHANCED_PACKET, 40, 0, 1, 7, 5, 9] {
            file.extend(order(word));
        }
        file.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        file.extend(order(40));
        file
    }

    #[test]
    fn pcapng_is_read_in_both_byte_orders() {
        let expected =
            CapturedFrame { nanos: (1 << 32) + 7, bytes: vec![1, 2, 3, 4, 5], length: 9 };
        for file in [
            next_generation(u32::to_le_bytes, u16::to_le_bytes),
            next_generation(u32::to_be_bytes, u16::to_be_bytes),
        ] {
            let mut reader = CaptureReader::new(&file[..]).unwrap();
            assert_eq!(reader.read().unwrap(), Some(expected.clone()));
            assert_eq!(reader.read().unwrap(), None);
            // Cut anywhere, it is an end or an error, never a panic.
            for length in 0..file.len() {
                if let Ok(mut reader) = CaptureReader::new(&file[..length]) {
                    let _ = reader.read();
                }
            }
        }
    }

    /// A big-endian file with microseconds, as an old router writes it.
    #[test]
    fn pcap_is_read_in_the_other_byte_order() {
        let mut file = Vec::new();
        for word in [MAGIC_MICROS, 0x0002_0004, 0, 0, 65_535, 1, 3, 5, 2, 2] {
            file.extend(u32::to_be_bytes(word));
        }
        file.extend([8, 9]);
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let expected = CapturedFrame { nanos: 3_000_005_000, bytes: vec![8, 9], length: 2 };
        assert_eq!(reader.read().unwrap(), Some(expected));
        assert_eq!(reader.read().unwrap(), None);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(CaptureReader::new(&b"GIF89a"[..]).is_err());
        let mut wifi = Vec::new();
        for word in [MAGIC_NANOS, 0x0004_0002, 0, 0, 65_535, 105] {
            wifi.extend(u32::to_ne_bytes(word));
        }
        assert!(CaptureReader::new(&wifi[..]).is_err());
    }
}
