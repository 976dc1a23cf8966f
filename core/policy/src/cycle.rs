// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycles: a port's time divided into phases, each for what one slice sends.
//!
//! A parallel internet has the link to itself in its phase, so that the delay of one says nothing
//! of another's load. What a phase cannot hold is refused here: a frame that is longer than its
//! phase less the guard would wait for ever, and a guarantee above what its frames carry could not
//! be kept. So is a port that counts less of a frame than the link sends: its phases would run into
//! each other.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount, Nanos};

use crate::bounds::SECOND;
use crate::finding::Finding;
use crate::format::{Text, quoted};
use crate::guarantee::Guarantees;
use crate::model::{Layer, Policy, Port, PortCycle, PortId, Slice, SliceId};
use crate::phase::filled_at_most;
use crate::pih::PihForm;
use crate::share::Direction;

/// The cycle of a port.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "cycle")]
pub(crate) struct CycleTable {
    /// Its length. The phases of all slices with a vif on the port must fit; the rest stays empty.
    #[schemars(required, extend("x-minimum" = 10_000, "x-maximum" = SECOND))]
    pub(crate) length: Option<Text<Nanos>>,
    /// Lend the time that a slice leaves of its phase to the others. The link is then never idle
    /// while a frame that fits waits, and the load of one slice shows in the delay of another.
    #[schemars(extend("default" = false))]
    pub(crate) borrow: Option<bool>,
}

impl CycleTable {
    pub(crate) fn resolve(&self) -> PortCycle {
        // A missing length was reported already.
        let length = self.length.map_or(Nanos::ZERO, |text| text.0);
        PortCycle { length, borrow: self.borrow.unwrap_or(false) }
    }

    pub(crate) const fn of(cycle: &PortCycle) -> Self {
        Self { length: Some(Text(cycle.length)), borrow: Some(cycle.borrow) }
    }
}

impl Policy {
    /// Returns the slices that have a vif on a port, in their order.
    pub fn slices_on(&self, port: PortId) -> impl Iterator<Item = (SliceId, &Slice)> {
        self.slices()
            .filter(move |(id, _)| self.vifs.iter().any(|vif| vif.port == port && vif.slice == *id))
    }

    /// Returns the accounted bytes of the longest frame that a slice sends by a port.
    #[must_use]
    pub fn frame_most(&self, port: &Port, slice: &Slice) -> ByteCount {
        let counts_headers = port.layer != Layer::L3;
        let headers = if counts_headers { port.header_bytes(slice) } else { 0 };
        let packet = self.node.frame_size.packet_max().get() + u64::from(headers);
        let bytes = packet.saturating_add_signed(port.packet_overhead().into());
        ByteCount::new(bytes.max(1))
    }
}

impl Port {
    /// Returns the bytes of the tag and number that a slice's frames carry on the port. Vifs see
    /// frames without them.
    #[must_use]
    pub fn header_bytes(&self, slice: &Slice) -> u16 {
        let pih = slice.pih.map_or(0, |_| self.pih.bytes().into());
        slice.vlan.map_or(0, |_| VLAN_TAG) + pih
    }
}

pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    check_headers(policy, findings);
    check_guarantees(policy, findings);
    let has_cycle = policy.ports.iter().any(|port| port.cycle.is_some());
    for (index, _) in policy.slices.iter().enumerate().filter(|(_, slice)| slice.phase.is_some()) {
        if !has_cycle {
            findings.push(Finding::new("slice", index, "phase", "needs a port with a cycle"));
        }
    }
    for (index, (id, port)) in policy.ports().enumerate() {
        let Some(cycle) = port.cycle else { continue };
        check_layer(index, port, findings);
        let mut sum = Nanos::ZERO;
        for (slice_id, slice) in policy.slices_on(id) {
            sum = sum.saturating_add(slice.phase.unwrap_or(Nanos::ZERO));
            check_phase(policy, port, cycle, (slice_id, slice), findings);
        }
        if sum > cycle.length {
            let message = format!("{} is less than the phases of its slices, {sum}", cycle.length);
            findings.push(Finding::new("port", index, "cycle.length", message));
        }
    }
}

/// Checks that the port counts at least the bytes that a frame takes on the wire.
fn check_layer(index: usize, port: &Port, findings: &mut Vec<Finding>) {
    let needs = "preamble, checksum and gap of a frame take time of its phase";
    match port.layer {
        Layer::L1 if port.overhead < 0 => {
            let message =
                format!("{} is less than 0 on a port with a cycle: {needs}", port.overhead);
            findings.push(Finding::new("port", index, "overhead", message));
        }
        Layer::L1 => {}
        Layer::L2 | Layer::L3 => {
            let message = format!("must be \"l1\" on a port with a cycle: {needs}");
            findings.push(Finding::new("port", index, "layer", message));
        }
    }
}

fn check_phase(
    policy: &Policy,
    port: &Port,
    cycle: PortCycle,
    (id, slice): (SliceId, &Slice),
    findings: &mut Vec<Finding>,
) {
    let longest = policy.frame_most(port, slice);
    // In a phase of exactly a frame, it would never leave once the worker is a nanosecond late.
    let needed = port.rate.time_for_ceil(longest).saturating_add(PortCycle::GUARD);
    let name = quoted(&port.name);
    let message = match slice.phase {
        Some(phase) if phase < needed => format!(
            "{phase} is less than {needed} that its longest frame ({longest}) and the guard of {} \
             take on port {name}",
            PortCycle::GUARD
        ),
        None if !cycle.borrow => format!("is missing, and port {name} has a cycle"),
        _ => return,
    };
    findings.push(Finding::new("slice", id.0 as usize, "phase", message));
}

/// Checks that the phases give each slice what it is guaranteed on the port.
fn check_guarantees(policy: &Policy, findings: &mut Vec<Finding>) {
    let rates = Guarantees::of_rates(policy, Direction::Send);
    for (id, port, level) in rates.slices() {
        let port = policy.ports.get(port.0 as usize);
        let slice = policy.slices.get(id.0 as usize);
        let cycle = port.and_then(|port| port.cycle.map(|cycle| (port, cycle)));
        let (Some((port, cycle)), Some(slice)) = (cycle, slice) else { continue };
        // A phase that is missing was reported already, or is asked for nothing but to borrow.
        let phase = slice.phase.unwrap_or(Nanos::ZERO);
        let longest = port.rate.time_for_ceil(policy.frame_most(port, slice));
        let phase = filled_at_most(phase, longest, PortCycle::GUARD);
        let part = u128::from(port.rate.as_bps()) * u128::from(phase.as_nanos())
            / u128::from(cycle.length.as_nanos().max(1));
        let part = BitRate::from_bps(u64::try_from(part).unwrap_or(u64::MAX));
        let guaranteed = BitRate::from_bps(level.own.max(level.members));
        if guaranteed > part && (slice.phase.is_some() || cycle.borrow) {
            let message = format!(
                "gives {part} of port {}, less than the slice's send.min_rate there, {guaranteed}",
                quoted(&port.name)
            );
            findings.push(Finding::new("slice", id.0 as usize, "phase", message));
        }
    }
}

/// Checks that no two slices are the same parallel internet, and that all on a link whose frames
/// carry a bare number have one.
fn check_headers(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<u8, &str> = BTreeMap::new();
    for (index, slice) in policy.slices.iter().enumerate() {
        let Some(pih) = slice.pih else { continue };
        match owners.get(&pih) {
            Some(owner) => {
                let message = format!("{pih} is already the header of slice {}", quoted(owner));
                findings.push(Finding::new("slice", index, "pih", message));
            }
            None => drop(owners.insert(pih, &slice.name)),
        }
    }
    for (id, port) in policy.ports().filter(|(_, port)| port.pih == PihForm::Byte) {
        for (slice_id, slice) in policy.slices_on(id).filter(|(_, slice)| slice.pih.is_none()) {
            let name = quoted(&port.name);
            let (key, is) = match slice.five_tuples.is_empty() {
                true => ("pih", "is missing"),
                false => ("match", "must be a pih instead"),
            };
            let message = format!("{is}: each frame on port {name} carries a number");
            findings.push(Finding::new("slice", slice_id.0 as usize, key, message));
        }
    }
}

/// Bytes of an 802.1Q tag.
const VLAN_TAG: u16 = 4;
