// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of each class of a tree, derived from the policy of one port.
//!
//! A scheduler guarantees a rate to a leaf; weights divide the rest. A `min_rate` of a slice
//! or router that its members' own do not use up is therefore handed down to its vifs, by their
//! priorities. While some of them are idle, a nested scheduler lets the others hold it through the
//! weights: among siblings of which one has such a rest, a weight is `min_rate` plus the priority's
//! part of what is left beyond all minimums, so that the weight alone gives each sibling its
//! minimum.

use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Policy, PortId, Queue, QueueKind, Share};
use weir_sched::{ClassConfig, CodelConfig, FlowQueueConfig, QueueConfig};
use weir_units::{BitRate, ByteCount};

/// The configuration of every class that a port's tree may have, by the policy's indexes.
#[derive(Clone, Debug)]
pub(crate) struct TreeShares {
    /// The slices that have a vif on the port.
    pub(crate) slices: Vec<Option<ClassConfig>>,
    /// The routers that have a vif on the port.
    pub(crate) routers: Vec<Option<ClassConfig>>,
    /// The vifs that hang on the port.
    pub(crate) vifs: Vec<Option<ClassConfig>>,
}

/// Minimums in bits a second, after handing down.
struct Minimums {
    vifs: Vec<u64>,
    routers: Vec<u64>,
    slices: Vec<u64>,
    /// Set where a rest was handed down to more than one vif.
    shared_routers: Vec<bool>,
    shared_slices: Vec<bool>,
}

impl TreeShares {
    /// Returns the shares of a port's three trees: send, receive, local.
    pub(crate) fn of_trees(policy: &Policy, port: PortId) -> [Self; 3] {
        let of = |direction, minimums| Self::of(policy, port, direction, minimums);
        // Local traffic has no link of its own, so no part of one can be guaranteed.
        [of(Direction::Send, true), of(Direction::Receive, true), of(Direction::Send, false)]
    }

    /// Returns the shares of one direction. `minimums` is set if guarantees are given.
    fn of(policy: &Policy, port: PortId, direction: Direction, minimums: bool) -> Self {
        let least =
            if minimums { Minimums::of(policy, port, direction) } else { Minimums::none(policy) };
        let mut shares = Self::plain(policy, port, direction, &least);
        // Below a flat scheduler all vifs of the port are siblings: weights among those of one
        // slice mean nothing there.
        if policy[port].scheduler.holds().levels {
            shares.weigh(policy, port, direction, &least);
        }
        shares
    }

    fn plain(policy: &Policy, port: PortId, direction: Direction, least: &Minimums) -> Self {
        let mut slices = vec![None; policy.slices.len()];
        let mut routers = vec![None; policy.routers.len()];
        let mut vifs = vec![None; policy.vifs.len()];
        let flows = flows_each(policy);
        for (id, vif) in policy.vifs().filter(|(_, vif)| vif.port == port) {
            let at = id.0 as usize;
            let mut config = class(vif.share(direction), least.vifs[at]);
            config.queue = queue(vif.queue(direction), flows);
            if vif.shaper(direction).is_some() {
                // Its smooth window holds the rate, before the tree.
                config.max_rate = None;
                config.queue.codel = None;
            }
            if direction == Direction::Send && least.vifs[at] > 0 {
                config.delay = vif.delay;
                config.delay_packet = vif.delay_packet;
            }
            vifs[at] = Some(config);
            if let Some(router) = vif.router {
                let at = router.0 as usize;
                routers[at] = Some(class(policy[router].share(direction), least.routers[at]));
            }
            let at = vif.slice.0 as usize;
            slices[at] = Some(class(policy[vif.slice].share(direction), least.slices[at]));
        }
        Self { slices, routers, vifs }
    }

    /// Replaces the weights of siblings where a shared minimum hangs on them.
    fn weigh(&mut self, policy: &Policy, port: PortId, direction: Direction, least: &Minimums) {
        if least.shared_slices.contains(&true) {
            let base = policy[port].rate.as_bps();
            let members = self.slices.iter_mut().zip(&least.slices);
            reweigh(base, members.filter_map(|(c, m)| c.as_mut().map(|c| (c, *m))));
        }
        if !least.shared_routers.contains(&true) {
            return;
        }
        for (slice, base) in least.slices.iter().enumerate() {
            let inside = |id: weir_policy::SliceId| id.0 as usize == slice;
            let mut routers = policy.routers().filter(|(_, router)| inside(router.slice));
            if !routers.any(|(id, _)| least.shared_routers[id.0 as usize]) {
                continue;
            }
            let of_slice = policy[weir_policy::SliceId(u32::try_from(slice).unwrap_or(0))]
                .share(direction)
                .min_rate
                .as_bps();
            let base = (*base).max(of_slice);
            let at_router = self.routers.iter_mut().enumerate().filter_map(|(at, config)| {
                let own = policy.routers.get(at).is_some_and(|router| inside(router.slice));
                config.as_mut().filter(|_| own).map(|config| (config, least.routers[at]))
            });
            let at_vif = self.vifs.iter_mut().enumerate().filter_map(|(at, config)| {
                let vif = policy.vifs.get(at);
                let own = vif.is_some_and(|vif| inside(vif.slice) && vif.router.is_none());
                config.as_mut().filter(|_| own).map(|config| (config, least.vifs[at]))
            });
            reweigh(base, at_router.chain(at_vif));
        }
    }
}

impl Minimums {
    fn none(policy: &Policy) -> Self {
        Self {
            vifs: vec![0; policy.vifs.len()],
            routers: vec![0; policy.routers.len()],
            slices: vec![0; policy.slices.len()],
            shared_routers: vec![false; policy.routers.len()],
            shared_slices: vec![false; policy.slices.len()],
        }
    }

    fn of(policy: &Policy, port: PortId, direction: Direction) -> Self {
        let mut least = Self::none(policy);
        let here: Vec<usize> =
            (0..policy.vifs.len()).filter(|at| policy.vifs[*at].port == port).collect();
        let share = |at: usize| policy.vifs[at].share(direction);
        for at in &here {
            least.vifs[*at] = share(*at).min_rate.as_bps();
        }
        let mut of_router = vec![Vec::new(); policy.routers.len()];
        let mut of_slice = vec![Vec::new(); policy.slices.len()];
        for at in &here {
            of_slice[policy.vifs[*at].slice.0 as usize].push(*at);
            if let Some(router) = policy.vifs[*at].router {
                of_router[router.0 as usize].push(*at);
            }
        }
        for (at, (router, members)) in policy.routers.iter().zip(&of_router).enumerate() {
            let wanted = router.share(direction).min_rate.as_bps();
            least.shared_routers[at] = hand_down(wanted, members, &mut least.vifs, share);
            least.routers[at] = members.iter().map(|at| least.vifs[*at]).sum::<u64>().max(wanted);
        }
        for (at, (slice, members)) in policy.slices.iter().zip(&of_slice).enumerate() {
            let wanted = slice.share(direction).min_rate.as_bps();
            least.shared_slices[at] = hand_down(wanted, members, &mut least.vifs, share);
            least.slices[at] = members.iter().map(|at| least.vifs[*at]).sum::<u64>().max(wanted);
        }
        least
    }
}

/// Raises the minimums of `members` so that they sum up to `wanted`, by priority and within each
/// one's limit. Returns whether a rest was handed down to more than one member.
fn hand_down<'a>(
    wanted: u64,
    members: &[usize],
    vifs: &mut [u64],
    share: impl Fn(usize) -> &'a Share,
) -> bool {
    let rest = wanted.saturating_sub(members.iter().map(|at| vifs[*at]).sum());
    let priorities: u128 = members.iter().map(|at| u128::from(share(*at).priority)).sum();
    if rest == 0 || priorities == 0 {
        return false;
    }
    for at in members {
        let part = u128::from(rest) * u128::from(share(*at).priority) / priorities;
        let part = u64::try_from(part).unwrap_or(rest);
        let limit = share(*at).rate.map_or(u64::MAX, BitRate::as_bps);
        vifs[*at] = vifs[*at].saturating_add(part).min(limit.max(vifs[*at]));
    }
    members.len() > 1
}

/// Sets weights of siblings that alone give each its minimum: see the module's documentation.
fn reweigh<'a>(base: u64, members: impl Iterator<Item = (&'a mut ClassConfig, u64)>) {
    let members: Vec<_> = members.collect();
    let least: u128 = members.iter().map(|(_, min)| u128::from(*min)).sum();
    let priorities: u128 = members.iter().map(|(config, _)| u128::from(config.weight)).sum();
    let base = u128::from(base).max(least).max(1);
    for (config, min) in members {
        let excess = (base - least) * u128::from(config.weight) / priorities.max(1);
        let weight = (u128::from(min) + excess) * u128::from(Share::PRIORITY_MAX) / base;
        config.weight = u32::try_from(weight).unwrap_or(Share::PRIORITY_MAX).max(1);
    }
}

fn class(share: &Share, least: u64) -> ClassConfig {
    ClassConfig {
        weight: share.priority,
        min_rate: BitRate::from_bps(least),
        delay: None,
        delay_packet: ByteCount::ZERO,
        max_rate: share.rate,
        burst: share.burst,
        queue: queue(&Queue::default(), 1),
    }
}

fn queue(queue: &Queue, flows: u32) -> QueueConfig {
    let flows = FlowQueueConfig { flows, l4s: queue.l4s };
    QueueConfig {
        packets: queue.packets,
        bytes: queue.bytes,
        codel: queue.codel.map(|codel| CodelConfig {
            target: codel.target,
            interval: codel.interval,
            ecn: codel.ecn,
        }),
        flows: (queue.kind == QueueKind::Flows).then_some(flows),
    }
}

/// Returns each class's part of the node's flows. A vif has a class for what it sends to its port,
/// one for what it sends to others, one for what it receives.
fn flows_each(policy: &Policy) -> u32 {
    let of = |queue: &Queue, classes: u32| if queue.kind == QueueKind::Flows { classes } else { 0 };
    let classes =
        policy.vifs.iter().map(|vif| of(&vif.send_queue, 2) + of(&vif.receive_queue, 1)).sum();
    (policy.node.flows / u32::max(classes, 1)).clamp(1, FlowQueueConfig::FLOWS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Port, Router, Slice, SliceId, Vif};

    fn node() -> (Policy, PortId, SliceId) {
        let mut policy = Policy::new("n");
        let port = policy.add_port(Port::new("p", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("s"));
        (policy, port, slice)
    }

    #[test]
    fn a_slice_hands_its_minimum_down_by_priority_and_within_limits() {
        let (mut policy, port, slice) = node();
        policy[slice].send.min_rate = BitRate::from_mbps(40);
        for (name, priority, min) in [("a", 1, 10), ("b", 2, 0)] {
            let mut vif = Vif::new(name, slice, port);
            vif.send.priority = priority;
            vif.send.min_rate = BitRate::from_mbps(min);
            policy.add_vif(vif);
        }
        let shares = TreeShares::of(&policy, port, Direction::Send, true);
        let min = |at: usize| shares.vifs[at].as_ref().unwrap().min_rate.as_bps();
        assert_eq!((min(0), min(1)), (20_000_000, 20_000_000));
        policy.vifs[1].send.rate = Some(BitRate::from_mbps(15));
        let shares = TreeShares::of(&policy, port, Direction::Send, true);
        assert_eq!(shares.vifs[1].as_ref().unwrap().min_rate, BitRate::from_mbps(15));
        let local = TreeShares::of(&policy, port, Direction::Send, false);
        assert_eq!(local.vifs[0].as_ref().unwrap().min_rate, BitRate::ZERO);
    }

    #[test]
    fn weights_alone_give_a_shared_minimum() {
        let (mut policy, port, slice) = node();
        let other = policy.add_slice(Slice::new("t"));
        policy[slice].send.min_rate = BitRate::from_mbps(40);
        policy[other].send.priority = 3;
        for (name, slice) in [("a", slice), ("b", slice), ("c", other)] {
            policy.add_vif(Vif::new(name, slice, port));
        }
        let shares = TreeShares::of(&policy, port, Direction::Send, true);
        let weight = |at: usize| shares.slices[at].as_ref().unwrap().weight;
        // 40 + 60 · 1/4 of 100, and 60 · 3/4 of 100.
        assert_eq!((weight(0), weight(1)), (550_000, 450_000));
    }

    /// A router hands its rest down to two vifs, beside which a third hangs on the slice.
    #[test]
    fn a_flat_scheduler_keeps_priorities_as_weights() {
        let (mut policy, port, slice) = node();
        let router = policy.add_router(Router::new("r", slice));
        policy[router].send.min_rate = BitRate::from_mbps(40);
        for (name, router) in [("a", Some(router)), ("b", Some(router)), ("c", None)] {
            let mut vif = Vif::new(name, slice, port);
            vif.router = router;
            policy.add_vif(vif);
        }
        policy.vifs[2].send.min_rate = BitRate::from_mbps(10);
        let weight_of_c = |policy: &Policy| {
            let shares = TreeShares::of(policy, port, Direction::Send, true);
            shares.vifs[2].as_ref().unwrap().weight
        };
        assert_eq!(weight_of_c(&policy), 200_000, "10 of 50, beside the router");
        policy[port].scheduler = weir_policy::SchedulerKind::Wrr;
        assert_eq!(weight_of_c(&policy), 1, "beside all vifs");
    }

    #[test]
    fn without_a_shared_minimum_a_weight_is_the_priority() {
        let (mut policy, port, slice) = node();
        let router = policy.add_router(Router::new("r", slice));
        policy[router].send.min_rate = BitRate::from_mbps(40);
        policy[router].send.priority = 7;
        let mut vif = Vif::new("a", slice, port);
        vif.router = Some(router);
        policy.add_vif(vif);
        let shares = TreeShares::of(&policy, port, Direction::Send, true);
        assert_eq!(shares.routers[0].as_ref().unwrap().weight, 7);
        assert_eq!(shares.vifs[0].as_ref().unwrap().min_rate, BitRate::from_mbps(40));
        assert_eq!(shares.slices[0].as_ref().unwrap().weight, 1);
    }
}
