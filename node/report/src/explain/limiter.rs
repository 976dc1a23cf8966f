// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the factor that kept a vif from getting more: the first of these that the counters
//! confirm.
//!
//! 1. no traffic came, the vif got all of it, or most was refused for what it is;
//! 2. a limit dropped packets, or was reached by the vif, its router or its slice;
//! 3. the port was full;
//! 4. the pool, the worker or the receiving device had no room;
//! 5. its queue is shorter than its bursts.
//!
//! A limit, or the port, counts as reached from a *threshold* on: nearly all of it
//! ([`FULL`]), or less where the vif was restricted and nothing else explains it
//! ([`NEARLY_FULL`]).

use std::collections::BTreeMap;

use weir_policy::{Direction, RouterId, Share, VifId};
use weir_switch::Reason;

use super::{LimitingFactor, StatusPair};
use crate::interval::{DropCause, IntervalFlow};
use weir_api_types::status::{Amount, IfaceStatus, NodeStatus};

impl StatusPair<'_> {
    /// Returns the factor, and a sentence with the numbers that confirm it.
    pub(super) fn limiter(&self, id: VifId, direction: Direction) -> (LimitingFactor, String) {
        let flow = self.flow(id, direction);
        let name = &self.policy[id].name;
        if self.after.vif(name).is_some_and(|vif| vif.waiting) {
            let device = &self.policy[id].device;
            return (LimitingFactor::Device, format!("it waits for its device {device}"));
        }
        let refused = flow.refused();
        if refused.packets > flow.offered.packets {
            let worst = flow.most_refused().unwrap_or_default();
            let (pps, came) = (self.per_second(refused.packets), flow.offered.packets);
            let because = format!("{pps} packets a second refused, most for {worst}, {came} not");
            return (LimitingFactor::Refused, because);
        }
        if flow.offered.packets == 0 && flow.waits.packets == 0 {
            return (LimitingFactor::Idle, "nothing came".to_owned());
        }
        // Active queue management keeps queues short and may drop nothing. A queue that is not
        // empty at either end then shows that a limit is reached, if there is one.
        let is_queued = flow.waited.packets > 0 && flow.waits.packets > 0;
        if !self.is_restricted(id, direction) {
            if is_queued && let Some(found) = self.by_rates(id, direction, FULL) {
                return found;
            }
            let bits = bits(self.got_bps(id, direction));
            return (LimitingFactor::Demand, format!("it got all that it asked for, {bits}"));
        }
        let found = self.by_drops(id, direction);
        let found = found.or_else(|| self.by_rates(id, direction, FULL));
        let found = found.or_else(|| self.by_rates(id, direction, NEARLY_FULL));
        found.unwrap_or_else(|| self.by_room(id, direction))
    }

    /// Returns a limit that is reached, or else the port if it is full, by this threshold.
    fn by_rates(
        &self,
        id: VifId,
        direction: Direction,
        full: Threshold,
    ) -> Option<(LimitingFactor, String)> {
        let limit = self.by_limits(id, direction, full);
        limit.or_else(|| self.by_port(id, direction, full))
    }

    /// Returns true if the vif was kept from getting what it asked for: more than one packet in
    /// [`RESTRICTED_PARTS`] was dropped for lack of room or at a limit, or marked; or its queue was
    /// half full both at the beginning and at the end.
    fn is_restricted(&self, id: VifId, direction: Direction) -> bool {
        let flow = self.flow(id, direction);
        let dropped =
            flow.dropped_for(DropCause::Room).packets + flow.dropped_for(DropCause::Limit).packets;
        let vif = &self.policy[id];
        let queue = match direction {
            Direction::Send => &vif.send_queue,
            Direction::Receive => &vif.receive_queue,
        };
        let half = |packets: u64, bytes: u64| {
            packets * 2 >= u64::from(queue.packets) || bytes * 2 >= queue.bytes.get()
        };
        (dropped + flow.marked).saturating_mul(RESTRICTED_PARTS) > flow.offered.packets
            || half(flow.waited.packets, flow.waited.bytes)
                && half(flow.waits.packets, flow.waits.bytes)
    }

    /// Returns a limit that dropped more than the lack of room did.
    fn by_drops(&self, id: VifId, direction: Direction) -> Option<(LimitingFactor, String)> {
        let flow = self.flow(id, direction);
        let limits = flow.dropped_for(DropCause::Limit);
        if limits.packets <= flow.dropped_for(DropCause::Room).packets {
            return None;
        }
        let reason = most_frequent(flow.dropped.get(&DropCause::Limit))?;
        if reason == Reason::RouterPackets
            && let Some(held) = self.by_held(id, direction, NEARLY_FULL)
        {
            return Some(held);
        }
        let limiter = match reason {
            Reason::VifPackets => LimitingFactor::VifPackets,
            Reason::RouterPackets => LimitingFactor::RouterPackets,
            Reason::SlicePackets => LimitingFactor::SlicePackets,
            Reason::VifBits | Reason::Shaper => LimitingFactor::VifRate,
            Reason::RouterBits => LimitingFactor::RouterRate,
            Reason::SliceBits => LimitingFactor::SliceRate,
            _ => LimitingFactor::Receiver,
        };
        let pps = self.per_second(limits.packets);
        Some((limiter, format!("{pps} packets a second dropped, most for {}", reason.name())))
    }

    /// Returns a limit that is reached: its own, its router's or its slice's.
    fn by_limits(
        &self,
        id: VifId,
        direction: Direction,
        full: Threshold,
    ) -> Option<(LimitingFactor, String)> {
        let vif = &self.policy[id];
        let own = vif.share(direction);
        let levels = [
            (Some(own), vec![id], [LimitingFactor::VifRate, LimitingFactor::VifPackets], "its own"),
            (
                vif.router.map(|router| self.policy[router].share(direction)),
                self.members(|other| vif.router.is_some() && other.router == vif.router, id),
                [LimitingFactor::RouterRate, LimitingFactor::RouterPackets],
                "its router's",
            ),
            (
                Some(self.policy[vif.slice].share(direction)),
                self.members(|other| other.slice == vif.slice, id),
                [LimitingFactor::SliceRate, LimitingFactor::SlicePackets],
                "its slice's",
            ),
        ];
        let found = levels.into_iter().find_map(|(share, members, factors, whose)| {
            let (limiter, text) = self.reached(share?, &members, direction, full, factors)?;
            Some((limiter, format!("{whose} {text}")))
        });
        found.or_else(|| self.by_held(id, direction, full))
    }

    /// Tests the rate at which XTC holds the router: one rate for its vifs on all ports together.
    fn by_held(
        &self,
        id: VifId,
        direction: Direction,
        full: Threshold,
    ) -> Option<(LimitingFactor, String)> {
        // Only the present rate counts: one that held before a change explains nothing.
        let status = self.after.vif(&self.policy[id].name)?;
        let status = if direction == Direction::Send { &status.send } else { &status.receive };
        let held = status.held_pps?;
        let router = self.policy[id].router?;
        let packets = self.of_router(router, direction).map(|flow| flow.got.packets).sum();
        let (got, name) = (self.per_second(packets), &self.policy[router].name);
        let because = || format!("XTC holds router {name}: {got} of {held} packets a second");
        // Much more traffic than the rate shows that the rate was changed meanwhile.
        let holds = full.is(got, held) && got.saturating_mul(20) <= held.saturating_mul(21);
        holds.then(|| (LimitingFactor::RouterHeld, because()))
    }

    /// Lists the traffic of the vifs of a router, on all ports.
    pub(super) fn of_router(
        &self,
        router: RouterId,
        direction: Direction,
    ) -> impl Iterator<Item = &IntervalFlow> {
        let members = self.policy.vifs().filter(move |(_, vif)| vif.router == Some(router));
        members.map(move |(vif, _)| self.flow(vif, direction))
    }

    /// Lists the vifs on the port of `id`. Limits of routers and slices hold on each port.
    fn members(&self, is: impl Fn(&weir_policy::Vif) -> bool, id: VifId) -> Vec<VifId> {
        let port = self.policy[id].port;
        let all = self.policy.vifs().filter(|(_, vif)| vif.port == port && is(vif));
        all.map(|(vif, _)| vif).collect()
    }

    /// Returns the factor for a limit of a share that the members together reach: the first of
    /// `factors` for its bit rate, the second for its packet rate.
    fn reached(
        &self,
        share: &Share,
        members: &[VifId],
        direction: Direction,
        full: Threshold,
        [by_rate, by_packets]: [LimitingFactor; 2],
    ) -> Option<(LimitingFactor, String)> {
        let got_bps = members.iter().map(|id| self.got_bps(*id, direction)).sum::<u64>();
        let packets = members.iter().map(|id| self.flow(*id, direction).got.packets).sum::<u64>();
        let got_pps = self.per_second(packets);
        if let Some(rate) = share.rate.filter(|rate| full.is(got_bps, rate.as_bps())) {
            let (got, rate) = (bits(got_bps), bits(rate.as_bps()));
            return Some((by_rate, format!("rate is reached: {got} of {rate}")));
        }
        let most = share.max_pps.filter(|most| full.is(got_pps, most.as_pps()))?.as_pps();
        Some((by_packets, format!("max_pps is reached: {got_pps} of {most} packets a second")))
    }

    /// Tests whether the port is full, and whether the vif gets its guarantee or a share.
    fn by_port(
        &self,
        id: VifId,
        direction: Direction,
        full: Threshold,
    ) -> Option<(LimitingFactor, String)> {
        let vif = &self.policy[id];
        let rate = self.policy[vif.port].rate.as_bps();
        let all = self.port_bps(vif.port, direction);
        if !full.is(all, rate) {
            return None;
        }
        let got = self.got_bps(id, direction);
        let guarantee = vif.share(direction).min_rate.as_bps();
        let port = &self.policy[vif.port].name;
        let others = bits(all.saturating_sub(got));
        let used = format!("port {port} is full, {} of {}", bits(all), bits(rate));
        if guarantee > 0 && got <= guarantee / 10 * 11 {
            let own = bits(guarantee);
            let because = format!("{used}; its guarantee of {own} is what it gets of it");
            return Some((LimitingFactor::Guarantee, because));
        }
        Some((LimitingFactor::Port, format!("{used}; others have {others} of it")))
    }

    /// Returns the factor that lacked room although no limit was reached: the pool, the worker, the
    /// device or the queue.
    fn by_room(&self, id: VifId, direction: Direction) -> (LimitingFactor, String) {
        let flow = self.flow(id, direction);
        let reason = most_frequent(flow.dropped.get(&DropCause::Room));
        if matches!(reason, Some(Reason::PoolShare | Reason::PoolExhausted)) {
            let free = self.after.worker.as_ref().map_or(0, |worker| worker.frames_free);
            return (LimitingFactor::Pool, format!("{free} frames of the pool are free"));
        }
        let turns = |status: &NodeStatus| {
            status.worker.as_ref().map_or((0, 0), |worker| (worker.turns, worker.busy_turns))
        };
        let ((all, busy), (all_before, busy_before)) = (turns(self.after), turns(self.before));
        let late = self.after.worker.as_ref().map_or(0, |worker| worker.lateness.recent_max_ns);
        let catch_up = self.policy[self.policy[id].port].catch_up;
        if late > catch_up.as_nanos() {
            let (late, most) = (late / 1_000_000, catch_up.as_nanos() / 1_000_000);
            let because = format!("the worker came {late} ms late; {most} ms are made up for");
            return (LimitingFactor::Worker, because);
        }
        let all = all.saturating_sub(all_before);
        let busy = busy.saturating_sub(busy_before);
        if all > 0 && busy.saturating_mul(10) >= all.saturating_mul(9) {
            let because = format!("of {all} turns of the worker {busy} moved packets");
            return (LimitingFactor::Worker, because);
        }
        let name = match direction {
            // Sent frames wait for the device of the port, received frames for that of the vif.
            Direction::Send => &self.policy[self.policy[id].port].name,
            Direction::Receive => &self.policy[id].name,
        };
        let lost = |status: &NodeStatus| {
            let iface = status.ports.iter().chain(&status.vifs).find(|one| one.name == *name);
            iface.map_or(0, |one: &IfaceStatus| one.lost_after_transmit)
        };
        let lost = lost(self.after).saturating_sub(lost(self.before));
        let is_queued = flow.waited.packets > 0 && flow.waits.packets > 0;
        if lost > 0 || reason == Some(Reason::RefusedByPort) || is_queued {
            let waits = flow.waits.packets;
            let because = format!("{waits} packets wait for device {name}, which lost {lost}");
            return (LimitingFactor::Device, because);
        }
        let dropped = self.per_second(flow.dropped_for(DropCause::Room).packets);
        let because =
            format!("{dropped} packets a second found its queue full, which is empty now");
        (LimitingFactor::Queue, because)
    }
}

/// The part of a rate, in percent, from which on it counts as reached.
#[derive(Clone, Copy)]
struct Threshold(u8);

impl Threshold {
    fn is(self, got: u64, most: u64) -> bool {
        u128::from(got) * 100 >= u128::from(most) * u128::from(self.0)
    }
}

/// Returns the reason with the most packets.
fn most_frequent(drops: Option<&BTreeMap<Reason, Amount>>) -> Option<Reason> {
    drops?.iter().max_by_key(|(_, amount)| amount.packets).map(|(reason, _)| *reason)
}

/// Formats a bit rate for people.
pub(super) fn bits(bps: u64) -> String {
    match bps {
        0..1_000_000 => format!("{}.{} kbit/s", bps / 1_000, bps / 100 % 10),
        _ => format!("{}.{} Mbit/s", bps / 1_000_000, bps / 100_000 % 10),
    }
}

/// From this part on a rate counts as reached: a little less than the 98 % and 99 % of the
/// conformance suite, since statuses are not taken exactly at the ends of a second.
const FULL: Threshold = Threshold(97);

/// From this part on a rate is nearly full. While the machine keeps the worker from its processor,
/// a bucket of 64 packets overflows and a link stands idle, so that a vif may be restricted by a
/// rate without reaching all of it.
const NEARLY_FULL: Threshold = Threshold(90);

/// A vif is restricted if it loses more than one packet in this many. TCP at a rate that suits it
/// loses about one in some thousands.
const RESTRICTED_PARTS: u64 = 200;
