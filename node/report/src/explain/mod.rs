// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explains why a vif gets no more than it gets: what limited it between two statuses, who had the
//! rest of the port, and which commands would give it more. It reads no clock.
//!
//! `limiter` tries one possible factor after the other, the most specific first, and stops at the
//! first that the counters confirm. `more` derives the commands from it.

mod limiter;
mod more;

use std::collections::BTreeMap;

use weir_policy::{Direction, Guarantees, Policy, PortId, Vif, VifId};
use weir_switch::Reason;
use weir_units::Nanos;

use crate::interval::{DropCause, IntervalFlow, charged, headers_of};
use weir_api_types::status::{Amount, NodeStatus};

/// The explanation for one vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The vif.
    pub vif: VifId,
    /// The time between the two statuses.
    pub time: Nanos,
    /// Send, receive.
    pub sides: [ExplainedSide; 2],
}

/// The explanation for one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedSide {
    /// Bits a second that came in, without frames refused for what they are. This and all other
    /// rates count as the port's layer does.
    pub offered_bps: u64,
    /// Bits a second that were forwarded.
    pub got_bps: u64,
    /// Packets a second that came in.
    pub offered_pps: u64,
    /// Packets a second that were forwarded.
    pub got_pps: u64,
    /// The factor that kept it from more.
    pub limiter: LimitingFactor,
    /// A sentence that explains the factor, with its numbers.
    pub because: String,
    /// Frames in its queue now.
    pub waits: Amount,
    /// Flows that have a queue now; `None` where frames wait in one queue.
    pub flows_active: Option<u32>,
    /// Packets that were marked "congestion experienced" in this time.
    pub marked: u64,
    /// The least delay of a packet now; `None` without a smooth window.
    pub smooth: Option<Nanos>,
    /// Drops in this time, by reason.
    pub dropped: BTreeMap<Reason, Amount>,
    /// The rate of the port, and how much of it all vifs got together.
    pub port_bps: [u64; 2],
    /// The other vifs on the port that got anything, most first.
    pub others: Vec<OtherShare>,
    /// Commands that would give it more.
    pub remedies: Vec<Remedy>,
}

/// The share of another vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherShare {
    /// The vif.
    pub vif: VifId,
    /// Bits a second that it got.
    pub got_bps: u64,
    /// Bits a second that are guaranteed to it.
    pub guaranteed_bps: u64,
}

/// A change that would give the vif more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// A command, or a key of the policy file and its value.
    pub what: String,
    /// Only the operator may make this change.
    pub operator: bool,
}

/// The factor that keeps a vif from getting more in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitingFactor {
    /// No traffic came.
    Idle,
    /// The vif gets all that it asks for.
    Demand,
    /// Most frames were refused for what they are.
    Refused,
    /// Its own `rate`.
    VifRate,
    /// Its router's `rate`.
    RouterRate,
    /// Its slice's `rate`.
    SliceRate,
    /// Its own `max_pps`.
    VifPackets,
    /// Its router's `max_pps`.
    RouterPackets,
    /// The packet rate at which XTC holds its router.
    RouterHeld,
    /// Its slice's `max_pps`.
    SlicePackets,
    /// The port is full. The vif gets its guarantee, which is more than its priority would give it.
    Guarantee,
    /// The rate of the port, which it shares with others.
    Port,
    /// A limit of the vif that it sends to.
    Receiver,
    /// The frame pool of the node.
    Pool,
    /// The worker's time.
    Worker,
    /// The device that should take its frames, which is full.
    Device,
    /// Its queue, which is shorter than its bursts.
    Queue,
}

impl LimitingFactor {
    /// Returns the name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Demand => "demand",
            Self::Refused => "refused",
            Self::VifRate => "vif_rate",
            Self::RouterRate => "router_rate",
            Self::SliceRate => "slice_rate",
            Self::VifPackets => "vif_packets",
            Self::RouterPackets => "router_packets",
            Self::RouterHeld => "router_held",
            Self::SlicePackets => "slice_packets",
            Self::Guarantee => "guarantee",
            Self::Port => "port",
            Self::Receiver => "receiver",
            Self::Pool => "pool",
            Self::Worker => "worker",
            Self::Device => "device",
            Self::Queue => "queue",
        }
    }
}

/// Two statuses, and the traffic between them.
pub(crate) struct StatusPair<'s> {
    pub(crate) policy: &'s Policy,
    pub(crate) before: &'s NodeStatus,
    pub(crate) after: &'s NodeStatus,
    pub(crate) time: Nanos,
    /// The traffic of each vif, in the order of the policy: send, receive.
    pub(crate) flows: Vec<[IntervalFlow; 2]>,
}

/// Explains every vif that `vifs` selects. One that is in only one of the statuses is left out.
#[must_use]
pub fn explain(
    before: &NodeStatus,
    after: &NodeStatus,
    policy: &Policy,
    vifs: impl Fn(&Vif) -> bool,
) -> Vec<Explanation> {
    let time = Nanos::new(after.now_ns.saturating_sub(before.now_ns).max(1));
    let flow = |vif: &Vif| match (before.vif(&vif.name), after.vif(&vif.name)) {
        (Some(old), Some(new)) => [
            IntervalFlow::between(&old.send, &new.send),
            IntervalFlow::between(&old.receive, &new.receive),
        ],
        _ => Default::default(),
    };
    let flows = policy.vifs.iter().map(flow).collect();
    let scene = StatusPair { policy, before, after, time, flows };
    let asked = policy.vifs().filter(|(_, vif)| {
        vifs(vif) && before.vif(&vif.name).is_some() && after.vif(&vif.name).is_some()
    });
    let each = asked.map(|(vif, _)| Explanation {
        vif,
        time,
        sides: Direction::ALL.map(|direction| scene.side(vif, direction)),
    });
    each.collect()
}

impl StatusPair<'_> {
    fn side(&self, id: VifId, direction: Direction) -> ExplainedSide {
        let (vif, flow) = (&self.policy[id], self.flow(id, direction));
        let port = &self.policy[vif.port];
        let (limiter, because) = self.limiter(id, direction);
        let mut others: Vec<OtherShare> = self
            .policy
            .vifs()
            .filter(|(other, one)| *other != id && one.port == vif.port)
            .map(|(other, one)| OtherShare {
                vif: other,
                got_bps: self.got_bps(other, direction),
                guaranteed_bps: one.share(direction).min_rate.as_bps(),
            })
            .filter(|other| other.got_bps > 0)
            .collect();
        others.sort_by_key(|other| (std::cmp::Reverse(other.got_bps), other.vif));
        let remedies = self.remedies(id, direction, limiter, &others);
        let now = self.after.vif(&vif.name).map(|iface| match direction {
            Direction::Send => &iface.send,
            Direction::Receive => &iface.receive,
        });
        let dropped = flow.dropped.values().flatten().map(|(reason, of)| (*reason, *of)).collect();
        ExplainedSide {
            offered_bps: self.offered_bps(id, direction),
            got_bps: self.got_bps(id, direction),
            offered_pps: self.per_second(flow.offered.packets),
            got_pps: self.per_second(flow.got.packets),
            limiter,
            because,
            waits: flow.waits,
            flows_active: now.and_then(|side| side.flows).map(|flows| flows.active),
            marked: flow.marked,
            smooth: now.and_then(|side| side.smooth).map(|of| Nanos::new(of.position_ns)),
            dropped,
            port_bps: [port.rate.as_bps(), self.port_bps(vif.port, direction)],
            others,
            remedies,
        }
    }

    pub(crate) fn flow(&self, vif: VifId, direction: Direction) -> &IntervalFlow {
        // One for each vif of the policy.
        &self.flows[vif.0 as usize][direction as usize]
    }

    pub(crate) fn got_bps(&self, vif: VifId, direction: Direction) -> u64 {
        let port = &self.policy[self.policy[vif].port];
        self.bps(charged(port, self.flow(vif, direction).got, self.headers(vif, direction)))
    }

    pub(crate) fn offered_bps(&self, vif: VifId, direction: Direction) -> u64 {
        let port = &self.policy[self.policy[vif].port];
        self.bps(charged(port, self.flow(vif, direction).offered, self.headers(vif, direction)))
    }

    /// Returns the bytes of headers that its frames carry on the port.
    fn headers(&self, vif: VifId, direction: Direction) -> u16 {
        let of = &self.policy[vif];
        headers_of(&self.policy[of.port], &self.policy[of.slice], direction)
    }

    /// Returns how much of a port all vifs got: for what it sends, the traffic on its wire; towards
    /// the vifs, the sum over them.
    pub(crate) fn port_bps(&self, id: PortId, direction: Direction) -> u64 {
        let port = &self.policy[id];
        if direction == Direction::Send {
            let sent = |status: &NodeStatus| status.port(&port.name).map(|port| port.send.clone());
            let both = sent(self.before).zip(sent(self.after));
            let got = both.map(|(before, after)| IntervalFlow::between(&before, &after).got);
            return self.bps(charged(port, got.unwrap_or_default(), 0));
        }
        let vifs = self.policy.vifs().filter(|(_, vif)| vif.port == id);
        vifs.map(|(vif, _)| self.got_bps(vif, direction)).fold(0, u64::saturating_add)
    }

    /// Returns how much of a port is guaranteed to all slices and to the host itself.
    pub(crate) fn guaranteed_bps(&self, port: PortId, direction: Direction) -> u64 {
        Guarantees::of_rates(self.policy, direction).port(port).as_bps()
    }

    pub(crate) fn dropped(&self, vif: VifId, direction: Direction, cause: DropCause) -> Amount {
        self.flow(vif, direction).dropped_for(cause)
    }

    pub(crate) fn bps(&self, bytes: u64) -> u64 {
        self.per_second(bytes.saturating_mul(8))
    }

    pub(crate) fn per_second(&self, count: u64) -> u64 {
        let time = u128::from(self.time.as_nanos());
        u64::try_from(u128::from(count) * 1_000_000_000 / time).unwrap_or(u64::MAX)
    }
}

/// The most other vifs that an explanation shows: as many as a person reads.
pub const OTHERS_MAX: usize = 16;

#[cfg(test)]
mod tests;
