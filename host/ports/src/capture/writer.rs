// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes capture files in the classic format with nanoseconds (draft-ietf-opsawg-pcap), which
//! every reader of the last decade understands.

use std::io::{self, Write};

use super::reader::{LINKTYPE_ETHERNET, MAGIC_NANOS};

/// A capture file being written.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    out: W,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// The output fails.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&MAGIC_NANOS.to_ne_bytes());
        header[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        header[6..8].copy_from_slice(&4_u16.to_ne_bytes());
        header[16..20].copy_from_slice(&SNAP_LENGTH.to_ne_bytes());
        header[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_ne_bytes());
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Appends a whole frame, seen `nanos` after 1970.
    ///
    /// # Errors
    /// The output fails, or the frame is longer than 256 KiB.
    pub fn write(&mut self, nanos: u64, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).ok().filter(|length| *length <= SNAP_LENGTH);
        let length = length.ok_or_else(|| io::Error::other("a frame above 256 KiB"))?;
        // The format's seconds end in 2106; the remainder is below 10⁹.
        let seconds = u32::try_from(nanos / 1_000_000_000).unwrap_or(u32::MAX);
        let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
        for word in [seconds, rest, length, length] {
            self.out.write_all(&word.to_ne_bytes())?;
        }
        self.out.write_all(frame)
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// The output fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

const SNAP_LENGTH: u32 = 262_144;
