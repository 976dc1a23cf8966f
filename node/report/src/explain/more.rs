// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives what would give a vif more, as commands that can be typed.

use weir_policy::{Direction, Vif, VifId};

use super::{LimitingFactor, OtherShare, Remedy, StatusPair};
use crate::interval::DropCause;

impl StatusPair<'_> {
    /// Lists the changes; none if the vif gets all that it asks for.
    pub(super) fn remedies(
        &self,
        id: VifId,
        direction: Direction,
        limiter: LimitingFactor,
        others: &[OtherShare],
    ) -> Vec<Remedy> {
        let vif = &self.policy[id];
        let side = if direction == Direction::Receive { " --receive" } else { "" };
        let wants_bps = rounded(self.offered_bps(id, direction));
        let wants_pps = rounded(self.per_second(self.flow(id, direction).offered.packets));
        let set = |table: &str, name: &str, option: String| Remedy {
            what: format!("weir set {table} {name}{side} {option}"),
            operator: table != "vif",
        };
        let rate = format!("--rate {wants_bps}bit");
        let packets = format!("--max-pps {wants_pps}pps");
        let router = vif.router.map_or("", |router| self.policy[router].name.as_str());
        let slice = self.policy[vif.slice].name.as_str();
        let file = |what: String| vec![Remedy { what, operator: true }];
        match limiter {
            LimitingFactor::Idle | LimitingFactor::Demand | LimitingFactor::Refused => Vec::new(),
            LimitingFactor::VifRate => vec![set("vif", &vif.name, rate)],
            LimitingFactor::RouterRate => vec![set("router", router, rate)],
            LimitingFactor::SliceRate => vec![set("slice", slice, rate)],
            LimitingFactor::VifPackets => vec![set("vif", &vif.name, packets)],
            LimitingFactor::RouterPackets => vec![set("router", router, packets)],
            // The rate is one for all vifs of the router.
            LimitingFactor::RouterHeld => {
                let flows = vif.router.into_iter().flat_map(|own| self.of_router(own, direction));
                let all = flows.map(|flow| flow.offered.packets).sum();
                let all_pps = rounded(self.per_second(all));
                file(format!("weir xtc set {router} --set-point {all_pps}pps"))
            }
            LimitingFactor::SlicePackets => vec![set("slice", slice, packets)],
            LimitingFactor::Guarantee | LimitingFactor::Port => {
                self.of_port(id, direction, others, &set)
            }
            LimitingFactor::Receiver => self.of_receivers(vif),
            LimitingFactor::Pool => file(format!("node.frames = {}", 2 * self.policy.node.frames)),
            LimitingFactor::Worker => file("node.idle = \"spin\", node.worker_cpu = N".to_owned()),
            LimitingFactor::Device => {
                let device = match direction {
                    Direction::Send => &self.policy[vif.port].device,
                    Direction::Receive => &vif.device,
                };
                file(format!("ethtool -G {device} rx 4096 tx 4096"))
            }
            LimitingFactor::Queue => {
                let queue = match direction {
                    Direction::Send => &vif.send_queue,
                    Direction::Receive => &vif.receive_queue,
                };
                let (name, key) = (&vif.name, direction.name());
                let more = 2 * queue.packets;
                file(format!("vif {name} {key}.queue.packets = {more}"))
            }
        }
    }

    /// Proposes a larger guarantee, as far as other guarantees leave room, or a larger priority.
    fn of_port(
        &self,
        id: VifId,
        direction: Direction,
        others: &[OtherShare],
        set: &impl Fn(&str, &str, String) -> Remedy,
    ) -> Vec<Remedy> {
        let vif = &self.policy[id];
        let port = &self.policy[vif.port];
        let own = vif.share(direction);
        let taken = self.guaranteed_bps(vif.port, direction);
        let room = port.rate.as_bps().saturating_sub(taken);
        let most = own.min_rate.as_bps().saturating_add(room);
        let wants = rounded(self.offered_bps(id, direction)).min(most);
        let mut list = Vec::new();
        if wants > own.min_rate.as_bps() && wants > self.got_bps(id, direction) {
            let guarantee = set("vif", &vif.name, format!("--min-rate {wants}bit"));
            list.push(Remedy { operator: true, ..guarantee });
        }
        let in_slice = |other: &OtherShare| self.policy[other.vif].slice == vif.slice;
        if others.iter().any(in_slice) {
            list.push(set("vif", &vif.name, format!("--priority {}", doubled(own.priority))));
        }
        if others.iter().any(|other| !in_slice(other)) {
            let slice = &self.policy[vif.slice];
            let priority = doubled(slice.share(direction).priority);
            list.push(set("slice", &slice.name, format!("--priority {priority}")));
        }
        list
    }

    /// Lists the vifs of its slice and port that were sent more than they may receive.
    fn of_receivers(&self, vif: &Vif) -> Vec<Remedy> {
        let at_limit = self.policy.vifs().filter(|(other, one)| {
            let dropped = self.dropped(*other, Direction::Receive, DropCause::Limit);
            one.slice == vif.slice && one.port == vif.port && dropped.packets > 0
        });
        let raise = at_limit.map(|(other, one)| {
            let wants = rounded(self.offered_bps(other, Direction::Receive));
            let what = format!("weir set vif {} --receive --rate {wants}bit", one.name);
            Remedy { what, operator: false }
        });
        raise.take(super::OTHERS_MAX).collect()
    }
}

/// Rounds up to two digits: easy to read, and no less than is wanted.
fn rounded(value: u64) -> u64 {
    let mut step = 1;
    while value / step >= 100 {
        step *= 10;
    }
    value.div_ceil(step).saturating_mul(step)
}

fn doubled(priority: u32) -> u32 {
    priority.saturating_mul(2).min(weir_policy::Share::PRIORITY_MAX)
}
