// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Redirected or queued: the choice for each vif and direction, from the policy alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use weir_policy::{Direction, Kind, Policy, PortId, RouterId, Share, SliceId, Vif, VifId};

use crate::places::Moved;

/// Why a vif and direction goes through the queues of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The policy does not ask for redirection.
    Off,
    /// Somebody captures its frames, which only user space can copy.
    Captured,
    /// The vif's device or its port's is not surely driven by XDP: `kind` is another.
    Kind,
    /// Its addresses are not given, or are more than the program compares: how many.
    Macs(usize),
    /// IP addresses are checked.
    Addresses,
    /// A filter looks at it.
    Filter,
    /// Another slice is in the same VLAN of the port.
    SharedVlan(String),
    /// A `rate` shapes it: whose.
    Shaped(String),
    /// Somebody has a minimum on the port in this direction: who.
    Minimum(String),
    /// Its router is held at a packet rate, by what it receives: which router.
    Held(String),
    /// A delay bound.
    Delay,
    /// Active queue management.
    Aqm,
    /// A `max_pps` of what is received: whose. Groups and frames of queued senders reach the vif
    /// through user space, and two places would admit twice the limit.
    ReceiveLimit(String),
    /// Shares a `max_pps` with a vif that is queued: whose limit, and that vif.
    SharedLimit(String, String),
}

/// Whether the frames of each vif in each direction ([`Direction::ALL`]) are policed and sent on in
/// the kernel; if not, the first reason for which they are queued. `captured`: vifs that are not
/// for now.
#[must_use]
pub fn choices(policy: &Policy, captured: &BTreeSet<VifId>) -> Vec<Choice> {
    let places = Places::of(policy);
    let alone = |(id, vif)| {
        Direction::ALL.map(|direction| match places.alone(policy, vif, direction) {
            Ok(()) if captured.contains(&id) => Err(Queued::Captured),
            choice => choice,
        })
    };
    let mut choices: Vec<Choice> = policy.vifs().map(alone).collect();
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
            let router = vif.router.map(|id| (&routers[id.0 as usize], Level::Router(id)));
            let slice = (&slices[vif.slice.0 as usize], Level::Slice(vif.slice));
            for (queued, level) in router.into_iter().chain([slice]) {
                let (name, share) = level.share(policy, direction);
                if let (Some(other), Some(_), Ok(())) = (queued[at], share.max_pps, &choice[at]) {
                    choice[at] = Err(Queued::SharedLimit(name.to_owned(), other.clone()));
                }
            }
        }
    }
    choices
}

/// As [`choices`], for one of them.
///
/// # Errors
/// Why it is queued. A vif that does not exist is.
pub fn redirected(policy: &Policy, vif: VifId, direction: Direction) -> Result<(), Queued> {
    let choice =
        choices(policy, &BTreeSet::new()).into_iter().nth(vif.0 as usize).ok_or(Queued::Off)?;
    let [send, receive] = choice;
    if direction == Direction::Send { send } else { receive }
}

/// Whether the frames of a vif may pass by addresses alone while no worker is here. Where more has
/// to be looked at, none pass: what is not checked is not let through.
pub fn may_stand_in(vif: &Vif, direction: Direction) -> bool {
    let checked = direction == Direction::Send && !vif.addresses.is_empty();
    let filtered =
        vif.filter.iter().any(|rule| rule.direction.is_none_or(|only| only == direction));
    (1..=MACS_MAX).contains(&vif.macs.len()) && !checked && !filtered
}

/// The two directions of a vif.
pub type Choice = [Result<(), Queued>; 2];

/// What vifs of the same place do to each other.
struct Places {
    /// Of each port and direction, somebody with a minimum.
    minimums: Vec<[Option<String>; 2]>,
    /// Of each port and VLAN, two of the slices there.
    vlans: BTreeMap<(PortId, Option<u16>), (SliceId, Option<SliceId>)>,
}

impl Places {
    fn of(policy: &Policy) -> Self {
        let mut minimums = vec![[None, None]; policy.ports.len()];
        let mut vlans = BTreeMap::new();
        for (id, vif) in policy.vifs() {
            let key = (vif.port, policy[vif.slice].vlan);
            let there = vlans.entry(key).or_insert((vif.slice, None));
            if there.0 != vif.slice {
                there.1 = Some(vif.slice);
            }
            for direction in Direction::ALL {
                let shares = levels(id, vif).map(|level| level.share(policy, direction));
                let place = &mut minimums[vif.port.0 as usize][direction as usize];
                for (name, share) in shares {
                    if share.min_rate.as_bps() > 0 || share.min_pps.as_pps() > 0 {
                        place.get_or_insert_with(|| name.to_owned());
                    }
                }
            }
        }
        Self { minimums, vlans }
    }

    /// The choice for a vif without regard to those that share a limit with it.
    fn alone(&self, policy: &Policy, vif: &Vif, direction: Direction) -> Result<(), Queued> {
        let sending = direction == Direction::Send;
        if !policy.node.redirect {
            return Err(Queued::Off);
        }
        if vif.kind != Kind::Xdp || policy[vif.port].kind != Kind::Xdp {
            return Err(Queued::Kind);
        }
        if !(1..=MACS_MAX).contains(&vif.macs.len()) {
            return Err(Queued::Macs(vif.macs.len()));
        }
        if sending && !vif.addresses.is_empty() {
            return Err(Queued::Addresses);
        }
        if vif.filter.iter().any(|rule| rule.direction.is_none_or(|only| only == direction)) {
            return Err(Queued::Filter);
        }
        if let Some((first, Some(second))) = self.vlans.get(&(vif.port, policy[vif.slice].vlan)) {
            let other = if *first == vif.slice { second } else { first };
            return Err(Queued::SharedVlan(policy[*other].name.clone()));
        }
        let router = vif.router.map(|id| &policy[id]).filter(|_| !sending);
        if let Some(held) = router.filter(|router| router.xtc.is_some()) {
            return Err(Queued::Held(held.name.clone()));
        }
        let own = (vif.name.as_str(), vif.share(direction));
        let groups = groups(vif).map(|level| level.share(policy, direction));
        for (name, share) in std::iter::once(own).chain(groups) {
            if share.rate.is_some() {
                return Err(Queued::Shaped(name.to_owned()));
            }
            if !sending && share.max_pps.is_some() {
                return Err(Queued::ReceiveLimit(name.to_owned()));
            }
        }
        if sending && vif.delay.is_some() {
            return Err(Queued::Delay);
        }
        if vif.queue(direction).codel.is_some() {
            return Err(Queued::Aqm);
        }
        match &self.minimums[vif.port.0 as usize][direction as usize] {
            Some(owner) => Err(Queued::Minimum(owner.clone())),
            None => Ok(()),
        }
    }
}

/// A vif, router or slice: who may have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Vif(VifId),
    Router(RouterId),
    Slice(SliceId),
}

impl Level {
    /// The position of its packets' bucket on a redirected path.
    pub(crate) const fn position(self) -> usize {
        match self {
            Self::Vif(_) => 0,
            Self::Router(_) => 2,
            Self::Slice(_) => 4,
        }
    }

    /// The same one by its new number.
    pub(crate) fn moved(self, moved: &Moved) -> Option<Self> {
        let to = |numbers: &[Option<u32>], id: u32| numbers.get(id as usize).copied().flatten();
        match self {
            Self::Vif(id) => to(&moved.vifs, id.0).map(|id| Self::Vif(VifId(id))),
            Self::Router(id) => to(&moved.routers, id.0).map(|id| Self::Router(RouterId(id))),
            Self::Slice(id) => to(&moved.slices, id.0).map(|id| Self::Slice(SliceId(id))),
        }
    }

    /// Its name and share.
    pub(crate) fn share(self, policy: &Policy, direction: Direction) -> (&str, &Share) {
        match self {
            Self::Vif(id) => (&policy[id].name, policy[id].share(direction)),
            Self::Router(id) => (&policy[id].name, policy[id].share(direction)),
            Self::Slice(id) => (&policy[id].name, policy[id].share(direction)),
        }
    }
}

/// A vif and the groups that it is in.
pub(crate) fn levels(id: VifId, vif: &Vif) -> impl Iterator<Item = Level> {
    std::iter::once(Level::Vif(id)).chain(groups(vif))
}

fn groups(vif: &Vif) -> impl Iterator<Item = Level> {
    vif.router.map(Level::Router).into_iter().chain([Level::Slice(vif.slice)])
}

impl fmt::Display for Queued {
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
            Self::Aqm => f.write_str("active queue management"),
            Self::ReceiveLimit(owner) => write!(f, "max_pps of {owner} towards it"),
            Self::SharedLimit(owner, vif) => {
                write!(f, "max_pps of {owner} is shared with {vif}, which is queued")
            }
        }
    }
}

/// Source addresses that the program compares.
const MACS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{
        Action, ActuatorKind, Codel, Filter, MacAddr, Port, Router, RouterXtc, Slice,
    };
    use weir_units::{BitRate, Nanos, PacketRate};

    /// Two vifs of a slice and router, on a port, all redirected.
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

    /// What the first vif's choice is, both ways, after a change.
    fn after(change: impl FnOnce(&mut Policy)) -> [Result<(), Queued>; 2] {
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
        let both = |reason: Queued| [Err(reason.clone()), Err(reason)];
        let rate = BitRate::from_mbps(1);
        let pps = PacketRate::from_pps(1000);
        assert_eq!(after(|p| p.node.redirect = false), both(Queued::Off));
        assert_eq!(after(|p| p.vifs[0].kind = Kind::Auto), both(Queued::Kind));
        assert_eq!(after(|p| p.ports[0].kind = Kind::Packet), both(Queued::Kind));
        assert_eq!(after(|p| p.vifs[0].macs.clear()), both(Queued::Macs(0)));
        assert_eq!(
            after(|p| p.vifs[0].macs = (0..5).map(|i| MacAddr([2, 0, 0, 0, 1, i])).collect()),
            both(Queued::Macs(5))
        );
        let address = "10.0.0.1".parse().unwrap();
        assert_eq!(
            after(|p| p.vifs[0].addresses = vec![address]),
            [Err(Queued::Addresses), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].filter = vec![Filter::new(Action::Drop)]),
            both(Queued::Filter)
        );
        assert_eq!(
            after(|p| p.vifs[0].delay = Some(Nanos::from_millis(1))),
            [Err(Queued::Delay), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].receive_queue.codel = Some(Codel::default())),
            [Ok(()), Err(Queued::Aqm)]
        );
        assert_eq!(
            after(|p| p.routers[0].send.rate = Some(rate)),
            [Err(Queued::Shaped(name("vr1"))), Ok(())]
        );
        assert_eq!(
            after(|p| p.vifs[0].receive.max_pps = Some(pps)),
            [Ok(()), Err(Queued::ReceiveLimit(name("a")))]
        );
        let xtc = RouterXtc::new(pps, ActuatorKind::Cgroup);
        assert_eq!(
            after(|p| p.routers[0].xtc = Some(xtc)),
            [Ok(()), Err(Queued::Held(name("vr1")))],
            "what it forwards is limited by what it gets"
        );
        // A minimum of anybody there, and only in its direction.
        assert_eq!(
            after(|p| p.vifs[1].send.min_rate = rate),
            [Err(Queued::Minimum(name("b"))), Ok(())]
        );
        assert_eq!(
            after(|p| p.slices[0].receive.min_pps = pps),
            [Ok(()), Err(Queued::Minimum(name("gold")))]
        );
    }

    /// A limit is held in one place: all that share it are redirected, or none.
    #[test]
    fn a_limit_is_held_in_one_place() {
        let pps = Some(PacketRate::from_pps(1000));
        let shared = |p: &mut Policy| {
            p.routers[0].send.max_pps = pps;
            p.vifs[1].send.rate = Some(BitRate::from_mbps(1));
        };
        let reason = Queued::SharedLimit("vr1".to_owned(), "b".to_owned());
        assert_eq!(after(shared), [Err(reason), Ok(())]);
        let apart = |p: &mut Policy| {
            shared(p);
            p.vifs[1].router = None;
        };
        assert_eq!(after(apart), [Ok(()), Ok(())]);
    }

    /// Only user space can copy frames; who shares a limit with such a vif is queued with it.
    #[test]
    fn a_captured_vif_is_queued() {
        let mut policy = policy();
        let captured = BTreeSet::from([VifId(0)]);
        let both = |choice: Result<(), Queued>| [choice.clone(), choice];
        let of = |policy: &Policy| choices(policy, &captured);
        assert_eq!(of(&policy), [both(Err(Queued::Captured)), both(Ok(()))]);
        policy.routers[0].send.max_pps = Some(PacketRate::from_pps(1000));
        let shared = Queued::SharedLimit("vr1".to_owned(), "a".to_owned());
        assert_eq!(of(&policy)[1], [Err(shared), Ok(())]);
        policy.node.redirect = false;
        assert_eq!(of(&policy)[0], both(Err(Queued::Off)));
    }

    #[test]
    fn slices_of_one_vlan_are_queued() {
        let stranger = |p: &mut Policy| {
            let slice = p.add_slice(Slice { vlan: Some(7), ..Slice::new("lead") });
            p.vifs[1].slice = slice;
            p.vifs[1].router = None;
        };
        let reason = Queued::SharedVlan("lead".to_owned());
        assert_eq!(after(stranger), [Err(reason.clone()), Err(reason)]);
        assert_eq!(redirected(&policy(), VifId(9), Direction::Send), Err(Queued::Off));
    }
}
