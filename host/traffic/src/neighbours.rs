// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers for the test addresses: a router as a device under test resolves them by ARP (RFC 826)
//! and neighbour discovery (RFC 4861), and drops packets until somebody answers. No host has these
//! addresses, so the tester answers with the address of its own device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use weir_platform::inspect;
use weir_platform::run::Host;
use weir_tester::IpVersion;

use super::error::TrafficError;
use super::packet;
use super::spec::{Mac, RunSpec};
use super::thread::{run_inside, timespec};

/// Answers for addresses at one device, for as long as it exists.
pub(super) struct NeighbourAnswers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NeighbourAnswers {
    /// Begins to answer for `address` at a device. Without one it answers for the usual addresses:
    /// those of sources if `which` is 0, those of destinations if it is 1.
    pub(super) fn at(
        netns: Option<&str>,
        device: &str,
        address: Option<IpAddr>,
        which: usize,
    ) -> Result<Self, TrafficError> {
        let link = inspect::link_in(&Host::default(), netns, device)?;
        let problem = |what| TrafficError::Device(format!("device {device}: {what}"));
        let mac: Mac = link.address.unwrap_or_default().parse().map_err(problem)?;
        let usual = [IpVersion::V4, IpVersion::V6].map(|ip| usual_addresses(ip)[which]);
        let addresses = address.map_or_else(|| usual.into(), |address| vec![address]);
        Self::start(netns, device, mac, addresses)
    }

    fn start(
        netns: Option<&str>,
        device: &str,
        mac: Mac,
        addresses: Vec<IpAddr>,
    ) -> Result<Self, TrafficError> {
        let run = RunSpec { netns: netns.map(ToOwned::to_owned), ..RunSpec::default() };
        let sockets: [OwnedFd; 2] = run_inside(&run, || {
            let open = |protocol| {
                packet::open(device, protocol).map_err(|error| {
                    TrafficError::system(
                        format!("answer for the test addresses at {device}"),
                        error,
                    )
                })
            };
            Ok([open(ETH_ARP)?, open(ETH_IPV6)?])
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                // Without answers a router forwards nothing, and the trials show that.
                if serve(&sockets, mac, &addresses).is_err() {
                    thread::sleep(std::time::Duration::from_nanos(LOOK_NS));
                }
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for NeighbourAnswers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Returns the default source and destination of packets.
pub(super) fn usual_addresses(ip: IpVersion) -> [IpAddr; 2] {
    match ip {
        IpVersion::V4 => ADDRESSES_V4.map(IpAddr::V4),
        IpVersion::V6 => ADDRESSES_V6.map(IpAddr::V6),
    }
}

/// Waits up to [`LOOK_NS`] for requests, and answers them.
fn serve(sockets: &[OwnedFd; 2], mac: Mac, addresses: &[IpAddr]) -> io::Result<()> {
    let mut ready = sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
    poll(&mut ready, Some(&timespec(LOOK_NS)))?;
    for socket in sockets {
        for _ in 0..BATCH {
            let mut frame = [0; FRAME_MAX];
            let Ok((_, bytes)) = recv(socket, &mut frame, RecvFlags::DONTWAIT) else { break };
            if let Some(reply) = answer(&frame[..bytes.min(FRAME_MAX)], mac, addresses) {
                let _sent = send(socket, &reply, SendFlags::DONTWAIT);
            }
        }
    }
    Ok(())
}

/// Returns the reply to a frame that asks for one of `addresses`; `None` for any other frame.
fn answer(frame: &[u8], mac: Mac, addresses: &[IpAddr]) -> Option<Vec<u8>> {
    match frame.get(12..14)? {
        [0x08, 0x06] => arp_reply(frame.get(14..42)?, mac, addresses),
        [0x86, 0xdd] => advertisement(frame, mac, addresses),
        _ => None,
    }
}

/// Returns the reply to an ARP request, which comes without its Ethernet header.
fn arp_reply(request: &[u8], mac: Mac, addresses: &[IpAddr]) -> Option<Vec<u8>> {
    let target: [u8; 4] = request.get(24..28)?.try_into().ok()?;
    let sender = request.get(8..18)?;
    let is_known = addresses.contains(&IpAddr::V4(Ipv4Addr::from(target)));
    // An announcement of the sender's own address asks for nothing.
    if !request.starts_with(&ARP_REQUEST) || !is_known || sender[6..] == target {
        return None;
    }
    let mut reply = [&sender[..6], &mac.0, &[0x08, 0x06], &ARP_REPLY].concat();
    reply.extend([&mac.0[..], &target, sender].concat());
    reply.resize(FRAME_MIN, 0);
    Some(reply)
}

/// Returns the answer to a neighbour solicitation, with the target's link-layer address.
fn advertisement(frame: &[u8], mac: Mac, addresses: &[IpAddr]) -> Option<Vec<u8>> {
    let address = |at: usize| <[u8; 16]>::try_from(frame.get(at..at + 16)?).ok();
    let (source, target) = (address(IPV6 + 8)?, address(ICMP + 8)?);
    let is_solicitation = frame.get(IPV6 + 6..IPV6 + 8)? == [ICMPV6, 255]
        && frame.get(ICMP..ICMP + 2)? == [SOLICITATION, 0];
    let is_known = addresses.contains(&IpAddr::V6(Ipv6Addr::from(target)));
    // An unspecified source looks for a duplicate of its own address.
    if !is_solicitation || !is_known || source == [0; 16] {
        return None;
    }
    let mut icmp = vec![ADVERTISEMENT, 0, 0, 0, SOLICITED_OVERRIDE, 0, 0, 0];
    icmp.extend(target);
    icmp.extend([TARGET_LINK, 1]);
    icmp.extend(mac.0);
    let length = u8::try_from(icmp.len()).ok()?;
    let pseudo = [&target[..], &source, &[0, 0, 0, length, 0, 0, 0, ICMPV6], &icmp].concat();
    icmp[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut reply = [frame.get(6..12)?, &mac.0, &[0x86, 0xdd]].concat();
    reply.extend([0x60, 0, 0, 0, 0, length, ICMPV6, 255]);
    reply.extend([&target[..], &source, &icmp].concat());
    Some(reply)
}

/// Returns the checksum of RFC 1071 of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1]));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// RFC 2544 has 198.18.0.0/15, RFC 5180 has 2001:2::/48.
const ADDRESSES_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 19, 0, 1)];
const ADDRESSES_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 1)];
const ETH_ARP: u16 = 0x0806;
const ETH_IPV6: u16 = 0x86dd;
/// Ethernet, IPv4, lengths 6 and 4, and the operation.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Offsets of the headers.
const IPV6: usize = 14;
const ICMP: usize = IPV6 + 40;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED_OVERRIDE: u8 = 0x60;
/// The option with the target's link-layer address, 8 bytes.
const TARGET_LINK: u8 = 2;
/// The smallest frame, without FCS.
const FRAME_MIN: usize = 60;
/// Bytes that are read of a request; the rest does not matter.
const FRAME_MAX: usize = 128;
/// Frames that one socket is read for before the other.
const BATCH: usize = 64;
/// The longest time between two looks at the flag that ends the thread.
const LOOK_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 0xb]);
    const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 5];

    fn addresses() -> Vec<IpAddr> {
        vec!["198.19.0.1".parse().unwrap(), "2001:2:0:8000::1".parse().unwrap()]
    }

    fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut frame = [&[0xff; 6], &ROUTER[..], &[8, 6], &ARP_REQUEST, &ROUTER].concat();
        frame.extend([&sender[..], &[0; 6], &target].concat());
        frame.resize(60, 0);
        frame
    }

    /// Goal: a router learns where the test address is, and no other question is answered.
    #[test]
    fn a_router_that_asks_by_arp_is_answered() {
        let reply = answer(&arp([198, 19, 0, 254], [198, 19, 0, 1]), OWN, &addresses()).unwrap();
        let head = [&ROUTER[..], &OWN.0, &[8, 6], &ARP_REPLY, &OWN.0, &[198, 19, 0, 1]].concat();
        assert_eq!(reply[..32], head);
        assert_eq!(reply[32..42], [&ROUTER[..], &[198, 19, 0, 254]].concat());
        assert_eq!(reply.len(), 60);
        for (sender, target) in
            [([198, 19, 0, 254], [198, 19, 0, 2]), ([198, 19, 0, 1], [198, 19, 0, 1])]
        {
            assert_eq!(answer(&arp(sender, target), OWN, &addresses()), None);
        }
        let whole = arp([198, 19, 0, 254], [198, 19, 0, 1]);
        for length in 0..42 {
            assert_eq!(answer(&whole[..length], OWN, &addresses()), None);
        }
    }

    /// Goal: the same by neighbour discovery, with a checksum that adds up.
    #[test]
    fn a_router_that_asks_by_neighbour_discovery_is_answered() {
        let [router, own] =
            ["fe80::5", "2001:2:0:8000::1"].map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
        let solicit = |source: [u8; 16], target: [u8; 16], hops: u8| {
            let mut frame = [&[0x33, 0x33, 0xff, 0, 0, 1], &ROUTER[..], &[0x86, 0xdd]].concat();
            frame.extend([0x60, 0, 0, 0, 0, 32, 58, hops]);
            frame.extend([&source[..], &[0xff; 16], &[135, 0, 0, 0, 0, 0, 0, 0], &target].concat());
            frame.extend([1, 1, 2, 0, 0, 0, 0, 5]);
            frame
        };
        let reply = answer(&solicit(router, own, 255), OWN, &addresses()).unwrap();
        assert_eq!(reply[..14], [&ROUTER[..], &OWN.0, &[0x86, 0xdd]].concat());
        assert_eq!((&reply[22..38], &reply[38..54]), (&own[..], &router[..]));
        assert_eq!((reply[54], reply[58], &reply[62..78]), (136, 0x60, &own[..]));
        assert_eq!(reply[78..], [&[2, 1], &OWN.0[..]].concat());
        let pseudo = [&reply[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &reply[54..]].concat();
        assert_eq!(checksum(&pseudo), 0, "with its checksum the sum is all ones");
        assert_eq!(answer(&solicit([0; 16], own, 255), OWN, &addresses()), None, "a duplicate?");
        assert_eq!(answer(&solicit(router, router, 255), OWN, &addresses()), None);
        assert_eq!(answer(&solicit(router, own, 64), OWN, &addresses()), None, "from afar");
        let whole = solicit(router, own, 255);
        assert!((0..78).all(|length| answer(&whole[..length], OWN, &addresses()).is_none()));
    }
}
