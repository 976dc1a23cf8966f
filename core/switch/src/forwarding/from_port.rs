// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwarding of frames from a port: by their headers or five-tuples to bridges, and there by
//! their destination to vifs.

use weir_units::Instant;

use super::{Arrival, BridgePort, Forwarding, NO_BRIDGE, UNTAGGED, check_ethernet, next_member};
use crate::checksum;
use crate::fdb::AddressSource;
use crate::five_tuples::UntaggedBridges;
use crate::frame::Ethernet;
use crate::ids::Ids;
use crate::pih::{Pih, PortHeaders, read_pih};
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::types::IfaceId;
use crate::vlan;

/// The bridges of a port that a frame from it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PortBridges {
    /// The one with this slot.
    One(u16),
    /// All of slices that have no header.
    Untagged,
    /// All untagged bridges that know a vif of the destination address.
    UntaggedKnown,
}

/// A place among the members of bridges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberPlace {
    bridge: usize,
    member: usize,
}

impl Forwarding {
    /// Checks a frame from a port; returns it without headers of its slice, with its bridges.
    ///
    /// # Errors
    /// The reason to drop it.
    pub(crate) fn admit_from_port<P: FramePool>(
        &self,
        port: u32,
        frame: Frame,
        pool: &mut P,
    ) -> Result<(Arrival, PortBridges), Reason> {
        let data = pool.data(frame);
        let state = &self.ports[port as usize];
        let (mut ethernet, bridges, pih) = self.bridges_of(state, data)?;
        let tagged = ethernet.vlan.is_some();
        let headers = ethernet.payload - UNTAGGED;
        // The headers lie within the frame.
        let bare = frame.len - u16::try_from(headers).unwrap_or(0);
        check_ethernet(&ethernet, bare, self.length_max)?;
        if state.completes {
            checksum::complete(data, &ethernet);
        }
        let ecn = ethernet.ecn(data);
        let wire = frame.len;
        let mut frame = frame;
        if tagged {
            frame = vlan::pop(pool, frame)?;
        }
        if pih.is_some() {
            frame = PortHeaders::new(0, pih).pop(pool, frame)?;
        }
        (ethernet.vlan, ethernet.payload) = (None, UNTAGGED);
        Ok((Arrival { frame, ethernet, ecn, wire }, bridges))
    }

    /// Learns the source address of a frame from a port. Returns whether there was room on each of
    /// its bridges. Where there is none, frames to the address are flooded.
    ///
    /// # Errors
    /// The address is alive at a vif of each of the bridges: a loop or a spoof.
    #[inline]
    pub(crate) fn learn_from_port(
        &mut self,
        now: Instant,
        (port, bridges): (u32, PortBridges),
        ethernet: &Ethernet,
    ) -> Result<bool, Reason> {
        let state = &self.ports[port as usize];
        let source = AddressSource::port(state.iface);
        // A vif of one slice may have an address that another slice knows beyond the port.
        let (mut is_taken, mut has_room, mut refused) = (false, true, None);
        for bridge in bridges.of(state) {
            match self.fdb.learn(now, *bridge, ethernet.source, source) {
                Ok(()) => is_taken = true,
                Err(Reason::MacsFull) => (is_taken, has_room) = (true, false),
                Err(reason) => refused = Some(reason),
            }
        }
        refused.filter(|_| !is_taken).map_or(Ok(has_room), Err)
    }

    /// Returns the bridges of a frame from a port, with its Ethernet header, as it would be without
    /// the number of its parallel internet, and that number.
    #[inline]
    fn bridges_of(
        &self,
        state: &BridgePort,
        data: &[u8],
    ) -> Result<(Ethernet, PortBridges, Option<Pih>), Reason> {
        let ethernet = Ethernet::read(data)?;
        let tag = ethernet.vlan.unwrap_or(0);
        let read = match state.pih {
            Some(form) => read_pih(data, &ethernet, form)?,
            None => None,
        };
        let Some((pih, ethernet)) = read else {
            let bridges = match state.bridge(tag) {
                _ if tag == 0 && !self.five_tuples.is_empty() => {
                    self.untagged_bridges(state, data, &ethernet)?
                }
                Some(bridge) => PortBridges::One(bridge),
                None => return Err(Reason::UnknownVlan),
            };
            return Ok((ethernet, bridges, None));
        };
        let bridge = state.bridge(pih.bridge()).ok_or(Reason::PihUnknown)?;
        let expected = self.bridges.get(usize::from(bridge)).map(|bridge| bridge.tag);
        if expected != Some(tag) {
            return Err(Reason::UnknownVlan);
        }
        Ok((ethernet, PortBridges::One(bridge), Some(pih)))
    }

    /// Returns the bridges of a frame without a header, where slices are told by five-tuples.
    #[inline(never)]
    fn untagged_bridges(
        &self,
        state: &BridgePort,
        data: &[u8],
        ethernet: &Ethernet,
    ) -> Result<PortBridges, Reason> {
        let here = |number| state.bridge(number);
        let bridges = match self.five_tuples.bridges_of(data, ethernet, here) {
            UntaggedBridges::Matched(bridge) => Some(PortBridges::One(bridge)),
            UntaggedBridges::Plain => here(0).map(PortBridges::One),
            UntaggedBridges::All => (!state.untagged.is_empty()).then_some(PortBridges::Untagged),
        };
        bridges.ok_or(Reason::FiveTupleUnknown)
    }

    /// Finds the one vif that a frame from a port is for; `None` if it is flooded, or copied to all
    /// bridges.
    ///
    /// # Errors
    /// The destination is behind the port that the frame came from.
    #[inline]
    pub(crate) fn route_from_port(
        &self,
        now: Instant,
        ids: &Ids,
        bridges: PortBridges,
        ethernet: &Ethernet,
    ) -> Result<Option<usize>, Reason> {
        let PortBridges::One(bridge) = bridges else { return Ok(None) };
        if ethernet.is_group() {
            return Ok(None);
        }
        match self.fdb.lookup(now, bridge, ethernet.destination) {
            None => Ok(None),
            Some(iface) => ids.vif_of(IfaceId(iface)).map(Some).ok_or(Reason::NoDestination),
        }
    }

    /// Narrows all bridges without a header to those that know a vif of the destination address, if
    /// there are any: the others need no copy.
    pub(crate) fn narrowed(
        &self,
        now: Instant,
        ids: &Ids,
        (port, bridges): (u32, PortBridges),
        ethernet: &Ethernet,
    ) -> PortBridges {
        let PortBridges::Untagged = bridges else { return bridges };
        let mut all = self.ports[port as usize].untagged.iter();
        let knows = |bridge: &u16| self.vif_of(now, ids, *bridge, ethernet.destination).is_some();
        let is_known = !ethernet.is_group() && all.any(knows);
        if is_known { PortBridges::UntaggedKnown } else { bridges }
    }

    /// Returns the vif of an address on a bridge, if it is known.
    fn vif_of(&self, now: Instant, ids: &Ids, bridge: u16, mac: u64) -> Option<usize> {
        self.fdb.lookup(now, bridge, mac).and_then(|iface| ids.vif_of(IfaceId(iface)))
    }

    /// Returns the next vif from a place on that gets a copy of a frame from a port, and the place
    /// to go on from. A vif whose addresses are all given gets no frame to an unknown address,
    /// which cannot be its own.
    pub(crate) fn next_from_port(
        &self,
        (now, ids): (Instant, &Ids),
        (port, bridges): (u32, PortBridges),
        ethernet: &Ethernet,
        from: MemberPlace,
    ) -> Option<(usize, MemberPlace)> {
        let mut member = from.member;
        let all = bridges.of(&self.ports[port as usize]).iter().enumerate();
        for (at, bridge) in all.skip(from.bridge) {
            let vif_of = |mac| self.vif_of(now, ids, *bridge, mac);
            // A slice whose vif has the source address takes the frame for a loop or a spoof.
            if !matches!(bridges, PortBridges::One(_)) && vif_of(ethernet.source).is_some() {
                member = 0;
                continue;
            }
            let known = match bridges {
                PortBridges::UntaggedKnown => Some(vif_of(ethernet.destination)),
                PortBridges::One(_) | PortBridges::Untagged => None,
            };
            let wants = |vif: usize| match known {
                Some(only) => only == Some(vif),
                None => ethernet.is_group() || !self.vifs[vif].source.fixed,
            };
            let members = self.bridges.get(usize::from(*bridge)).map(|bridge| &bridge.members);
            let next = members.and_then(|members| next_member(members, member, wants));
            if let Some((vif, member)) = next {
                return Some((vif, MemberPlace { bridge: at, member }));
            }
            member = 0;
        }
        None
    }
}

impl PortBridges {
    /// Returns the slots of the bridges.
    #[inline]
    fn of<'a>(&'a self, port: &'a BridgePort) -> &'a [u16] {
        match self {
            Self::One(bridge) => core::slice::from_ref(bridge),
            Self::Untagged | Self::UntaggedKnown => &port.untagged,
        }
    }
}

impl BridgePort {
    /// Returns the slot of the bridge of a number.
    #[inline]
    fn bridge(&self, number: u16) -> Option<u16> {
        let bridge = self.by_number.get(usize::from(number)).copied();
        bridge.filter(|bridge| *bridge != NO_BRIDGE)
    }
}
