// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual routers on a Xen host: a packet's path through domain 0, a router, and domain 0 again.
//!
//! **Problem.** The XTC text holds a router's rate by its processor time. The effect on other
//! routers depends on domain 0, which all packets pass twice: it carries a flood up to a router
//! even if the router then drops it (section 7.3).
//!
//! **Model.** Each router is a domain of a [`SimMachine`] with a processor of its own, under the
//! credit scheduler. It has two interfaces, each with its rings: one towards the senders, one
//! towards the receivers. Domain 0 is one server with processor time of its own, as fast as all its
//! processors together. It carries packets up to interfaces and down from them by turns, as
//! Xen's back end does (Linux 2.6.18 to 2.6.32, `netback.c`): up in order of arrival, down from one
//! interface after the other.
//!
//! A bounded number of packets wait for domain 0 at each interface; further packets are lost there,
//! at no cost to domain 0. A packet that finds the router's ring full is lost after domain 0 has
//! carried it up: the *waste*. A router's limit drops packets in front of domain 0, as Weir's does.
//!
//! ```text
//!            limit   queue    domain 0    ring    router    ring    domain 0
//!  packet ────▷│────▶ ▯▯▯ ──── up ──────▶ ▯▯▯ ──── cap ───▶ ▯▯▯ ──── down ────▶ wire
//! ```
//!
//! **Not modelled**: several processors of domain 0 that are not equally busy, batches of the back
//! end, the cards' own rings.

use std::collections::VecDeque;

use weir_sched::TokenBucket;
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::machine::{CreditAccounting, CreditScheduler, CreditShare, DomainWork, SimMachine};
use crate::tcp::{Bottleneck, Crossing};
use crate::{CpusToDecide, SimError};

/// The parameters of a host of virtual routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterHostConfig {
    /// Processor time of domain 0 to carry a packet up to a router.
    pub up: Nanos,
    /// Processor time of domain 0 to carry a packet from a router to the wire.
    pub down: Nanos,
    /// A router's own processor time of a packet.
    pub cost: Nanos,
    /// Packets that wait for domain 0 in front of each interface of a router, at least 1.
    pub queue: usize,
    /// Packets in each ring of an interface, at least 1.
    pub ring: usize,
    /// The accounting of the credit scheduler.
    pub accounting: CreditAccounting,
}

/// Counts of a router's packets by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterHostCounts {
    /// Offered to it.
    pub offered: u64,
    /// Dropped by its limit.
    pub limited: u64,
    /// Lost in front of domain 0.
    pub lost: u64,
    /// Lost at one of the router's rings, after domain 0 had carried it up.
    pub wasted: u64,
    /// Sent.
    pub sent: u64,
}

/// Virtual routers and their domain 0, as a bottleneck of TCP connections and of probes.
pub struct RouterHost {
    config: RouterHostConfig,
    machine: SimMachine<CreditScheduler>,
    /// The router of each flow, by position.
    router_of: Vec<usize>,
    routers: Vec<HostedRouter>,
    /// The job that domain 0 works on, its packet, and its end.
    served: Option<(HostJob, Crossing, Instant)>,
    /// The interfaces that packets are to be carried up to, in order of their arrival.
    arrived: VecDeque<usize>,
    /// True if domain 0 last carried a packet up.
    was_up: bool,
    /// The interface whose turn to send is next. Each router has two.
    turn: usize,
    /// The packets that have left domain 0, each with its instant.
    left: VecDeque<(Crossing, Instant)>,
    /// The packets that were lost inside and are not reported yet.
    lost: Vec<Crossing>,
    /// The error after which the machine cannot go on.
    failed: Option<SimError>,
}

/// An interface of a router.
#[derive(Debug, Default)]
struct RouterInterface {
    /// Packets that wait for domain 0 to be carried up.
    up: VecDeque<Crossing>,
    /// Packets that came in by this interface and are in the router, in order.
    inside: VecDeque<Crossing>,
    /// Packets that the router sends by this interface.
    down: VecDeque<Crossing>,
}

#[derive(Debug, Default)]
struct HostedRouter {
    /// The interface towards the senders, and the one towards the receivers.
    interfaces: [RouterInterface; 2],
    /// The interface that the router serves next.
    serves: usize,
    limit: Option<TokenBucket>,
    /// Packets that the router's domain had forwarded when they were last collected.
    done: u64,
    counts: RouterHostCounts,
}

/// A job of domain 0, with the index of an interface: twice the router's position, plus 1 for the
/// interface towards the receivers.
#[derive(Clone, Copy, Debug)]
enum HostJob {
    Up(usize),
    Down(usize),
}

impl RouterHost {
    /// Makes a host of `routers` routers. `router_of` holds the router of each flow, by position.
    ///
    /// # Errors
    /// There are no routers, or more than [`CpusToDecide::CPUS_MAX`], or a flow names a router that
    /// does not exist.
    pub fn new(
        config: RouterHostConfig,
        routers: usize,
        router_of: Vec<usize>,
    ) -> Result<Self, SimError> {
        let most = CpusToDecide::CPUS_MAX;
        let possible = (1..=most).contains(&routers);
        if !possible || router_of.iter().any(|router| *router >= routers) {
            return Err(SimError::NoRouter { routers, most });
        }
        let share = |at: usize| CreditShare { affinity: 1 << at, ..CreditShare::default() };
        let shares: Vec<CreditShare> = (0..routers).map(share).collect();
        let scheduler = CreditScheduler::new(routers, config.accounting, &shares);
        // Both interfaces' rings; each is bounded by itself in `finish`.
        let ring = config.ring.max(1).saturating_mul(2);
        let work = DomainWork::Relay { cost: config.cost, ring };
        // Relays draw nothing.
        let machine = SimMachine::new(routers, scheduler, &vec![work; routers], 0)?;
        Ok(Self {
            config,
            machine,
            router_of,
            routers: (0..routers).map(|_| HostedRouter::default()).collect(),
            served: None,
            arrived: VecDeque::new(),
            was_up: false,
            turn: 0,
            left: VecDeque::new(),
            lost: Vec::new(),
            failed: None,
        })
    }

    /// Caps a router from the next accounting on.
    pub fn set_cap(&mut self, router: usize, cap: CpuShare) {
        self.machine.set_cap(router, (cap < CpuShare::ONE).then_some(cap));
    }

    /// Drops packets beyond `limit` in front of domain 0, from `now` on; `None`: no limit. Bursts
    /// of 10 ms of the limit pass, and of 16 packets in any case.
    pub fn set_limit(&mut self, now: Instant, router: usize, limit: Option<PacketRate>) {
        let Some(of) = self.routers.get_mut(router) else { return };
        let burst = |rate: u64| (rate / 100).max(LIMIT_BURST);
        let rate = limit.map(PacketRate::as_pps);
        match (&mut of.limit, rate) {
            (Some(bucket), Some(rate)) => bucket.set_rate(now, rate, burst(rate)),
            (old, rate) => *old = rate.map(|rate| TokenBucket::new(rate, burst(rate), now)),
        }
    }

    /// Returns the packets of a router by their fate, and its processor time.
    ///
    /// # Errors
    /// The machine could not go on.
    pub fn counts(&self, router: usize) -> Result<(RouterHostCounts, Nanos), SimError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let counts = self.routers.get(router).map(|of| of.counts).unwrap_or_default();
        Ok((counts, self.machine.counts(router).map_or(Nanos::ZERO, |counts| counts.cpu)))
    }

    /// Returns the packets that are in the host: not yet limited, lost, wasted or sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let of = |one: &RouterInterface| one.up.len() + one.inside.len() + one.down.len();
        let all = self.routers.iter().flat_map(|router| &router.interfaces);
        all.map(of).sum::<usize>() + usize::from(self.served.is_some())
    }

    /// Lets the host work until `now`.
    fn advance(&mut self, now: Instant) {
        if self.failed.is_none() {
            self.failed = self.try_advance(now).err();
        }
    }

    fn try_advance(&mut self, now: Instant) -> Result<(), SimError> {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.machine.run_until(at)?;
            self.collect();
            if let Some((job, packet, _)) = self.served.take_if(|(.., ends)| *ends <= at) {
                self.finish(at, job, packet)?;
            }
            self.serve(at);
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let ends = self.served.as_ref().map(|(.., ends)| *ends);
        ends.into_iter().chain(self.machine.next()).min()
    }

    /// Has the routers send the packets that they have forwarded; they serve their interfaces by
    /// turns.
    fn collect(&mut self) {
        for (at, router) in self.routers.iter_mut().enumerate() {
            let done = self.machine.counts(at).map_or(router.done, |counts| counts.done);
            for _ in router.done..done {
                let [first, second] = [router.serves, 1 - router.serves];
                let came = if router.interfaces[first].inside.is_empty() { second } else { first };
                router.serves = 1 - came;
                let Some(packet) = router.interfaces[came].inside.pop_front() else { break };
                let leaves = &mut router.interfaces[1 - came].down;
                if leaves.len() < self.config.ring.max(1) {
                    leaves.push_back(packet);
                } else {
                    router.counts.wasted += 1;
                    self.lost.push(packet);
                }
            }
            router.done = done;
        }
    }

    /// Ends a job of domain 0.
    fn finish(&mut self, now: Instant, job: HostJob, packet: Crossing) -> Result<(), SimError> {
        match job {
            HostJob::Down(interface) => {
                self.routers[interface / 2].counts.sent += 1;
                self.left.push_back((packet, now));
            }
            HostJob::Up(interface) => {
                let router = &mut self.routers[interface / 2];
                let inside = &mut router.interfaces[interface % 2].inside;
                let fits = inside.len() < self.config.ring.max(1);
                if fits && self.machine.deliver(interface / 2)? {
                    inside.push_back(packet);
                } else {
                    router.counts.wasted += 1;
                    self.lost.push(packet);
                }
            }
        }
        Ok(())
    }

    /// Has domain 0 take the next packet, if it is free and there is one.
    fn serve(&mut self, now: Instant) {
        if self.served.is_some() {
            return;
        }
        let taken = match self.was_up {
            true => self.take_down().or_else(|| self.take_up()),
            false => self.take_up().or_else(|| self.take_down()),
        };
        let Some((job, packet)) = taken else { return };
        self.was_up = matches!(job, HostJob::Up(_));
        let time = if self.was_up { self.config.up } else { self.config.down };
        self.served = Some((job, packet, now + time.max(Nanos::new(1))));
    }

    /// Takes the packet that has waited longest to be carried up.
    fn take_up(&mut self) -> Option<(HostJob, Crossing)> {
        let interface = self.arrived.pop_front()?;
        let packet = self.interface(interface)?.up.pop_front()?;
        Some((HostJob::Up(interface), packet))
    }

    /// Takes a packet of the next interface that sends.
    fn take_down(&mut self) -> Option<(HostJob, Crossing)> {
        let interfaces = 2 * self.routers.len();
        for step in 0..interfaces {
            let at = (self.turn + step) % interfaces;
            if let Some(packet) = self.interface(at).and_then(|of| of.down.pop_front()) {
                self.turn = (at + 1) % interfaces;
                return Some((HostJob::Down(at), packet));
            }
        }
        None
    }

    fn interface(&mut self, at: usize) -> Option<&mut RouterInterface> {
        self.routers.get_mut(at / 2)?.interfaces.get_mut(at % 2)
    }
}

impl Bottleneck for RouterHost {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        self.advance(now);
        let at = self.router_of.get(packet.flow).copied().unwrap_or(0);
        let router = &mut self.routers[at];
        router.counts.offered += 1;
        if router.limit.as_mut().is_some_and(|limit| limit.try_take(now, 1).is_err()) {
            router.counts.limited += 1;
            return lost.push(packet);
        }
        let side = usize::from(packet.backwards);
        if router.interfaces[side].up.len() >= self.config.queue.max(1) {
            router.counts.lost += 1;
            return lost.push(packet);
        }
        router.interfaces[side].up.push_back(packet);
        self.arrived.push_back(2 * at + side);
        self.serve(now);
    }

    fn release(&mut self, now: Instant, lost: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        self.advance(now);
        lost.append(&mut self.lost);
        self.left.pop_front()
    }

    fn next(&self) -> Option<Instant> {
        match self.left.front() {
            Some((_, at)) => Some(*at),
            None if self.failed.is_some() => None,
            None => self.next_event(),
        }
    }
}

/// The least burst of a limit, in packets.
const LIMIT_BURST: u64 = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    /// A host whose scheduler counts exactly.
    pub(crate) const CONFIG: RouterHostConfig = RouterHostConfig {
        up: Nanos::from_micros(2),
        down: Nanos::from_micros(6),
        cost: Nanos::from_micros(3),
        queue: 64,
        ring: 64,
        accounting: CreditAccounting::Exact,
    };

    /// Offers a packet of each flow every `gaps` microseconds for a second; returns the host and
    /// the number of packets that left it, by flow.
    fn run(mut host: RouterHost, gaps: &[u64]) -> (RouterHost, Vec<u64>) {
        let (mut left, mut lost) = (vec![0; gaps.len()], Vec::new());
        for micros in 0..1_000_000_u64 {
            let now = Instant::ZERO + Nanos::from_micros(micros);
            for (flow, gap) in gaps.iter().enumerate() {
                if micros.is_multiple_of(*gap) {
                    let packet =
                        Crossing { id: 0, flow, backwards: false, bytes: 524, offered: now };
                    host.offer(now, packet, &mut lost);
                }
            }
            while let Some((packet, _)) = host.release(now, &mut lost) {
                left[packet.flow] += 1;
            }
        }
        (host, left)
    }

    fn host(routers: usize) -> RouterHost {
        RouterHost::new(CONFIG, routers, (0..routers).collect()).unwrap()
    }

    /// Goal: domain 0 carries 1 / 8 µs = 125 kp/s both up and down, in equal parts for both
    /// routers, and every packet has a fate.
    #[test]
    fn domain_0_is_shared_in_turn() {
        let (host, left) = run(host(2), &[10, 10]);
        assert!(left.iter().all(|packets| packets.abs_diff(62_500) < 700), "{left:?}");
        let mut counted = 0;
        for router in 0..2 {
            let (counts, _) = host.counts(router).unwrap();
            counted += counts.limited + counts.lost + counts.wasted + counts.sent;
            assert_eq!(counts.offered, 100_000);
        }
        assert_eq!(counted + host.waiting() as u64, 200_000);
    }

    /// Goal: a flood towards a capped router takes 2 µs a packet from its neighbour, for nothing;
    /// a limit in front of domain 0 gives this time back. Method: one router is capped at 6 % of a
    /// processor, which is 20 kp/s, and offered 100 kp/s; the other is offered 110 kp/s.
    #[test]
    fn a_limit_spares_domain_0_what_a_cap_wastes() {
        let capped = |limit: Option<u64>| {
            let mut host = host(2);
            host.set_cap(0, CpuShare::from_percent(6));
            host.set_limit(Instant::ZERO, 0, limit.map(PacketRate::from_pps));
            let (host, left) = run(host, &[10, 9]);
            (left[1], host.counts(0).unwrap().0)
        };
        let ((wasting, flooded), (spared, limited)) = (capped(None), capped(Some(20_000)));
        assert!(flooded.sent.abs_diff(20_000) < 1500 && limited.sent.abs_diff(20_000) < 1500);
        assert!(flooded.wasted > 50_000 && limited.wasted < 2000, "{flooded:?} {limited:?}");
        assert!(spared.abs_diff(105_000) < 1500, "{spared}");
        assert!(wasting + 12_000 < spared, "{wasting}");
    }
}
