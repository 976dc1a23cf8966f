// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of all devices of a namespace in one dump, without the rest of what there is to know
//! of them: `RTM_GETSTATS`, 240 bytes a device instead of the 1500 of `RTM_GETLINK`.
//!
//! Source: rtnetlink(7), linux/if_link.h (`struct if_stats_msg`, `struct rtnl_link_stats64`).

use std::io;
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use super::LinkCounts;
use crate::error::HostError;

/// A socket to the kernel of the namespace that its thread was in when it was opened.
#[derive(Debug)]
pub struct StatsSocket {
    /// A netlink socket sends and receives by the same calls as any datagram socket; without an
    /// address, it is the kernel that it sends to.
    socket: UdpSocket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl StatsSocket {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn open() -> Result<Self, HostError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes three numbers and touches no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(HostError::last_os("open a socket to", "rtnetlink"));
        }
        // SAFETY: the call just gave this descriptor to us alone.
        let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Calls `each` with number and counters of every device, and gives how many there are. A dump
    /// during which devices came or went is begun again, so that one may be told twice.
    ///
    /// # Errors
    /// The kernel does not answer within a second, refuses (before Linux 4.7), answers with what is
    /// none, or devices come and go all the time.
    pub fn dump(&mut self, mut each: impl FnMut(u32, LinkCounts)) -> Result<usize, HostError> {
        for _ in 0..TRIES {
            let mut body = [0_u8; STATS_BYTES];
            body[8..12].copy_from_slice(&FILTER_LINK_64.to_ne_bytes());
            self.ask(RTM_GETSTATS, NLM_F_DUMP, &body)?;
            let (mut count, mut interrupted) = (0, false);
            while !self.answer(|message| {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                if let (RTM_NEWSTATS, Some((index, counts))) = (message.kind, stats(message.body)) {
                    count += 1;
                    each(index, counts);
                }
            })? {}
            if !interrupted {
                return Ok(count);
            }
        }
        Err(HostError::Refused(format!("rtnetlink: {TRIES} dumps were interrupted by changes")))
    }

    /// The number of the device of that name; none if there is none.
    ///
    /// # Errors
    /// The errors of [`StatsSocket::dump`].
    pub fn index_of(&mut self, name: &str) -> Result<Option<u32>, HostError> {
        let Some(room) = NAME_BYTES.checked_sub(name.len()).filter(|room| *room > 0) else {
            return Ok(None);
        };
        let length = u16::try_from(ATTRIBUTE_BYTES + NAME_BYTES - room + 1).unwrap_or(0);
        let mut body = vec![0_u8; LINK_BYTES];
        body.extend_from_slice(&length.to_ne_bytes());
        body.extend_from_slice(&IFLA_IFNAME.to_ne_bytes());
        body.extend_from_slice(name.as_bytes());
        body.resize(LINK_BYTES + ATTRIBUTE_BYTES + NAME_BYTES, 0);
        // Only as long as the name says: what follows would be read as an attribute.
        body.truncate(LINK_BYTES + usize::from(length).next_multiple_of(4));
        self.ask(RTM_GETLINK, NLM_F_ACK, &body)?;
        let mut index = None;
        loop {
            let done = self.answer(|message| {
                if message.kind == RTM_NEWLINK {
                    index = u32_at(message.body, 4);
                }
            });
            match done {
                Ok(false) => {}
                Ok(true) => return Ok(index),
                Err(HostError::Io { source, .. })
                    if source.raw_os_error() == Some(libc::ENODEV) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), HostError> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(body);
        self.socket.send(&request).map(drop).map_err(failed)
    }

    /// Reads one datagram and hands out its messages; whether the answer is complete. What is left
    /// of an answer that was given up has another sequence number, and is passed over.
    fn answer(&mut self, mut each: impl FnMut(Message<'_>)) -> Result<bool, HostError> {
        let length = self.socket.recv(&mut self.buffer).map_err(failed)?;
        let mut rest = self.buffer.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let (message, sequence, after) = split(rest).ok_or_else(|| garbled(rest.len()))?;
            rest = after;
            if sequence != self.sequence {
                continue;
            }
            match message.kind {
                NLMSG_DONE => return Ok(true),
                NLMSG_ERROR => return acknowledged(message.body),
                _ => each(message),
            }
        }
        Ok(false)
    }
}

/// One message of an answer.
struct Message<'b> {
    kind: u16,
    flags: u16,
    body: &'b [u8],
}

/// The first message, its sequence number, and what follows it.
fn split(bytes: &[u8]) -> Option<(Message<'_>, u32, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER_BYTES..length)?;
    let message = Message { kind: u16_at(bytes, 4)?, flags: u16_at(bytes, 6)?, body };
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((message, u32_at(bytes, 8)?, after))
}

/// The error of an answer: 0 acknowledges.
fn acknowledged(body: &[u8]) -> Result<bool, HostError> {
    let code = u32_at(body, 0).ok_or_else(|| garbled(body.len()))?.cast_signed();
    match code {
        0 => Ok(true),
        code => Err(failed(io::Error::from_raw_os_error(code.saturating_neg()))),
    }
}

/// Number and counters of a device from the body of `RTM_NEWSTATS`.
fn stats(body: &[u8]) -> Option<(u32, LinkCounts)> {
    let index = u32_at(body, 4)?;
    let mut rest = body.get(STATS_BYTES..)?;
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        if u16_at(rest, 2)? == IFLA_STATS_LINK_64 {
            let counts = LinkCounts {
                rx_packets: u64_at(value, 0)?,
                tx_packets: u64_at(value, 8)?,
                rx_dropped: u64_at(value, 48)?,
                tx_dropped: u64_at(value, 56)?,
            };
            return Some((index, counts));
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn failed(error: io::Error) -> HostError {
    HostError::io("ask for counters of", "rtnetlink", error)
}

fn garbled(bytes: usize) -> HostError {
    HostError::Refused(format!("rtnetlink: {bytes} bytes that are no message"))
}

/// Linux fills at most this much of an answer at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The kernel answers at once, or waits for a change of the configuration that takes long.
const PATIENCE: Duration = Duration::from_secs(1);

/// A dump of 2000 devices takes a millisecond.
const TRIES: u32 = 5;
const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
/// `struct if_stats_msg`.
const STATS_BYTES: usize = 12;
/// `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// With the zero at its end.
const NAME_BYTES: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS_LINK_64: u16 = 1;
const FILTER_LINK_64: u32 = 1 << (IFLA_STATS_LINK_64 - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_found_and_counted() {
        let mut socket = StatsSocket::open().unwrap();
        let index = socket.index_of("lo").unwrap().unwrap();
        for _ in 0..3 {
            let mut found = None;
            let count = socket
                .dump(|number, counts| {
                    if number == index {
                        found = Some(counts);
                    }
                })
                .unwrap();
            assert!(count >= 1 && found.is_some());
        }
        for none in ["", "no-such-0", "a-name-that-is-too-long-for-any"] {
            assert_eq!(socket.index_of(none).unwrap(), None, "{none:?}");
        }
        assert_eq!(socket.index_of("lo").unwrap(), Some(index), "after a refusal");
    }

    /// Any bytes give nothing, or something, but no panic.
    #[test]
    fn bytes_that_are_no_message_are_none() {
        let mut bytes: Vec<u8> = Vec::new();
        for n in 0..4000_u32 {
            bytes.push(u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap());
            let tail = bytes.get(bytes.len().saturating_sub(64)..).unwrap();
            let _ = (split(tail).map(|(message, ..)| message.kind), stats(tail));
        }
        let mut zero_length = [0_u8; 24];
        zero_length[12] = 0;
        assert_eq!(stats(&zero_length), None);
        assert!(split(&[0; 16]).is_none(), "a message of no length would never end");
    }
}
