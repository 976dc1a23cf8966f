// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides for each vif and direction whether the kernel forwards its frames by itself
//! (*redirected*) or they go through the queues of the switch (*queued*).
//!
//! The kernel's program polices and forwards, but has no queue. A vif is therefore redirected in a
//! direction only if the policy asks for it (`redirect = true`) and demands nothing there that
//! needs a queue or a check that the program does not make. A limit is enforced in one place: vifs
//! that share a limit are redirected together, or all of them are queued. The decision follows from
//! the policy alone, so that a dry run can print it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use weir_policy::{Direction, Kind, Policy, PortId, QueueKind, SliceId, Vif, VifId};

use crate::level::{PolicyLevel, groups, levels};

/// The reason why a vif's frames of one direction go through the queues of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuedReason {
    /// The policy does not ask for redirection.
    Off,
    /// Its frames are captured, which only user space can do.
    Captured,
    /// The policy does not demand XDP (`kind`) for the vif's device or its port's.
    Kind,
    /// The vif has no MAC address, or more than the program compares: this many.
    Macs(usize),
    /// Its IP addresses are checked.
    Addresses,
    /// A filter inspects its frames.
    Filter,
    /// This other slice has the same bridge of the port: both have the same VLAN, or neither has
    /// one.
    SharedVlan(String),
    /// The `rate` of this vif, router or slice shapes it.
    Shaped(String),
    /// This vif, router or slice has a minimum on the port in this direction.
    Minimum(String),
    /// This router is held at a packet rate by a limit on what it receives.
    Held(String),
    /// The vif has a delay bound.
    Delay,
    /// Slices send by the port in phases of a cycle.
    Cycle,
    /// Its queue is managed actively.
    Aqm,
    /// This vif, router or slice has a `max_pps` on what it receives. Multicast and the frames of
    /// queued senders reach the vif through user space; two places would admit twice the limit.
    ReceiveLimit(String),
    /// The `max_pps` of this group (first) is shared with this vif (second), which is queued.
    SharedLimit(String, String),
}

/// Decides for each vif, in each direction ([`Direction::ALL`]), whether it is redirected, or why
/// it is queued: the first reason that applies. The vifs in `captured` are queued for now.
#[must_use]
pub fn choices(policy: &Policy, captured: &BTreeSet<VifId>) -> Vec<PathChoice> {
    let conflicts = PortConflicts::of(policy);
    // First each vif by itself.
    let alone = |(id, vif)| {
        Direction::ALL.map(|direction| match conflicts.choose(policy, vif, direction) {
            Ok(()) if captured.contains(&id) => Err(QueuedReason::Captured),
            choice => choice,
        })
    };
    let mut choices: Vec<PathChoice> = policy.vifs().map(alone).collect();
    // Then the vifs that share a limit with a queued vif. One pass is enough: a router's vifs are
    // all of one slice, so a vif that is queued for its router's limit already has a queued vif in
    // its slice.
    let mut routers = vec![[const { None }; 2]; policy.routers.len()];
    let mut slices = vec![[const { None }; 2]; policy.slices.len()];
    for (vif, choice) in policy.vifs.iter().zip(&choices) {
        for at in (0..2).filter(|at| choice[*at].is_err()) {
            let router = vif.router.and_then(|id| routers.get_mut(id.0 as usize));
            for group in [router, slices.get_mut(vif.slice.0 as usize)].into_iter().flatten() {
                group[at].get_or_insert(&vif.name);
            }
        }
    }
    for (vif, choice) in policy.vifs.iter().zip(&mut choices) {
        for direction in Direction::ALL {
            let at = direction as usize;
            let router = vif.router.map(|id| (&routers[id.0 as usize], PolicyLevel::Router(id)));
            let slice = (&slices[vif.slice.0 as usize], PolicyLevel::Slice(vif.slice));
            for (queued, level) in router.into_iter().chain([slice]) {
                let (name, share) = level.share(policy, direction);
                if let (Some(other), Some(_), Ok(())) = (queued[at], share.max_pps, &choice[at]) {
                    choice[at] = Err(QueuedReason::SharedLimit(name.to_owned(), other.clone()));
                }
            }
        }
    }
    choices
}

/// Decides as [`choices`] does, for one vif and direction.
///
/// # Errors
/// Why it is queued. A vif that does not exist is queued.
pub fn redirected(policy: &Policy, vif: VifId, direction: Direction) -> Result<(), QueuedReason> {
    let choice = choices(policy, &BTreeSet::new())
        .into_iter()
        .nth(vif.0 as usize)
        .ok_or(QueuedReason::Off)?;
    let [send, receive] = choice;
    if direction == Direction::Send { send } else { receive }
}

/// Tells whether the frames of a vif may pass by their addresses alone while no worker runs. If the
/// policy demands more checks, no frame passes, since none could be checked.
pub fn may_stand_in(vif: &Vif, direction: Direction) -> bool {
    let checked = direction == Direction::Send && !vif.addresses.is_empty();
    let filtered =
        vif.filter.iter().any(|rule| rule.direction.is_none_or(|only| only == direction));
    (1..=MACS_MAX).contains(&vif.macs.len()) && !checked && !filtered
}

/// The choice for the two directions of a vif: redirected, or why it is queued.
pub type PathChoice = [Result<(), QueuedReason>; 2];

/// Properties of vifs that keep others on the same port from being redirected.
struct PortConflicts {
    /// The first vif, router or slice with a minimum, for each port and direction.
    minimums: Vec<[Option<String>; 2]>,
    /// Up to two slices for each bridge of a port.
    bridges: BTreeMap<(PortId, u16), (SliceId, Option<SliceId>)>,
}

impl PortConflicts {
    fn of(policy: &Policy) -> Self {
        let mut minimums = vec![[None, None]; policy.ports.len()];
        let mut bridges = BTreeMap::new();
        for (id, vif) in policy.vifs() {
            let key = (vif.port, policy.bridge_of(vif.port, vif.slice));
            let there = bridges.entry(key).or_insert((vif.slice, None));
            if there.0 != vif.slice {
                there.1 = Some(vif.slice);
            }
            for direction in Direction::ALL {
                let shares = levels(id, vif).map(|level| level.share(policy, direction));
                let minimum = &mut minimums[vif.port.0 as usize][direction as usize];
                for (name, share) in shares {
                    if share.min_rate.as_bps() > 0 || share.min_pps.as_pps() > 0 {
                        minimum.get_or_insert_with(|| name.to_owned());
                    }
                }
            }
        }
        Self { minimums, bridges }
    }

    /// Decides for one vif, without regard to the vifs that share a limit with it.
    fn choose(&self, policy: &Policy, vif: &Vif, direction: Direction) -> Result<(), QueuedReason> {
        let sending = direction == Direction::Send;
        if !policy.node.redirect {
            return Err(QueuedReason::Off);
        }
        if vif.kind != Kind::Xdp || policy[vif.port].kind != Kind::Xdp {
            return Err(QueuedReason::Kind);
        }
        if !(1..=MACS_MAX).contains(&vif.macs.len()) {
            return Err(QueuedReason::Macs(vif.macs.len()));
        }
        if sending && !vif.addresses.is_empty() {
            return Err(QueuedReason::Addresses);
        }
        if vif.filter.iter().any(|rule| rule.direction.is_none_or(|only| only == direction)) {
            return Err(QueuedReason::Filter);
        }
        let bridge = (vif.port, policy.bridge_of(vif.port, vif.slice));
        if let Some((first, Some(second))) = self.bridges.get(&bridge) {
            let other = if *first == vif.slice { second } else { first };
            return Err(QueuedReason::SharedVlan(policy[*other].name.clone()));
        }
        let router = vif.router.map(|id| &policy[id]).filter(|_| !sending);
        if let Some(held) = router.filter(|router| router.xtc.is_some()) {
            return Err(QueuedReason::Held(held.name.clone()));
        }
        let own = (vif.name.as_str(), vif.share(direction));
        let groups = groups(vif).map(|level| level.share(policy, direction));
        for (name, share) in std::iter::once(own).chain(groups) {
            if share.rate.is_some() {
                return Err(QueuedReason::Shaped(name.to_owned()));
            }
            if !sending && share.max_pps.is_some() {
                return Err(QueuedReason::ReceiveLimit(name.to_owned()));
            }
        }
        if sending && vif.delay.is_some() {
            return Err(QueuedReason::Delay);
        }
        if sending && policy[vif.port].cycle.is_some() {
            return Err(QueuedReason::Cycle);
        }
        // Queues of flows are managed too, but redirected frames never wait, so only `codel` on a
        // single queue counts.
        let queue = vif.queue(direction);
        if queue.kind == QueueKind::Fifo && queue.codel.is_some() {
            return Err(QueuedReason::Aqm);
        }
        match &self.minimums[vif.port.0 as usize][direction as usize] {
            Some(owner) => Err(QueuedReason::Minimum(owner.clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for QueuedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("node.redirect is false"),
            Self::Captured => f.write_str("it is captured"),
            Self::Kind => f.write_str("the kind of vif and port is not \"xdp\""),
            Self::Macs(0) => f.write_str("its addresses are not given (mac)"),
            Self::Macs(count) => write!(f, "{count} addresses (mac), at most {MACS_MAX}"),
            Self::Addresses => f.write_str("addresses are checked"),
            Self::Filter => f.write_str("a filter"),
            Self::SharedVlan(slice) => write!(f, "slice {slice} is in the same VLAN"),
            Self::Shaped(owner) => write!(f, "rate of {owner}"),
            Self::Minimum(owner) => write!(f, "a minimum of {owner} on the port"),
            Self::Held(router) => write!(f, "router {router} is held at a packet rate"),
            Self::Delay => f.write_str("a delay bound"),
            Self::Cycle => f.write_str("the port has a cycle"),
            Self::Aqm => f.write_str("active queue management"),
            Self::ReceiveLimit(owner) => write!(f, "max_pps of {owner} towards it"),
            Self::SharedLimit(owner, vif) => {
                write!(f, "max_pps of {owner} is shared with {vif}, which is queued")
            }
        }
    }
}

/// The most source addresses that the program compares.
const MACS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{
        ActuatorKind, Codel, Filter, FilterAction, MacAddr, Port, Router, RouterXtc, Slice,
    };
    use weir_units::{BitRate, Nanos, PacketRate};

    /// Two redirected vifs of one slice and router, on one port.
    fn policy() -> Policy {
        let mut policy = Policy::new("node");
        policy.node.redirect = true;
        let mut port = Port::new("up0", BitRate::from_mbps(100));
        port.kind = Kind::Xdp;
        let port = policy.add_port(port);
        let slice = policy.add_slice(Slice { vlan: Some(7), ..Slice::new("gold") });
        let router = policy.add_router(Router::new("vr1", slice));
        for (index, name) in [(0, "a"), (1, "b")] {
            let mut vif = Vif::new(name, slice, port);
            vif.kind = Kind::Xdp;
            vif.router = Some(router);
            vif.macs = vec![MacAddr([2, 0, 0, 0, 0, index])];
            policy.add_vif(vif);
        }
        policy
    }

    /// The first vif's choice in both directions, after a change.
    fn after(change: impl FnOnce(&mut Policy)) -> [Result<(), QueuedReason>; 2] {
        let mut policy = policy();
        change(&mut policy);
        Direction::ALL.map(|direction| redirected(&policy, VifId(0), direction))
    }

    #[test]
    fn what_needs_no_queue_is_redirected() {
        assert_eq!(after(|_| {}), [Ok(()), Ok(())]);
        let limit = Some(PacketRate::from_pps(1000));
        assert_eq!(after(|p| p.vifs[0].send.max_pps = limit), [Ok(()), Ok(())]);
        assert_eq!(after(|p| p.slices[0].send.max_pps = limit), [Ok(()), Ok(())]);
    }

    #[test]
    fn each_need_of_a_queue_is_named() {
        let name = |name: &str| name.to_owned();
        let both = |reason: QueuedReason| [Err(reason.clone()), Err(reason)];
        let rate = BitRate::from_mbps(1);
        let pps = PacketRate::from_pps(1000);
        assert_eq!(after(|p| p.node.redirect = false), both(QueuedReason::Off));
        assert_eq!(after(|p| p.vifs[0].kind = Kind::Auto), both(QueuedReason::Kind));
        assert_eq!(after(|p| p.ports[0].kind = Kind::Packet), both(QueuedReason::Kind));
        assert_eq!(after(|p| p.vifs[0].macs.clear()), both(QueuedReason::Macs(0)));
        assert_eq!(
            after(|p| p.vifs[0].macs = (0..5).map(|i| MacAddr([2, 0, 0, 0, 1, i])).collect()),
            both(QueuedReason::Macs(5))
        );
        let address = "10.0.0.1".parse().unwrap();
        assert_eq!(
            after(|p| p.vifs[0].addresses = vec![address]),
            [Err(QueuedReason::Addresses), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].filter = vec![Filter::new(FilterAction::Drop)]),
            both(QueuedReason::Filter)
        );
        assert_eq!(
            after(|p| p.vifs[0].delay = Some(Nanos::from_millis(1))),
            [Err(QueuedReason::Delay), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].receive_queue.codel = Some(Codel::default())),
            [Ok(()), Err(QueuedReason::Aqm)]
        );
        assert_eq!(
            after(|p| p.routers[0].send.rate = Some(rate)),
            [Err(QueuedReason::Shaped(name("vr1"))), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].receive.max_pps = Some(pps)),
            [Ok(()), Err(QueuedReason::ReceiveLimit(name("a")))]
        );
        let xtc = RouterXtc::new(pps, ActuatorKind::Cgroup);
        assert_eq!(
            after(|p| p.routers[0].xtc = Some(xtc)),
            [Ok(()), Err(QueuedReason::Held(name("vr1")))],
            "what it forwards is limited by what it gets"
        );
        // The minimum of any vif on the port counts, but only in its own direction.
        assert_eq!(
            after(|p| p.vifs[1].send.min_rate = rate),
            [Err(QueuedReason::Minimum(name("b"))), Ok(())]
        );
        assert_eq!(
            after(|p| p.slices[0].receive.min_pps = pps),
            [Ok(()), Err(QueuedReason::Minimum(name("gold")))]
        );
    }

    /// A limit is enforced in one place: all vifs that share it are redirected, or none.
    #[test]
    fn a_limit_is_held_in_one_place() {
        let pps = Some(PacketRate::from_pps(1000));
        let shared = |p: &mut Policy| {
            p.routers[0].send.max_pps = pps;
            p.vifs[1].send.rate = Some(BitRate::from_mbps(1));
        };
        let reason = QueuedReason::SharedLimit("vr1".to_owned(), "b".to_owned());
        assert_eq!(after(shared), [Err(reason), Ok(())]);
        let apart = |p: &mut Policy| {
            shared(p);
            p.vifs[1].router = None;
        };
        assert_eq!(after(apart), [Ok(()), Ok(())]);
    }

    /// Only user space can copy frames. A vif that shares a limit with a captured one is queued,
    /// too.
    #[test]
    fn a_captured_vif_is_queued() {
        let mut policy = policy();
        let captured = BTreeSet::from([VifId(0)]);
        let both = |choice: Result<(), QueuedReason>| [choice.clone(), choice];
        let of = |policy: &Policy| choices(policy, &captured);
        assert_eq!(of(&policy), [both(Err(QueuedReason::Captured)), both(Ok(()))]);
        policy.routers[0].send.max_pps = Some(PacketRate::from_pps(1000));
        let shared = QueuedReason::SharedLimit("vr1".to_owned(), "a".to_owned());
        assert_eq!(of(&policy)[1], [Err(shared), Ok(())]);
        policy.node.redirect = false;
        assert_eq!(of(&policy)[0], both(Err(QueuedReason::Off)));
    }

    #[test]
    fn slices_of_one_vlan_are_queued() {
        let stranger = |p: &mut Policy| {
            let slice = p.add_slice(Slice { vlan: Some(7), ..Slice::new("lead") });
            p.vifs[1].slice = slice;
            p.vifs[1].router = None;
        };
        let reason = QueuedReason::SharedVlan("lead".to_owned());
        assert_eq!(after(stranger), [Err(reason.clone()), Err(reason)]);
        assert_eq!(redirected(&policy(), VifId(9), Direction::Send), Err(QueuedReason::Off));
    }
}
