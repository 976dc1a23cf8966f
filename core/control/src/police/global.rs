// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Policing Mechanism over all nodes of a network (§3, §8.1). It decides what each tenant may
//! send, from its agreement and from what every node sees of it.
//!
//! A tenant has a router at each of several nodes, and its packets enter at some of them. At each
//! sample every node reports what was offered to each router and what the router forwarded.
//!
//! - A node is *contended* while its routers are offered more than it carries ([`Contention`]).
//!   Nodes are shared by max-min over all of them ([`max_min_over_nodes`]): a tenant gets one rate,
//!   which all nodes that it passes carry.
//! - A tenant that passes a contended node is held at that rate where its packets *enter*: a packet
//!   that a later node would drop costs nothing on the way. At the contended node itself it is held
//!   too. Without contention nobody is held.
//! - Conduct is judged by the highest rate that any node was offered ([`Conduct`]). A punishment
//!   lowers the rate at the entry.

use alloc::vec;
use alloc::vec::Vec;

use weir_units::{Instant, PacketRate};

use super::conduct::{Conduct, ConductConfig, Grade, Judgement};
use super::contention::{Contention, ContentionConfig, Demand};
use super::over_nodes::{PassingClaim, max_min_over_nodes};
use super::set_points::{RateClaim, SET_POINT_LEAST, SHARED_PPM, wants};

/// A tenant's agreement over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantAgreement {
    /// Guaranteed rate at each node that it passes.
    pub min: PacketRate,
    /// Upper limit.
    pub max: Option<PacketRate>,
    /// Share of what is left beyond guarantees: a weight.
    pub weight: u32,
}

/// A tenant's router at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicedRouter {
    /// The tenant, as a place in the list of agreements.
    pub tenant: usize,
    /// The node, as a place in the list of capacities.
    pub node: usize,
    /// True if the tenant's packets enter the network there.
    pub is_entry: bool,
}

/// Traffic of a router since the last sample, as its node counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedTraffic {
    /// Packets a second that came for the router, dropped ones among them.
    pub offered: PacketRate,
    /// Packets a second that it was allowed to forward.
    pub passed: PacketRate,
}

/// Result of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalRuling {
    /// For each router, the rate at which it is held; `None` if it is left alone.
    pub set_points: Vec<Option<PacketRate>>,
    /// Punishments that changed, by tenant.
    pub judged: Vec<(usize, Judgement)>,
}

/// The mechanism.
#[derive(Clone, Debug)]
pub struct GlobalPolice {
    nodes: Vec<PolicedNode>,
    tenants: Vec<PolicedTenant>,
    routers: Vec<PolicedRouter>,
}

#[derive(Clone, Debug)]
struct PolicedNode {
    /// `None` while it is not known: then nobody contends there.
    capacity: Option<PacketRate>,
    contention: Contention,
    is_contended: bool,
}

#[derive(Clone, Debug)]
struct PolicedTenant {
    agreement: TenantAgreement,
    conduct: Conduct,
    /// Nodes that it passes.
    nodes: Vec<usize>,
    /// Its rate before any punishment.
    allowed: PacketRate,
    /// Its rate, including its part of what punished tenants may no longer send.
    given: PacketRate,
    is_held: bool,
}

impl GlobalPolice {
    /// Makes the mechanism of nodes with these capacities, `None` where one is not known: such a
    /// node limits nobody. A router of a tenant or node that is not in the lists is left alone.
    #[must_use]
    pub fn new(
        capacities: &[Option<PacketRate>],
        agreements: &[TenantAgreement],
        routers: &[PolicedRouter],
    ) -> Self {
        let node = |capacity: &Option<PacketRate>| PolicedNode {
            capacity: *capacity,
            contention: Contention::new(ContentionConfig::DEFAULT),
            is_contended: false,
        };
        let tenant = |(place, agreement): (usize, &TenantAgreement)| {
            let own = routers.iter().filter(|router| router.tenant == place);
            let mut nodes: Vec<usize> = own.map(|router| router.node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            PolicedTenant {
                agreement: *agreement,
                conduct: Conduct::new(ConductConfig::DEFAULT),
                nodes,
                allowed: agreement.min,
                given: agreement.min,
                is_held: false,
            }
        };
        Self {
            nodes: capacities.iter().map(node).collect(),
            tenants: agreements.iter().enumerate().map(tenant).collect(),
            routers: routers.to_vec(),
        }
    }

    /// Sets the capacity of a node; `None` if it is no longer known. Nothing happens if there is no
    /// such node.
    pub fn set_capacity(&mut self, node: usize, capacity: Option<PacketRate>) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.capacity = capacity;
        }
    }

    /// Starts in contention at a node because an earlier mechanism holds these tenants there, each
    /// at its rate. This contention ends like any other; until then no tenant is released. Unknown
    /// tenants and nodes are ignored.
    pub fn resume(&mut self, now: Instant, node: usize, held: &[(usize, PacketRate)]) {
        for (tenant, rate) in held {
            if let Some(tenant) = self.tenants.get_mut(*tenant) {
                (tenant.given, tenant.is_held) = (*rate, true);
            }
        }
        if let Some(node) = self.nodes.get_mut(node).filter(|node| !node.is_contended) {
            node.contention.begin(now);
            node.is_contended = true;
        }
    }

    /// Takes the traffic of each router, in the order of [`Self::new`], and returns the new
    /// set-points; `None` where no traffic was reported.
    pub fn step(&mut self, now: Instant, seen: &[Option<ObservedTraffic>]) -> GlobalRuling {
        let traffic = |place: usize| seen.get(place).copied().flatten();
        self.judge_contention(now, &traffic);
        let offered = self.highest(&traffic, |of| of.offered);
        let passed = self.highest(&traffic, |of| of.passed);
        let capacities: Vec<_> = self.nodes.iter().map(PolicedNode::shared).collect();
        let each = self.tenants.iter().zip(offered.iter().zip(&passed));
        let mut claims: Vec<PassingClaim> = each
            .map(|(tenant, (offered, passed))| tenant.claim(*offered, passed.unwrap_or_default()))
            .collect();
        let rates = max_min_over_nodes(&capacities, &claims);
        let mut judged = Vec::new();
        for (place, (tenant, rate)) in self.tenants.iter_mut().zip(rates).enumerate() {
            let contended = |node: &usize| self.nodes.get(*node).is_some_and(|of| of.is_contended);
            let is_contended = tenant.nodes.iter().any(contended);
            tenant.allowed = rate.max(tenant.agreement.min);
            let judgement = tenant.conduct.step(now, offered[place], tenant.allowed, is_contended);
            judged.extend(judgement.map(|judgement| (place, judgement)));
            tenant.is_held = is_contended || tenant.conduct.grade() > Grade::Free;
            if tenant.conduct.grade() > Grade::Free {
                claims[place].claim.max = Some(tenant.punished());
            }
        }
        // The others share what a punished tenant may no longer send.
        let rates = max_min_over_nodes(&capacities, &claims);
        for (tenant, rate) in self.tenants.iter_mut().zip(rates) {
            tenant.given = rate.max(tenant.agreement.min);
        }
        let set_points = self.routers.iter().map(|router| self.set_point(router)).collect();
        GlobalRuling { set_points, judged }
    }

    /// Returns true if routers contend for a node.
    #[must_use]
    pub fn is_contended(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.is_contended)
    }

    /// Returns a tenant's punishment, and its rate before any punishment.
    #[must_use]
    pub fn conduct_of(&self, tenant: usize) -> Option<(Grade, PacketRate)> {
        self.tenants.get(tenant).map(|tenant| (tenant.conduct.grade(), tenant.allowed))
    }

    fn judge_contention(
        &mut self,
        now: Instant,
        traffic: &dyn Fn(usize) -> Option<ObservedTraffic>,
    ) {
        let mut sums = vec![0u64; self.nodes.len()];
        let mut held = vec![false; self.nodes.len()];
        let offered = self.highest(traffic, |of| of.offered);
        for (place, router) in self.routers.iter().enumerate() {
            let (Some(sum), Some(tenant)) =
                (sums.get_mut(router.node), self.tenants.get(router.tenant))
            else {
                continue;
            };
            let own = traffic(place).map_or(0, |of| of.offered.as_pps());
            *sum = sum.saturating_add(own);
            // Packets that the entry drops do not reach this node, so the sum misses them while a
            // tenant is held. A tenant that is held as a punishment does not prolong contention.
            let wants = offered[router.tenant].unwrap_or_default();
            let is_free = tenant.conduct.grade() == Grade::Free;
            if tenant.is_held && is_free && wants > tenant.given {
                held[router.node] = true;
            }
        }
        for ((node, sum), held) in self.nodes.iter_mut().zip(sums).zip(held) {
            let demand = Demand { sum: PacketRate::from_pps(sum), held: held && node.is_contended };
            // Demand never reaches an unknown capacity.
            let capacity = node.capacity.unwrap_or(PacketRate::from_pps(u64::MAX));
            node.is_contended = node.contention.step(now, demand, capacity);
        }
    }

    /// Returns the highest rate that any node counted of each tenant; `None` if no node counted it.
    fn highest(
        &self,
        traffic: &dyn Fn(usize) -> Option<ObservedTraffic>,
        rate: impl Fn(ObservedTraffic) -> PacketRate,
    ) -> Vec<Option<PacketRate>> {
        let mut highest: Vec<Option<PacketRate>> = vec![None; self.tenants.len()];
        for (place, router) in self.routers.iter().enumerate() {
            if let (Some(most), Some(of)) = (highest.get_mut(router.tenant), traffic(place)) {
                *most = Some(most.unwrap_or_default().max(rate(of)));
            }
        }
        highest
    }

    fn set_point(&self, router: &PolicedRouter) -> Option<PacketRate> {
        let tenant = self.tenants.get(router.tenant).filter(|tenant| tenant.is_held)?;
        let is_punished = tenant.conduct.grade() > Grade::Free;
        let rate = match (router.is_entry, is_punished) {
            (true, true) => tenant.punished(),
            (_, false) => tenant.given,
            (false, true) => tenant.allowed,
        };
        (router.is_entry || self.is_contended(router.node)).then(|| rate.max(SET_POINT_LEAST))
    }
}

impl PolicedNode {
    /// Returns the part of the capacity that is shared.
    fn shared(&self) -> Option<PacketRate> {
        let most = u128::from(self.capacity?.as_pps()) * u128::from(SHARED_PPM) / 1_000_000;
        Some(PacketRate::from_pps(u64::try_from(most).unwrap_or(u64::MAX)))
    }
}

impl PolicedTenant {
    fn claim(&self, offered: Option<PacketRate>, passed: PacketRate) -> PassingClaim {
        let TenantAgreement { min, max, weight } = self.agreement;
        let claim = RateClaim { min, max, weight, wants: wants(self.given, passed, offered) };
        PassingClaim { claim, nodes: self.nodes.clone() }
    }

    /// Returns the tenant's rate under its punishment.
    fn punished(&self) -> PacketRate {
        match self.conduct.grade() {
            grade if grade.stops() => PacketRate::ZERO,
            grade => grade.set_point(self.allowed, self.agreement.min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 100_000;

    /// Two tenants on two nodes; both enter at the first and pass the second, which carries less.
    struct Chain {
        police: GlobalPolice,
        set_points: Vec<Option<PacketRate>>,
        judged: Vec<(u64, usize, Grade)>,
        second: u64,
    }

    impl Chain {
        fn new() -> Self {
            let agreement = TenantAgreement { min: pps(10_000), max: None, weight: 1 };
            let router = |tenant, node| PolicedRouter { tenant, node, is_entry: node == 0 };
            let routers = [router(0, 0), router(0, 1), router(1, 0), router(1, 1)];
            let capacities = [pps(10 * CAPACITY), pps(CAPACITY)].map(Some);
            let police = GlobalPolice::new(&capacities, &[agreement; 2], &routers);
            Self { police, set_points: vec![None; 4], judged: Vec::new(), second: 0 }
        }

        /// Lets a second pass in which the tenants send these rates: what the entry lets through
        /// comes to the second node.
        fn pass(&mut self, sent: [u64; 2]) -> [Option<u64>; 4] {
            let mut seen = Vec::new();
            for (tenant, sent) in sent.into_iter().enumerate() {
                let bound = |at: usize| {
                    self.set_points[2 * tenant + at].map_or(u64::MAX, PacketRate::as_pps)
                };
                let entered = sent.min(bound(0));
                let left = entered.min(bound(1));
                let of = |offered, passed| {
                    Some(ObservedTraffic { offered: pps(offered), passed: pps(passed) })
                };
                seen.extend([of(sent, entered), of(entered, left)]);
            }
            self.second += 1;
            let now = Instant::from_nanos(self.second * 1_000_000_000);
            let ruling = self.police.step(now, &seen);
            self.set_points = ruling.set_points;
            for (tenant, judgement) in ruling.judged {
                self.judged.push((self.second, tenant, judgement.to));
            }
            [0, 1, 2, 3].map(|place| self.set_points[place].map(PacketRate::as_pps))
        }
    }

    fn pps(pps: u64) -> PacketRate {
        PacketRate::from_pps(pps)
    }

    /// Goal: without contention nobody is held. With it both are, where they enter and where the
    /// contention is, from the next look on; shares move with demand; when it is over they are left
    /// alone within two looks.
    #[test]
    fn set_points_are_set_moved_and_withdrawn() {
        let mut chain = Chain::new();
        for _ in 0..5 {
            assert_eq!(chain.pass([30_000, 30_000]), [None; 4]);
        }
        // Together more than the second node carries, though the first has room for ten times that.
        assert_eq!(chain.pass([60_000, 80_000]), [Some(47_500); 4]);
        // A tenant that needs less lends the rest.
        let moved = chain.pass([20_000, 80_000]);
        assert_eq!(moved, [Some(25_000), Some(25_000), Some(70_000), Some(70_000)]);
        let mut looks = 0;
        while chain.pass([20_000, 30_000]) != [None; 4] {
            looks += 1;
            assert!(looks <= 2, "withdrawn within two looks");
        }
        assert!(chain.judged.is_empty(), "nobody misbehaved: {:?}", chain.judged);
    }

    /// Goal: a tenant that floods is punished where its packets enter, grade by grade, though the
    /// contention is at the second node; the other keeps its share; after reform the punishment is
    /// taken back.
    #[test]
    fn who_floods_is_punished_at_the_entry_and_pardoned_after_reform() {
        let mut chain = Chain::new();
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(chain.pass([80_000, 300_000]));
        }
        let grades =
            |chain: &Chain| chain.judged.iter().map(|(_, of, to)| (*of, *to)).collect::<Vec<_>>();
        let up = [Grade::EarlyDrop, Grade::LowerSetPoint, Grade::Stopped].map(|to| (1, to));
        assert_eq!(grades(&chain), up);
        for of in &seen {
            assert!(of[0].is_none_or(|rate| rate >= 40_000), "the other is not touched: {seen:?}");
        }
        // Half at the second grade, nothing at the third, at the entry alone.
        assert!(seen.iter().any(|of| of[2].zip(of[3]).is_some_and(|(at, then)| at * 2 == then)));
        assert_eq!(seen.last().unwrap()[2], Some(1));
        for _ in 0..60 {
            seen.push(chain.pass([40_000, 20_000]));
        }
        let down = [Grade::LowerSetPoint, Grade::EarlyDrop, Grade::Free].map(|to| (1, to));
        assert_eq!(grades(&chain), [up, down].concat());
        assert_eq!(seen.last().unwrap(), &[None; 4]);
    }

    /// Goal: nobody is held for a node whose capacity is unknown, nor once the capacity is enough.
    #[test]
    fn a_node_limits_by_what_it_is_known_to_carry() {
        let mut chain = Chain::new();
        chain.police.set_capacity(1, None);
        assert_eq!(chain.pass([60_000, 80_000]), [None; 4]);
        chain.police.set_capacity(1, Some(pps(CAPACITY)));
        assert_eq!(chain.pass([60_000, 80_000]), [Some(47_500); 4]);
        chain.police.set_capacity(1, Some(pps(2 * CAPACITY)));
        chain.police.set_capacity(9, None);
        let looks = (0..).find(|_| chain.pass([60_000, 80_000]) == [None; 4]);
        assert!(looks <= Some(2));
    }

    /// Goal: a mechanism that takes over from one that held routers goes on holding them, where a
    /// fresh one would let them go, and ends contention as soon as any other would.
    #[test]
    fn a_successor_goes_on() {
        let mut chain = Chain::new();
        chain.pass([60_000, 80_000]);
        let before = chain.pass([25_000, 65_000]);
        assert!(before.iter().all(Option::is_some));
        let next = |resumed: bool| {
            let mut next = Chain::new();
            next.set_points.clone_from(&chain.set_points);
            if resumed {
                let [first, second] = [1, 3].map(|place| chain.set_points[place].unwrap());
                let held = [(0, first), (1, second), (9, second)];
                next.police.resume(Instant::ZERO, 1, &held);
                next.police.resume(Instant::ZERO, 9, &[]);
            }
            next
        };
        assert_eq!(next(false).pass([25_000, 65_000]), [None; 4]);
        let mut resumed = next(true);
        assert_eq!(resumed.pass([25_000, 65_000]), before);
        let looks = (1..).find(|_| resumed.pass([25_000, 20_000]) == [None; 4]);
        assert_eq!(looks, Some(2));
    }

    /// Goal: a look that lacks a node's answer neither panics nor pardons.
    #[test]
    fn what_nobody_saw_changes_little() {
        let mut chain = Chain::new();
        chain.pass([60_000, 80_000]);
        let ruling = chain.police.step(Instant::from_nanos(2_000_000_000), &[]);
        assert_eq!(ruling.set_points.len(), 4);
        assert!(chain.police.conduct_of(0).is_some() && chain.police.conduct_of(9).is_none());
        let odd = PolicedRouter { tenant: 7, node: 9, is_entry: true };
        let mut police = GlobalPolice::new(&[], &[], &[odd]);
        let ruling = police.step(Instant::ZERO, &[None]);
        assert_eq!(ruling, GlobalRuling { set_points: vec![None], judged: Vec::new() });
    }
}
