// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fills the status of a running node from the switch's counters and the policy.
//!
//! The types are those of `weir-api-types`, which callers of the API read.

use std::collections::BTreeMap;

use weir_policy::Policy;
use weir_switch::{Counters, FlowCounters, Reason, SmoothState, Tally};

pub use weir_api_types::status::{
    Amount, DirectionStatus, FlowsStatus, IfaceStatus, InFlightStatus, NodeStatus, RemovedPackets,
    SliceStatus, SmoothStatus, WorkerStatus,
};

/// Returns a tally as part of a status.
pub(crate) const fn amount(tally: Tally) -> Amount {
    Amount { packets: tally.packets, bytes: tally.bytes }
}

/// Returns the counters of one direction as part of a status.
pub(crate) fn direction(counters: &Counters) -> DirectionStatus {
    let by = |reasons: &[Reason], count: &dyn Fn(Reason) -> Tally| {
        let each = reasons.iter().map(|&reason| (reason.name().to_owned(), count(reason)));
        let occurred = each.filter(|(_, tally)| *tally != Tally::default());
        occurred.map(|(name, tally)| (name, amount(tally))).collect()
    };
    DirectionStatus {
        received: amount(counters.received),
        copies: amount(counters.copies),
        dropped: by(&Reason::ALL, &|reason| counters.dropped_for(reason)),
        enqueued: amount(counters.enqueued),
        dropped_after: amount(counters.dropped_after),
        dropped_after_by: by(&Reason::AFTER_QUEUE, &|r| counters.dropped_after_for(r)),
        sent: amount(counters.sent),
        redirected: amount(counters.redirected),
        backlog: amount(counters.backlog()),
        marked: counters.marked,
        unlearned: counters.unlearned,
        ..DirectionStatus::default()
    }
}

/// Returns the state of a smooth window as part of a status.
pub(crate) fn smooth(state: SmoothState) -> SmoothStatus {
    let SmoothState { position, late, refused, .. } = state;
    SmoothStatus { position_ns: position.as_nanos(), late, refused }
}

/// Returns the counters of flow queues as part of a status.
pub(crate) const fn flows(counters: FlowCounters) -> FlowsStatus {
    let FlowCounters { started, shared, active, sparse } = counters;
    FlowsStatus { active, sparse, started, shared }
}

/// Counts frames that were dropped before the switch read them.
pub(crate) fn add_early_drops(to: &mut DirectionStatus, reason: Reason, frames: Tally) {
    if frames.packets == 0 {
        return;
    }
    let dropped = to.dropped.entry(reason.name().to_owned()).or_default();
    for amount in [&mut to.received, dropped] {
        amount.packets += frames.packets;
        amount.bytes += frames.bytes;
    }
}

/// Adds the ports and vifs of `policy` that wait for their devices, each in its place.
pub fn add_waiting(to: &mut NodeStatus, policy: &Policy) {
    let ports = policy.ports.iter().map(|port| (&port.name, &port.device));
    to.ports = with_waiting(std::mem::take(&mut to.ports), ports);
    let vifs = policy.vifs.iter().map(|vif| (&vif.name, &vif.device));
    to.vifs = with_waiting(std::mem::take(&mut to.vifs), vifs);
}

/// Returns one status for each name, in the order of `names`: that of the attached interface, or
/// one that waits for its device. An attached interface without a name is dropped: a change that
/// removes it is in progress.
fn with_waiting<'p>(
    there: Vec<IfaceStatus>,
    names: impl Iterator<Item = (&'p String, &'p String)>,
) -> Vec<IfaceStatus> {
    let mut by_name: BTreeMap<String, IfaceStatus> =
        there.into_iter().map(|iface| (iface.name.clone(), iface)).collect();
    let waiting = |name: &String, device: &String| IfaceStatus {
        name: name.clone(),
        device: device.clone(),
        driver: "none".to_owned(),
        waiting: true,
        ..IfaceStatus::default()
    };
    names
        .map(|(name, device)| by_name.remove(name).unwrap_or_else(|| waiting(name, device)))
        .collect()
}
