// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Throughput Meter and Collector (§5.1): counters of every interface in one pass, summed for
//! each router.

use std::collections::HashMap;

use weir_control::Reading;
use weir_units::Instant;

use super::{LinkCounts, ProcNetDev, StatsSocket};
use crate::error::HostError;

/// The end of a router's interface that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host's: a guest's vif, a TAP, the outer end of a veth. What the host receives there is
    /// what the router forwarded; what was dropped on the way in is counted as offered.
    Host,
    /// The router's own, inside its namespace. What was dropped before it does not show.
    Router,
}

/// Counts for routers, from one namespace's devices.
#[derive(Debug)]
pub struct LinkMeter {
    source: Source,
    links: Vec<Link>,
    /// Places in `links` by number (netlink) or name (`/proc/net/dev`).
    by_index: HashMap<u32, usize>,
    by_name: HashMap<String, usize>,
    /// Places in `links` of each router.
    routers: Vec<Vec<usize>>,
    round: u64,
    at: Option<Instant>,
    /// The place where the search for missing devices goes on.
    search: usize,
}

#[derive(Debug)]
enum Source {
    Netlink(StatsSocket),
    Text(ProcNetDev),
}

#[derive(Debug)]
struct Link {
    name: String,
    side: Side,
    index: Option<u32>,
    counts: LinkCounts,
    /// The pass in which it was last seen; 0: never.
    seen: u64,
}

impl LinkMeter {
    /// Opens a meter of the devices of the calling thread's namespace, by netlink.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> Result<Self, HostError> {
        Ok(Self::new(Source::Netlink(StatsSocket::open()?)))
    }

    /// Opens a meter that reads `/proc/net/dev` instead, for kernels before 4.7. It is seven times
    /// as slow.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_text() -> Result<Self, HostError> {
        Ok(Self::new(Source::Text(ProcNetDev::open()?)))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            links: Vec::new(),
            by_index: HashMap::new(),
            by_name: HashMap::new(),
            routers: Vec::new(),
            round: 0,
            at: None,
            search: 0,
        }
    }

    /// Adds a router with these interfaces, and returns its place. The devices need not exist yet.
    ///
    /// # Errors
    /// It has none; one of them is another router's, or named twice; there are [`LINKS_MAX`]
    /// already.
    pub fn add(&mut self, interfaces: &[(String, Side)]) -> Result<usize, HostError> {
        let refuse = |text: String| Err(HostError::Refused(text));
        if interfaces.is_empty() {
            return refuse("a router without interfaces: nothing to count".to_owned());
        }
        if self.links.len() + interfaces.len() > LINKS_MAX {
            return refuse(format!("counted devices: must be at most {LINKS_MAX}"));
        }
        let begin = self.links.len();
        for (name, side) in interfaces {
            if self.by_name.contains_key(name) {
                for link in self.links.drain(begin..) {
                    self.by_name.remove(&link.name);
                }
                return refuse(format!("device {name}: it is counted for a router already"));
            }
            self.by_name.insert(name.clone(), self.links.len());
            let counts = LinkCounts::default();
            self.links.push(Link { name: name.clone(), side: *side, index: None, counts, seen: 0 });
        }
        self.routers.push((begin..self.links.len()).collect());
        Ok(self.routers.len() - 1)
    }

    /// Reads all counters. Missing devices are looked for by name: all in the first pass, at most
    /// [`SEARCHED_MAX`] in each later one.
    ///
    /// # Errors
    /// The kernel does not answer. The last counters stay, with their time, and grow stale.
    pub fn read(&mut self, now: Instant) -> Result<(), HostError> {
        self.search()?;
        let round = self.round + 1;
        let links = &mut self.links;
        let mut take = |place: Option<&usize>, counts| {
            if let Some(link) = place.and_then(|place| links.get_mut(*place)) {
                (link.counts, link.seen) = (counts, round);
            }
        };
        match &mut self.source {
            Source::Netlink(socket) => {
                socket.dump(|index, counts| take(self.by_index.get(&index), counts))?
            }
            Source::Text(file) => {
                file.dump(|line| take(self.by_name.get(line.name), line.counts))?
            }
        };
        (self.round, self.at) = (round, Some(now));
        Ok(())
    }

    /// Returns the counters of a router from the last pass; `None` if one of its devices is missing
    /// or nothing was read yet. The caller adds the CPU time.
    #[must_use]
    pub fn reading(&self, router: usize) -> Option<Reading> {
        let (mut packets, mut offered) = (0_u64, 0_u64);
        for place in self.routers.get(router)? {
            let link = self.links.get(*place).filter(|link| link.is_there(self.round))?;
            let (link_packets, link_offered) = link.packets();
            packets = packets.wrapping_add(link_packets);
            offered = offered.wrapping_add(link_offered);
        }
        Some(Reading { at: self.at?, packets, offered: Some(offered), cpu: None })
    }

    /// Returns the devices of a router that were missing in the last pass.
    pub fn missing(&self, router: usize) -> impl Iterator<Item = &str> {
        let places = self.routers.get(router).map_or(&[][..], Vec::as_slice);
        let links = places.iter().filter_map(|place| self.links.get(*place));
        links.filter(|link| !link.is_there(self.round)).map(|link| link.name.as_str())
    }

    /// Looks for devices without a number, or whose number was not in the last pass: a device that
    /// was made anew has another number.
    fn search(&mut self) -> Result<(), HostError> {
        let Source::Netlink(socket) = &mut self.source else { return Ok(()) };
        let (count, mut left) = (self.links.len(), SEARCHED_MAX);
        if self.round == 0 {
            left = count;
        }
        for step in 0..count {
            let place = (self.search + step) % count;
            let Some(link) = self.links.get_mut(place).filter(|l| !l.is_there(self.round)) else {
                continue;
            };
            if left == 0 {
                self.search = place;
                return Ok(());
            }
            left -= 1;
            if let Some(old) = link.index.take() {
                self.by_index.remove(&old);
            }
            link.index = socket.index_of(&link.name)?;
            if let Some(new) = link.index {
                self.by_index.insert(new, place);
            }
        }
        Ok(())
    }
}

impl Link {
    const fn is_there(&self, round: u64) -> bool {
        round > 0 && self.seen == round
    }

    /// Returns the forwarded and the offered packets.
    const fn packets(&self) -> (u64, u64) {
        let counts = &self.counts;
        match self.side {
            Side::Host => (counts.rx_packets, counts.tx_packets.wrapping_add(counts.tx_dropped)),
            Side::Router => (counts.tx_packets, counts.rx_packets.wrapping_add(counts.rx_dropped)),
        }
    }
}

/// The most devices of one meter: a node has at most this many vifs.
pub const LINKS_MAX: usize = 65_536;

/// The most devices that are looked for in a later pass: each costs a call of 5 µs.
pub const SEARCHED_MAX: usize = 32;
