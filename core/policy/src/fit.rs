// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that guarantees fit: each level's against the level above, in both directions, and delay
//! bounds against the port.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_units::{BitRate, Nanos, PacketRate};

use crate::finding::Finding;
use crate::format::quoted;
use crate::guarantee::{GroupSum, Guarantees};
use crate::{Direction, Overbooking, Policy, PortId, RouterId, Share, SliceId};

/// Adds the guarantees and delays that do not fit.
pub(crate) fn check_sums(policy: &Policy, findings: &mut Vec<Finding>) {
    for direction in Direction::ALL {
        let rates = Guarantees::of_rates(policy, direction);
        let router_share = |id: RouterId| Some(policy.routers.get(id.0 as usize)?.share(direction));
        let slice_share = |id: SliceId| Some(policy.slices.get(id.0 as usize)?.share(direction));
        for (id, port, sum) in rates.routers() {
            let item = ("router", id.0);
            check_rates(policy, item, router_share(id), port, sum, direction, findings);
        }
        for (id, port, sum) in rates.slices() {
            let item = ("slice", id.0);
            check_rates(policy, item, slice_share(id), port, sum, direction, findings);
        }
        check_ports(policy, &rates, direction, findings);
        let packets = Guarantees::of_packets(policy, direction);
        for (id, _, sum) in packets.routers() {
            check_packets(("router", id.0), router_share(id), sum, direction, findings);
        }
        for (id, _, sum) in packets.slices() {
            check_packets(("slice", id.0), slice_share(id), sum, direction, findings);
        }
    }
    check_capacity(policy, findings);
    for (id, _) in policy.ports() {
        check_delays(policy, id, findings);
    }
}

/// Checks the minimum and the limit of a router or slice against the guarantees of its members.
fn check_rates(
    policy: &Policy,
    (table, id): (&'static str, u32),
    share: Option<&Share>,
    port: PortId,
    sum: GroupSum,
    direction: Direction,
    findings: &mut Vec<Finding>,
) {
    let Some(share) = share else { return };
    let Some(port) = policy.ports.get(port.0 as usize) else { return };
    let (own, members) = (BitRate::from_bps(sum.own), BitRate::from_bps(sum.members));
    let sum = format!("{members}, the sum of its members' min_rate on port {}", quoted(&port.name));
    let limit = share.rate.filter(|rate| *rate < members);
    let (key, value) = match limit {
        _ if !own.is_zero() && own < members => ("min_rate", own),
        Some(rate) => ("rate", rate),
        None => return,
    };
    let key = format!("{}.{key}", direction.name());
    let message = format!("{value} is less than {sum}");
    findings.push(Finding::new(table, id as usize, key, message));
}

fn check_packets(
    (table, id): (&'static str, u32),
    share: Option<&Share>,
    sum: GroupSum,
    direction: Direction,
    findings: &mut Vec<Finding>,
) {
    let Some(share) = share else { return };
    let (own, members) = (PacketRate::from_pps(sum.own), PacketRate::from_pps(sum.members));
    let limit = share.max_pps.filter(|limit| *limit < members);
    let (key, value) = match limit {
        _ if own > PacketRate::ZERO && own < members => ("min_pps", own),
        Some(limit) => ("max_pps", limit),
        None => return,
    };
    let key = format!("{}.{key}", direction.name());
    let message = format!("{value} is less than {members}, the sum of its members' min_pps");
    findings.push(Finding::new(table, id as usize, key, message));
}

fn check_ports(
    policy: &Policy,
    rates: &Guarantees,
    direction: Direction,
    findings: &mut Vec<Finding>,
) {
    let overbooking = policy.node.overbooking;
    for (id, port) in policy.ports() {
        let promised = rates.port(id);
        let most = BitRate::from_bps(overbooking.of_floor(port.rate.as_bps()));
        // A port without a rate was reported already.
        if promised > most && !port.rate.is_zero() {
            let name = direction.name();
            let own = port.host_min_rate(direction);
            let own = if own.is_zero() {
                String::new()
            } else {
                format!(" and host_{name}.min_rate, {own},")
            };
            let message = format!(
                "the slices' {name}.min_rate{own} add up to {promised}, at most {most} fit{}",
                booked(overbooking)
            );
            findings.push(Finding::new("port", id.0 as usize, "rate", message));
        }
    }
}

/// Checks the sum of both directions, since a packet of either costs the node the same.
fn check_capacity(policy: &Policy, findings: &mut Vec<Finding>) {
    let Some(capacity) = policy.node.capacity else { return };
    let [sent, received] =
        Direction::ALL.map(|direction| Guarantees::of_packets(policy, direction).node());
    let promised = PacketRate::from_pps(sent.as_pps().saturating_add(received.as_pps()));
    let overbooking = policy.node.overbooking;
    let most = PacketRate::from_pps(overbooking.of_floor(capacity.as_pps()));
    if promised > most {
        let message = format!(
            "the slices' min_pps add up to {promised} (send {sent}, receive {received}), at most \
             {most} fit{}",
            booked(overbooking)
        );
        findings.push(Finding::new("node", 0, "capacity", message));
    }
}

/// Checks delay bounds: each needs a minimum, and the service curves of all vifs of a port must fit
/// under the port's line (Stoica, Zhang, Ng 1997, §II). At each delay `d`, the bits guaranteed by
/// then are compared with the bits that the port sends by then; between these instants all curves
/// are straight.
fn check_delays(policy: &Policy, id: PortId, findings: &mut Vec<Finding>) {
    let port = &policy[id];
    let mut curves = Vec::new();
    for (index, vif) in policy.vifs.iter().enumerate().filter(|(_, vif)| vif.port == id) {
        let rate = vif.send.min_rate;
        match vif.delay {
            Some(_) if rate.is_zero() => {
                findings.push(Finding::new("vif", index, "delay", "needs send.min_rate"));
            }
            Some(delay) => curves.push(Curve {
                vif: index,
                delay,
                bits: 8 * u128::from(vif.delay_packet.get()),
                rate: u128::from(rate.as_bps()),
            }),
            // A straight line from the origin.
            None => curves.push(Curve {
                vif: index,
                delay: Nanos::ZERO,
                bits: 0,
                rate: u128::from(rate.as_bps()),
            }),
        }
    }
    curves.sort_by_key(|curve| (curve.delay, curve.vif));
    let most = u128::from(policy.node.overbooking.of_floor(port.rate.as_bps()));
    // At time t, some curves are past their bend. `bits`, `rate` and `rate_delay` are sums over
    // these curves, which together promise bits + rate × t − rate_delay. Both products are in
    // bits × nanoseconds a second. `slopes` is the sum of the slopes of the other curves, in
    // millibits a second. The host's own curve is a straight line from the origin.
    let own = u128::from(port.host_min_rate(Direction::Send).as_bps());
    let (mut bits, mut rate, mut rate_delay) = (0, own, 0);
    let mut slopes: u128 = curves.iter().map(Curve::slope).sum();
    for curve in &curves {
        bits += curve.bits;
        rate += curve.rate;
        rate_delay += curve.rate * nanos(curve.delay);
        slopes -= curve.slope();
        let t = nanos(curve.delay);
        let later = (rate * t).saturating_sub(rate_delay) + slopes * t / 1000;
        let promised = bits + later / NANOS;
        let fits = most * t / NANOS;
        if !port.rate.is_zero() && promised > fits && t > 0 {
            let message = format!(
                "within {} the minimums and delays on port {} promise {promised} bits, at most \
                 {fits} fit{}",
                curve.delay,
                quoted(&port.name),
                booked(policy.node.overbooking)
            );
            findings.push(Finding::new("vif", curve.vif, "delay", message));
            // Later findings mostly follow from this one.
            return;
        }
    }
}

/// A real-time service curve of two straight pieces: `bits` by `delay`, then `rate`.
struct Curve {
    vif: usize,
    delay: Nanos,
    bits: u128,
    rate: u128,
}

impl Curve {
    /// Returns the slope of the first piece in millibits a second; 0 if there is none.
    fn slope(&self) -> u128 {
        (self.bits * NANOS * 1000).checked_div(nanos(self.delay)).unwrap_or(0)
    }
}

fn nanos(time: Nanos) -> u128 {
    u128::from(time.as_nanos())
}

fn booked(overbooking: Overbooking) -> String {
    if overbooking == Overbooking::NONE {
        return String::new();
    }
    format!(" (overbooking {overbooking})")
}

const NANOS: u128 = 1_000_000_000;
