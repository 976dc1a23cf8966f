// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds what the kernel's program forwarded and dropped to the counters of the switch.
//!
//! The program counts for each gate from the time when the gate was made, over all processes that
//! adopt it. The switch counts from the time when a vif was added. This module remembers the counts
//! of the program that the switch already has, and adds what is new.

use std::collections::BTreeMap;

use weir_policy::{Policy, VifId};
use weir_ports::{GateId, RedirectCounters, XdpPlane};
use weir_switch::{Direction, Reason, Switch, Tally};
use weir_units::Instant;

/// The program's counts of each gate in use that the switch already has.
#[derive(Debug, Default)]
pub(crate) struct KernelCounts(BTreeMap<GateId, CountedGate>);

/// The counts of one gate that the switch already has.
#[derive(Clone, Copy, Debug, Default)]
struct CountedGate {
    counters: RedirectCounters,
    /// The part of the redirected frames that passed the port.
    wire: Tally,
}

impl KernelCounts {
    /// Takes gates into use. At the start, the counts of an earlier process are added to the
    /// switch's, too. Later, a gate begins with its present counts, since another vif may have had
    /// it before.
    pub(crate) fn attach(&mut self, gates: &[[GateId; 2]], at_start: bool, plane: &XdpPlane) {
        for gate in gates.iter().flatten() {
            self.0.entry(*gate).or_insert_with(|| match at_start {
                true => CountedGate::default(),
                false => CountedGate::begin(plane.redirect_counters(*gate)),
            });
        }
    }

    /// Forgets the counts of a gate whose vif leaves.
    pub(crate) fn detach(&mut self, gate: GateId) {
        self.0.remove(&gate);
    }

    /// Adds what is new. `gates` are those of the vifs, in the order of the policy.
    pub(crate) fn add_to(
        &mut self,
        switch: &mut Switch,
        now: Instant,
        gates: &[[GateId; 2]],
        plane: &XdpPlane,
    ) {
        for (vif, gates) in (0..).map(VifId).zip(gates) {
            for (direction, gate) in Direction::ALL.into_iter().zip(gates) {
                let Some(counted) = self.0.get_mut(gate) else { continue };
                let counters = plane.redirect_counters(*gate);
                if counters != counted.counters {
                    counted.add_to(switch, now, (vif, direction), counters);
                }
            }
        }
    }
}

impl CountedGate {
    /// Begins at the present counts of a gate, which another vif may have had before.
    fn begin(counters: RedirectCounters) -> Self {
        Self { counters, wire: counters.redirected.minus(counters.local) }
    }

    fn add_to(
        &mut self,
        switch: &mut Switch,
        now: Instant,
        (vif, direction): (VifId, Direction),
        counters: RedirectCounters,
    ) {
        let new = counters.redirected.minus(self.counters.redirected);
        switch.account_redirected(switch.vif_iface(vif), direction, new);
        let by_wire = counters.redirected.minus(counters.local).minus(self.wire);
        self.wire = self.wire.plus(by_wire);
        if let Some((port, tag)) = port_and_tag(switch.policy(), vif) {
            let bytes = by_wire.bytes + tag * by_wire.packets;
            let frames = Tally { packets: by_wire.packets, bytes };
            switch.account_redirected(switch.port_iface(port), direction, frames);
        }
        let drops = dropped(&counters).zip(dropped(&self.counters));
        for (reason, (all, known)) in IN_KERNEL.into_iter().zip(drops) {
            switch.account_early_drop(now, vif, direction, reason, all.minus(known));
        }
        self.counters = counters;
    }
}

/// Returns the port of a vif, and the bytes of headers that its frames carry there.
fn port_and_tag(policy: &Policy, vif: VifId) -> Option<(weir_policy::PortId, u64)> {
    let vif = policy.vifs.get(vif.0 as usize)?;
    Some((vif.port, policy[vif.port].header_bytes(&policy[vif.slice]).into()))
}

/// Lists the frames that the program dropped, in the order of [`IN_KERNEL`].
fn dropped(counters: &RedirectCounters) -> impl Iterator<Item = Tally> + use<> {
    counters.policed.into_iter().chain([counters.spoofed, counters.refused])
}

/// The reasons for which the program drops frames of redirected paths: those of the buckets by
/// their position, then the others. Its counters continue over restarts of the node.
pub const IN_KERNEL: [Reason; 8] = [
    Reason::VifPackets,
    Reason::VifBits,
    Reason::RouterPackets,
    Reason::RouterBits,
    Reason::SlicePackets,
    Reason::SliceBits,
    Reason::SpoofedMac,
    Reason::RefusedByReceiver,
];
