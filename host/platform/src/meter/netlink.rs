// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of all devices of a namespace in one dump, without their other properties:
//! `RTM_GETSTATS`, 240 bytes a device instead of the 1500 of `RTM_GETLINK`.
//!
//! Source: rtnetlink(7), linux/if_link.h (`struct if_stats_msg`, `struct rtnl_link_stats64`).

use super::LinkCounts;
use crate::error::HostError;
use crate::netlink::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NetlinkSocket, attribute, push_attribute, u32_at,
    u64_at,
};

/// A socket to the kernel of the namespace that its thread was in when it was opened.
#[derive(Debug)]
pub struct StatsSocket(NetlinkSocket);

impl StatsSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn open() -> Result<Self, HostError> {
        NetlinkSocket::open(libc::NETLINK_ROUTE, "rtnetlink").map(Self)
    }

    /// Calls `each` with number and counters of every device, and returns the number of devices. A
    /// dump during which devices came or went is repeated, so that `each` may get a device twice.
    ///
    /// # Errors
    /// The kernel does not answer within a second, refuses (before Linux 4.7), gives a malformed
    /// answer, or devices come and go all the time.
    pub fn dump(&mut self, mut each: impl FnMut(u32, LinkCounts)) -> Result<usize, HostError> {
        for _ in 0..TRIES {
            let mut body = [0_u8; STATS_BYTES];
            body[8..12].copy_from_slice(&FILTER_LINK_64.to_ne_bytes());
            self.0.ask(RTM_GETSTATS, NLM_F_DUMP, &body)?;
            let (mut count, mut interrupted) = (0, false);
            while !self.0.answer(|message| {
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

    /// Returns the number of the device of that name; `None` if there is none.
    ///
    /// # Errors
    /// The errors of [`StatsSocket::dump`].
    pub fn index_of(&mut self, name: &str) -> Result<Option<u32>, HostError> {
        if name.is_empty() || name.len() >= NAME_BYTES {
            return Ok(None);
        }
        let mut body = vec![0_u8; LINK_BYTES];
        push_attribute(&mut body, IFLA_IFNAME, format!("{name}\0").as_bytes());
        self.0.ask(RTM_GETLINK, NLM_F_ACK, &body)?;
        let mut index = None;
        loop {
            let done = self.0.answer(|message| {
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
}

/// Returns number and counters of a device from the body of `RTM_NEWSTATS`.
fn stats(body: &[u8]) -> Option<(u32, LinkCounts)> {
    let index = u32_at(body, 4)?;
    let value = attribute(body.get(STATS_BYTES..)?, IFLA_STATS_LINK_64)?;
    let counts = LinkCounts {
        rx_packets: u64_at(value, 0)?,
        tx_packets: u64_at(value, 8)?,
        rx_dropped: u64_at(value, 48)?,
        tx_dropped: u64_at(value, 56)?,
    };
    Some((index, counts))
}

/// The most attempts at a dump; one of 2000 devices takes a millisecond.
const TRIES: u32 = 5;
/// `struct if_stats_msg`.
const STATS_BYTES: usize = 12;
/// `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// The bytes of a name, with the zero at its end.
const NAME_BYTES: usize = 16;
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
    use crate::netlink::split;

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
