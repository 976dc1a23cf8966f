// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of all devices of a namespace as text, for kernels whose netlink has none: one read of
//! `/proc/net/dev` into a buffer that stays.
//!
//! Source: proc_pid_net(5). A name is at most 15 bytes and holds no colon that is not its own
//! alias's; the numbers follow the last one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::LinkCounts;
use crate::error::HostError;

/// The file, of the namespace that its thread was in when it was opened.
#[derive(Debug)]
pub struct ProcNetDev {
    file: File,
    buffer: Vec<u8>,
}

/// One device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLine<'t> {
    /// Its name.
    pub name: &'t str,
    /// Its counters.
    pub counts: LinkCounts,
}

impl ProcNetDev {
    /// Opens the file.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn open() -> Result<Self, HostError> {
        let file = File::open(PATH).map_err(|error| HostError::io("open", PATH, error))?;
        Ok(Self { file, buffer: vec![0; BYTES_FIRST] })
    }

    /// Calls `each` for every device, and returns the number of devices.
    ///
    /// # Errors
    /// It cannot be read, or is longer than 4 MiB.
    pub fn dump(&mut self, mut each: impl FnMut(DeviceLine<'_>)) -> Result<usize, HostError> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length >= BYTES_MAX {
                    return Err(HostError::Refused(format!("{PATH}: above {BYTES_MAX} bytes")));
                }
                self.buffer.resize(length * 2, 0);
            }
            let room = self.buffer.get_mut(length..).unwrap_or_default();
            let read = self.file.read_at(room, u64::try_from(length).unwrap_or(u64::MAX));
            match read.map_err(|error| HostError::io("read", PATH, error))? {
                0 => break,
                more => length += more,
            }
        }
        let text = self.buffer.get(..length).unwrap_or_default();
        let mut count = 0;
        for line in parse(&String::from_utf8_lossy(text)) {
            count += 1;
            each(line);
        }
        Ok(count)
    }
}

/// Returns the devices of a text; other lines, such as its head, are skipped.
pub fn parse(text: &str) -> impl Iterator<Item = DeviceLine<'_>> {
    text.lines().filter_map(|line| {
        let (name, numbers) = line.rsplit_once(':')?;
        let mut numbers = numbers.split_ascii_whitespace();
        let mut field = |skipped| numbers.nth(skipped)?.parse::<u64>().ok();
        // Received: bytes, packets, errs, drop, four more; sent: bytes, packets, errs, drop.
        let counts = LinkCounts {
            rx_packets: field(1)?,
            rx_dropped: field(1)?,
            tx_packets: field(5)?,
            tx_dropped: field(1)?,
        };
        Some(DeviceLine { name: name.trim(), counts })
    })
}

/// The file for the calling thread's namespace.
const PATH: &str = "/proc/thread-self/net/dev";
const BYTES_FIRST: usize = 64 << 10;

/// The most bytes that are read: enough for 30000 devices.
const BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_packets_and_drops_of_both_directions() {
        let head = "Inter-|   Receive                |  Transmit\n face |bytes    packets errs\n";
        let text = format!("{head}  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\na:1: 1 2 3 4\nx");
        let found: Vec<DeviceLine<'_>> = parse(&text).collect();
        let counts = LinkCounts { rx_packets: 2, rx_dropped: 4, tx_packets: 10, tx_dropped: 12 };
        assert_eq!(found, [DeviceLine { name: "eth0", counts }]);
    }

    #[test]
    fn the_own_namespace_has_a_loopback_device() {
        let mut file = ProcNetDev::open().unwrap();
        for _ in 0..2 {
            let mut names = Vec::new();
            let count = file.dump(|line| names.push(line.name.to_owned())).unwrap();
            assert_eq!(count, names.len());
            assert!(names.contains(&"lo".to_owned()), "{names:?}");
        }
    }
}
