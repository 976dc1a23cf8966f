// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual time: sources that offer frames on a schedule, and a record of every departure.

use weir_switch::{IfaceId, Transmit};

use super::{Rig, UP, ether};
use weir_switch::FramePool;
use weir_units::Instant;

/// Offers frames of one length at one pace, or in bursts.
pub struct Source {
    pub from: IfaceId,
    pub to: [u8; 6],
    pub mac: [u8; 6],
    /// Bytes a frame.
    pub length: usize,
    /// Bits a second of these bytes.
    pub rate: u64,
    /// Frames offered at one instant.
    pub burst: u64,
    /// When the first is offered, in nanoseconds.
    pub start: u64,
    /// Hold back what the switch would refuse, instead of having it dropped.
    pub polite: bool,
    sent: u64,
}

/// A frame that left the switch.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    pub at: u64,
    pub iface: IfaceId,
    /// Which source it came from, by position.
    pub source: usize,
    /// Its number within the source.
    pub number: u64,
    pub offered: u64,
    pub length: u64,
}

impl Source {
    pub fn new(from: IfaceId, mac: [u8; 6], to: [u8; 6], length: usize, rate: u64) -> Self {
        let (burst, start, polite, sent) = (1, 0, false, 0);
        Self { from, to, mac, length, rate, burst, start, polite, sent }
    }

    /// When burst number `n` is offered. Exact: no error gathers.
    fn due(&self) -> u64 {
        let bits = u128::from(self.sent) * self.length as u128 * 8;
        self.start + u64::try_from(bits * 1_000_000_000 / u128::from(self.rate)).unwrap()
    }
}

/// Runs the sources until `end`, taking whatever the switch gives at the instant it gives it.
pub fn run(rig: &mut Rig, sources: &mut [Source], end: u64) -> Vec<Departure> {
    let mut departures = Vec::new();
    loop {
        let offered = sources.iter().map(Source::due).min().unwrap_or(u64::MAX);
        let event = rig.switch.next_event().map_or(u64::MAX, Instant::as_nanos);
        let now = offered.min(event).max(rig.now.as_nanos());
        if now >= end {
            return departures;
        }
        rig.now = Instant::from_nanos(now);
        for (index, source) in (0u32..).zip(sources.iter_mut()) {
            while source.due() <= now {
                for _ in 0..source.burst {
                    offer(rig, source, index, now);
                    source.sent += 1;
                }
            }
        }
        take(rig, now, &mut departures);
    }
}

fn offer(rig: &mut Rig, source: &Source, index: u32, now: u64) {
    if source.polite && credit(rig, source) == 0 {
        return;
    }
    let mut bytes = ether(source.to, source.mac, source.length, index);
    let number = source.sent.to_be_bytes();
    bytes[14..22].copy_from_slice(&number);
    bytes[22..30].copy_from_slice(&now.to_be_bytes());
    rig.put(source.from, &bytes);
}

fn credit(rig: &Rig, source: &Source) -> u32 {
    let vif = weir_policy::VifId(source.from.0 - 1);
    rig.switch.credit(rig.now, vif, weir_switch::Direction::Send)
}

fn take(rig: &mut Rig, now: u64, departures: &mut Vec<Departure>) {
    while take_one(rig, UP, now, departures) {}
    loop {
        rig.switch.advance(rig.now, &mut rig.pool);
        let mut at = UP;
        let mut any = false;
        while let Some(iface) = rig.switch.next_ready(at) {
            while take_one(rig, iface, now, departures) {
                any = true;
            }
            at = IfaceId(iface.0 + 1);
        }
        if !any {
            return;
        }
    }
}

fn take_one(rig: &mut Rig, iface: IfaceId, now: u64, departures: &mut Vec<Departure>) -> bool {
    let Transmit::Frame(frame) = rig.switch.transmit(rig.now, iface, &mut rig.pool) else {
        return false;
    };
    let bytes = rig.pool.data(frame);
    let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    departures.push(Departure {
        at: now,
        iface,
        source: super::mark_of(bytes) as usize,
        number: number(14),
        offered: number(22),
        length: bytes.len() as u64,
    });
    rig.pool.free(frame.id);
    true
}

/// Bytes of a source in each whole second from `from` on.
pub fn by_second(departures: &[Departure], source: usize, from: u64, to: u64) -> Vec<u64> {
    let mut seconds = vec![0; usize::try_from(to - from).unwrap()];
    for departure in departures.iter().filter(|departure| departure.source == source) {
        let second = (departure.at / 1_000_000_000).checked_sub(from);
        let place = second.and_then(|second| usize::try_from(second).ok());
        if let Some(place) = place.and_then(|place| seconds.get_mut(place)) {
            *place += departure.length;
        }
    }
    seconds
}

/// Each source's frames left in the order in which they were offered.
pub fn in_order(departures: &[Departure], sources: usize) -> bool {
    (0..sources).all(|source| {
        let own: Vec<u64> =
            departures.iter().filter(|d| d.source == source).map(|d| d.number).collect();
        own.windows(2).all(|pair| pair[0] < pair[1])
    })
}

/// The most bytes in any window of `window` nanoseconds.
pub fn most_in_window(departures: &[Departure], window: u64) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for departure in departures {
        sum += departure.length;
        while departures[first].at + window <= departure.at {
            sum -= departures[first].length;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}
