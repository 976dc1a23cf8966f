// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a running node as data: what the control socket answers and reports are made from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_policy::Policy;
use weir_switch::{Counters, Reason, Tally};

use crate::lateness::LatenessSummary;

/// Everything countable about a node, at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// When this was taken, nanoseconds on the monotonic clock.
    pub now_ns: u64,
    /// Nanoseconds since the worker started.
    pub uptime_ns: u64,
    /// The ports, in the policy's order.
    pub ports: Vec<IfaceStatus>,
    /// The vifs, in the policy's order.
    pub vifs: Vec<IfaceStatus>,
    /// What the last second of each slice came to; of those that have a vif with a device.
    #[serde(default)]
    pub slices: Vec<SliceStatus>,
    /// What changes of policy took away.
    #[serde(default)]
    pub removed: Removed,
    /// Why no service report is kept, while none is; a tenant is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_failed: Option<String>,
    /// The worker; a tenant is not told of it.
    #[serde(default)]
    pub worker: WorkerStatus,
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceStatus {
    /// Its name.
    pub name: String,
    /// Of what its vifs sent together.
    pub send: Verdict,
    /// Of what they received together.
    pub receive: Verdict,
}

/// Packets that were lost with a vif, a port or a queue that a change of policy took away. The
/// counters of the interface went with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Waiting in a queue.
    pub queued: u64,
    /// Let in, and not read from the device yet.
    pub unread: u64,
    /// Dropped at a device that had left, before the program was off it.
    #[serde(default)]
    pub dropped: u64,
}

/// One port or vif.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfaceStatus {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// How the device is driven: `xdp native copy`, `xdp native zero-copy`, `packet`, ….
    pub driver: String,
    /// Why the device is not driven by XDP, if that was tried first (`kind = "auto"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// It waits for its device, which is not there: nothing of it is counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub waiting: bool,
    /// From the vif; for a port: what left on its wire.
    pub send: DirectionStatus,
    /// Towards the vif; for a port: what came in from its wire.
    pub receive: DirectionStatus,
    /// Frames lost in the device's ring or for want of a chunk, before the switch saw them.
    pub lost_before_receive: u64,
    /// Frames lost by the device after they were handed over, as the kernel counts them.
    pub lost_after_transmit: u64,
}

/// One direction of one interface. The identities of [`Counters`] hold here too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// Frames that arrived.
    pub received: Amount,
    /// Copies made of them by flooding.
    pub copies: Amount,
    /// Dropped before a queue, by reason; reasons that never occurred are left out.
    pub dropped: BTreeMap<String, Amount>,
    /// Taken into a queue.
    pub enqueued: Amount,
    /// Dropped after that.
    pub dropped_after: Amount,
    /// The same by reason; reasons that never occurred are left out.
    #[serde(default)]
    pub dropped_after_by: BTreeMap<String, Amount>,
    /// Handed on.
    pub sent: Amount,
    /// Of those sent, in the kernel.
    #[serde(default)]
    pub redirected: Amount,
    /// Queued now.
    pub backlog: Amount,
    /// Of those sent, marked "congestion experienced"; packets.
    pub marked: u64,
    /// How long the first of what is queued has waited, nanoseconds: the delay of the next packet.
    /// Zero where none waits, and of a port, whose queues are its vifs'.
    #[serde(default)]
    pub wait_ns: u64,
    /// Packets a second that a control loop lets pass to the vifs of its router together; none
    /// where none holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_pps: Option<u64>,
    /// What the last second came to, as the service report judges it; none of a port, and before
    /// the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// What one second of one direction came to, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing is guaranteed.
    None,
    /// Nothing was asked for.
    Idle,
    /// It asked for less than its guarantee, and got that.
    Less,
    /// It got its guarantee, but for what is on its way.
    Holds,
    /// It got less than its guarantee, and a limit of packets held it there.
    Limited,
    /// It is below, as the report counts it.
    Below,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes, layer 2 without FCS.
    pub bytes: u64,
}

/// The worker thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Turns of the loop.
    pub turns: u64,
    /// Of those, turns in which something moved.
    pub busy_turns: u64,
    /// Nanoseconds that these took, of `uptime_ns`: the worker's load.
    #[serde(default)]
    pub busy_ns: u64,
    /// Frames in the pool that nobody holds.
    pub frames_free: u64,
    /// Frames in the pool.
    pub frames: u64,
    /// The longest time between two looks at the devices without a pause in between: what is longer
    /// than a ring lasts is a loss.
    #[serde(default)]
    pub longest_turn_ns: u64,
    /// Lateness of wake-ups.
    pub lateness: LatenessSummary,
}

/// Those that are there, and one for each of `names` that is not. A change may be under way, by
/// which one is there that is not named any more: it goes with the change.
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

/// For serde.
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Amount {
    /// Both parts summed.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Both parts subtracted, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl From<Tally> for Amount {
    fn from(tally: Tally) -> Self {
        Self { packets: tally.packets, bytes: tally.bytes }
    }
}

impl From<&Counters> for DirectionStatus {
    fn from(counters: &Counters) -> Self {
        let by = |reasons: &[Reason], count: &dyn Fn(Reason) -> Tally| {
            let each = reasons.iter().map(|&reason| (reason.name().to_owned(), count(reason)));
            let occurred = each.filter(|(_, tally)| *tally != Tally::default());
            occurred.map(|(name, tally)| (name, tally.into())).collect()
        };
        Self {
            received: counters.received.into(),
            copies: counters.copies.into(),
            dropped: by(&Reason::ALL, &|reason| counters.dropped_for(reason)),
            enqueued: counters.enqueued.into(),
            dropped_after: counters.dropped_after.into(),
            dropped_after_by: by(&Reason::AFTER_QUEUE, &|r| counters.dropped_after_for(r)),
            sent: counters.sent.into(),
            redirected: counters.redirected.into(),
            backlog: counters.backlog().into(),
            marked: counters.marked,
            wait_ns: 0,
            held_pps: None,
            verdict: None,
        }
    }
}

impl DirectionStatus {
    /// Counts frames that were dropped before the switch saw them.
    pub(crate) fn add_dropped(&mut self, reason: Reason, frames: Tally) {
        if frames.packets == 0 {
            return;
        }
        let dropped = self.dropped.entry(reason.name().to_owned()).or_default();
        for amount in [&mut self.received, dropped] {
            amount.packets += frames.packets;
            amount.bytes += frames.bytes;
        }
    }
}

impl Status {
    /// Adds the ports and vifs of `policy` that wait for their devices, each in its place.
    pub fn add_waiting(&mut self, policy: &Policy) {
        let ports = policy.ports.iter().map(|port| (&port.name, &port.device));
        self.ports = with_waiting(std::mem::take(&mut self.ports), ports);
        let vifs = policy.vifs.iter().map(|vif| (&vif.name, &vif.device));
        self.vifs = with_waiting(std::mem::take(&mut self.vifs), vifs);
    }

    /// The vif of that name.
    #[must_use]
    pub fn vif(&self, name: &str) -> Option<&IfaceStatus> {
        self.vifs.iter().find(|vif| vif.name == name)
    }

    /// The port of that name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&IfaceStatus> {
        self.ports.iter().find(|port| port.name == name)
    }
}
