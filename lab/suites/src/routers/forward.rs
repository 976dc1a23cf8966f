// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router that is a process: it forwards from one device to the other, one hop older.
//!
//! It does what a router must do with each IPv4 packet (RFC 1812, 5.2): checks the header,
//! decrements the time to live, updates the checksum, and writes the addresses of the next hop.
//! Frames go through packet sockets in batches of at most [`BATCH`], so that a packet costs 4 µs of
//! a processor under a flood and 5 to 6 µs at half of that rate, nearly all of it the kernel's.
//! After a full batch the process yields to others that wait for the processor.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::str::FromStr;

use weir_experiment::prelude::*;
use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};
use weir_policy::MacAddr;
use weir_ports::{FramePort, PacketConfig, PacketPort, Pool, WaitMode, Waiter, now};
use weir_switch::{Frame, FramePool};
use weir_units::Instant;

/// One of the router's two interfaces. As text: `DEVICE,OWN,NEIGHBOUR[,ADDRESS=OTHER]...`, as in
/// `i1,02:00:00:00:00:01,02:00:00:00:00:02,198.18.1.3=02:00:00:00:00:03`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSide {
    /// The device, in the namespace of the process.
    pub device: String,
    /// The router's address there; it need not be the device's.
    pub own: MacAddr,
    /// The next hop on that side.
    pub neighbour: MacAddr,
    /// Other hosts there, by address: at most [`OTHERS_MAX`].
    pub others: Vec<(Ipv4Addr, MacAddr)>,
}

impl FromStr for RouterSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(',').collect();
        let [device, own, neighbour, others @ ..] = &words[..] else {
            return Err(format!("{text:?} is not DEVICE,OWN,NEIGHBOUR[,ADDRESS=OTHER]..."));
        };
        if others.len() > OTHERS_MAX {
            return Err(format!("{text:?}: {} others; there may be {OTHERS_MAX}", others.len()));
        }
        let mac = |text: &str| text.parse::<MacAddr>().map_err(|error| error.to_string());
        let other = |text: &&str| {
            let (address, other) =
                text.split_once('=').ok_or_else(|| format!("{text:?} is not ADDRESS=OTHER"))?;
            let address =
                address.parse::<Ipv4Addr>().map_err(|error| format!("{address:?}: {error}"))?;
            Ok::<_, String>((address, mac(other)?))
        };
        let others = others.iter().map(other).collect::<Result<_, _>>()?;
        let (own, neighbour) = (mac(own)?, mac(neighbour)?);
        Ok(Self { device: (*device).to_owned(), own, neighbour, others })
    }
}

impl fmt::Display for RouterSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.device, self.own, self.neighbour)?;
        self.others.iter().try_for_each(|(address, other)| write!(f, ",{address}={other}"))
    }
}

impl RouterSide {
    /// Returns the next hop of a packet for this address.
    fn next(&self, address: [u8; 4]) -> MacAddr {
        let other = self.others.iter().find(|(other, _)| other.octets() == address);
        other.map_or(self.neighbour, |(_, mac)| *mac)
    }
}

/// Forwards between two devices of the calling thread's namespace until the process is ended, on
/// processor `cpu` alone if one is given. With `batch` the process stands on a full processor, and
/// lets others there end their turn before it looks for new frames ([`SchedulingClass::Batch`]).
pub fn run(sides: [&RouterSide; 2], cpu: Option<u32>, batch: bool) -> Result<(), ExperimentError> {
    let class = if batch { SchedulingClass::Batch } else { SchedulingClass::Normal { nice: 0 } };
    let asked = batch || cpu.is_some();
    let _reserved = asked.then(|| CpuReservation::take(CpuRequest { cpu, class })).transpose()?;
    let mut pool = Pool::new(FRAMES, 2048)?;
    let open = |side: &RouterSide| {
        let config =
            PacketConfig { receive_buffer: WAITING_BYTES, ..PacketConfig::new(&side.device) };
        PacketPort::open(&config, None)
    };
    let [mut a, mut b] = [open(sides[0])?, open(sides[1])?];
    let idle = WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO };
    let mut waiter = Waiter::new(idle)?;
    let failed =
        |error| ExperimentError::io(format!("{} or {}", sides[0].device, sides[1].device), error);
    for port in [&a, &b] {
        waiter.add(port.descriptor()).map_err(failed)?;
    }
    let mut frames = Vec::with_capacity(BATCH);
    loop {
        let there = pass(&mut a, &mut b, sides[1], &mut pool, &mut frames).map_err(failed)?;
        let back = pass(&mut b, &mut a, sides[0], &mut pool, &mut frames).map_err(failed)?;
        if there + back == 0 {
            let full = a.pending() + b.pending() > 0;
            let until = if full { now() + FULL_PAUSE } else { Instant::FAR_FUTURE };
            waiter.wait(now(), until);
        } else if there.max(back) == BATCH {
            // Under a flood it never waits, and its quota would be checked at the kernel's tick
            // alone: it would run for 4 ms, and then stand still until that is paid off.
            std::thread::yield_now();
        }
    }
}

/// Moves at most a batch of frames from `from` to `to`. Returns the number of frames that came.
fn pass(
    from: &mut impl FramePort,
    to: &mut impl FramePort,
    out: &RouterSide,
    pool: &mut Pool,
    frames: &mut Vec<Frame>,
) -> io::Result<usize> {
    let room = to.transmit_room(pool).min(BATCH);
    let came = from.receive(pool, room, frames);
    for frame in frames.drain(..) {
        let goes = forward(pool.data(frame), out);
        if !goes || to.transmit(pool, frame).is_err() {
            pool.free(frame.id);
        }
    }
    if to.pending() > 0 {
        to.flush(pool)?;
    }
    Ok(came)
}

/// Makes a frame the one that leaves at `out`. Returns false if it must not be forwarded.
fn forward(frame: &mut [u8], out: &RouterSide) -> bool {
    let Some((ethernet, packet)) = frame.split_at_mut_checked(14) else { return false };
    let Some(header) = packet.first_chunk_mut::<20>() else { return false };
    let is_ipv4 = ethernet[12..14] == [0x08, 0x00] && header[0] >> 4 == 4;
    let for_router = ethernet[0] & 1 == 0;
    if !is_ipv4 || !for_router || header[8] <= 1 {
        return false;
    }
    header[8] -= 1;
    // RFC 1624, equation 3: the word of time to live and protocol decreases by 256.
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x0100;
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&u16::try_from(sum).unwrap_or(0).to_be_bytes());
    let next = out.next([header[16], header[17], header[18], header[19]]);
    ethernet[..6].copy_from_slice(&next.0);
    ethernet[6..12].copy_from_slice(&out.own.0);
    true
}

/// Frames moved at once: few enough that the other direction does not wait for long, enough to
/// share the cost of a system call.
pub const BATCH: usize = 32;

/// The most other hosts of a side. All are compared for each packet.
pub const OTHERS_MAX: usize = 8;

/// The frames in both sockets and in this process.
const FRAMES: u32 = 2048;

/// 1000 packets, as the queue of a Linux device holds: each takes a page and its description, and
/// the kernel doubles what is asked for.
const WAITING_BYTES: u32 = 1000 * 2304;

/// The pause before the next try if a device is full.
const FULL_PAUSE: Nanos = Nanos::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 20] =
        [0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 1, 1, 198, 19, 1, 1];

    fn side() -> RouterSide {
        "o1,02:00:00:00:00:01,02:00:00:00:00:02".parse().unwrap()
    }

    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
    }

    /// Goal: the updated checksum is that of the new header, for any header.
    #[test]
    fn a_packet_leaves_one_hop_older_and_intact() {
        for id in (0..=u16::MAX).step_by(7) {
            let mut frame = vec![0x02; 14];
            frame[12..14].copy_from_slice(&[0x08, 0]);
            frame.extend_from_slice(&HEADER);
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            let sum = checksum(&frame[14..]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(checksum(&frame[14..]), 0);
            assert!(forward(&mut frame, &side()));
            assert_eq!((frame[22], checksum(&frame[14..])), (63, 0), "id {id}");
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        }
    }

    #[test]
    fn what_is_no_packet_to_be_forwarded_is_not() {
        let mut good = vec![0x02; 14];
        good[12..14].copy_from_slice(&[0x08, 0]);
        good.extend_from_slice(&HEADER);
        assert!(forward(&mut good.clone(), &side()));
        for (at, value) in [(0, 0x01), (12, 0x86), (14, 0x60), (22, 1), (22, 0)] {
            let mut frame = good.clone();
            frame[at] = value;
            let before = frame.clone();
            assert!(!forward(&mut frame, &side()), "byte {at}");
            assert_eq!(frame, before, "untouched");
        }
        for length in 0..good.len() {
            assert!(!forward(&mut good[..length].to_vec(), &side()), "{length} bytes");
        }
    }

    #[test]
    fn a_side_reads_as_it_is_written() {
        let alone = side();
        let two = ",198.19.1.3=02:00:00:00:00:03,198.19.1.4=02:00:00:00:00:04";
        let with_others: RouterSide = format!("{alone}{two}").parse().unwrap();
        assert_eq!(with_others.others.len(), 2);
        for side in [alone.clone(), with_others] {
            assert_eq!(side.to_string().parse(), Ok(side));
        }
        for text in ["", "a,b", "a,02:00:00:00:00:01,x", "a,b,c,d"] {
            assert!(text.parse::<RouterSide>().is_err(), "{text:?}");
        }
        for more in [",198.19.1.3", ",198.19.1=02:00:00:00:00:03", ",198.19.1.3=2", &two.repeat(5)]
        {
            assert!(format!("{alone}{more}").parse::<RouterSide>().is_err(), "{more:?}");
        }
    }

    #[test]
    fn who_else_is_on_a_side_gets_what_is_for_him() {
        let side: RouterSide = format!("{},198.19.1.1=02:00:00:00:00:09", side()).parse().unwrap();
        for (last, next) in [(1, 9), (2, 2)] {
            let mut frame = vec![0x02; 14];
            frame[12..14].copy_from_slice(&[0x08, 0]);
            frame.extend_from_slice(&HEADER);
            frame[33] = last;
            assert!(forward(&mut frame, &side));
            assert_eq!(frame[..6], [2, 0, 0, 0, 0, next]);
        }
    }
}
