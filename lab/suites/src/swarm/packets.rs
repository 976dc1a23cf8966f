// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane of a seed: the shipped switch between random senders, while its policy changes.
//!
//! A run is a list of segments. Each begins with one change, then the senders go on. Every frame is
//! seen by an observer that knows nothing of the switch: what was offered, what left, where and
//! when.

use std::collections::BTreeMap;
use std::fmt;

use weir_policy::{Kind, Policy, Port, PortId, Router, RouterId, Slice, Vif, VifId};
use weir_sim::{
    ArrivalProcess, DataPlane, Departure, Observation, OfferedRate, Seed, SimError, SimNode,
    SimSource, SizePattern,
};
use weir_switch::{Direction, IfaceId, Reason};
use weir_units::{BitRate, Instant, Nanos, PacketRate};

use super::loops::SwarmRunError;
use super::mutants::{Invariant, SwarmMutant};
use super::outcome::Violation;

/// A part of a run: a change, and the time until the next.
#[derive(Clone, Debug)]
pub(crate) struct PacketSegment {
    change: PacketChange,
    lasts: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum PacketChange {
    /// A limit on what a vif sends, in Mb/s.
    Rate(usize, Option<u64>),
    /// A minimum of what a vif sends.
    Minimum(usize, u64),
    Priority(usize, u32),
    /// The rate of the port.
    Port(u64),
    /// A limit on the packets to the first vif, as the control loops set it.
    Limit(Option<u64>),
    /// The last vif leaves the policy, or comes back.
    Toggle,
    /// A vif's sender sends at another rate.
    Offer(usize, u64),
}

/// Draws the segments of a seed.
pub(crate) fn segments(seed: u64) -> Vec<PacketSegment> {
    let mut draws = Seed::new(seed ^ SEGMENTS);
    let count = draws.between(3, 10);
    (0..count).map(|_| segment(&mut draws)).collect()
}

fn segment(draws: &mut Seed) -> PacketSegment {
    let vif = usize::try_from(draws.between(0, VIFS as u64 - 1)).unwrap_or(0);
    let change = match draws.between(0, 8) {
        0 | 1 => PacketChange::Rate(vif, (!draws.one_in(4)).then_some(draws.between(1, 30))),
        2 | 3 => PacketChange::Minimum(vif, minimum(draws, vif)),
        4 => PacketChange::Priority(vif, u32::try_from(draws.between(1, 9)).unwrap_or(1)),
        5 => PacketChange::Port(draws.between(PORT_LEAST, 60)),
        6 => PacketChange::Limit((!draws.one_in(3)).then_some(draws.between(100, 3000))),
        7 => PacketChange::Toggle,
        _ => PacketChange::Offer(vif, draws.between(1, 50)),
    };
    PacketSegment { change, lasts: Nanos::from_millis(draws.between(20, 250)) }
}

/// Draws a minimum. All minimums fit, whatever rate the port has; the first may be more than a fair
/// share.
fn minimum(draws: &mut Seed, vif: usize) -> u64 {
    draws.between(0, if vif == 0 { PORT_LEAST - 6 } else { 2 })
}

/// Runs the segments, and returns what was broken.
pub(crate) fn run(
    seed: u64,
    segments: &[&PacketSegment],
    mutant: Option<SwarmMutant>,
) -> Result<(Vec<Violation>, u64), SwarmRunError> {
    let mut run = PacketRun::new(seed, mutant)?;
    let first = PacketSegment { change: PacketChange::Priority(0, 1), lasts: FIRST };
    for segment in std::iter::once(&first).chain(segments.iter().copied()) {
        run.change(segment.change)?;
        run.segment(segment.lasts)?;
    }
    Ok((run.violations, run.offered))
}

struct PacketRun {
    node: SimNode,
    /// The policy that is to hold; with a mutant, the switch has another.
    policy: Policy,
    sources: Vec<SimSource>,
    /// Bits a second that each source offers.
    offers: Vec<u64>,
    draws: Seed,
    mutant: Option<SwarmMutant>,
    /// The newest frame of each source that left.
    newest: BTreeMap<usize, (Instant, u64)>,
    gone: Option<Vif>,
    offered: u64,
    violations: Vec<Violation>,
}

impl PacketRun {
    fn new(seed: u64, mutant: Option<SwarmMutant>) -> Result<Self, SimError> {
        let mut draws = Seed::new(seed ^ PACKETS);
        let policy = policy(&mut draws);
        let mut node = SimNode::new(&told(&policy, mutant))?;
        let up = node.switch.port_iface(PortId(0));
        node.learn(up, WIRE)?;
        let vifs: Vec<VifId> = policy.vifs().map(|(id, _)| id).collect();
        for (at, vif) in vifs.into_iter().enumerate() {
            node.learn(node.switch.vif_iface(vif), mac(at))?;
        }
        let mut run = Self {
            node,
            policy,
            sources: Vec::new(),
            offers: Vec::new(),
            draws,
            mutant,
            newest: BTreeMap::new(),
            gone: None,
            offered: 0,
            violations: Vec::new(),
        };
        // Downward sources first, then upward ones by vif, so that the last vif's source is the
        // last.
        for at in 0..VIFS - 1 {
            let rate = run.draws.between(1, 20);
            run.add_source((up, WIRE), mac(at), rate);
        }
        for at in 0..VIFS {
            run.add_upward(at);
        }
        Ok(run)
    }

    fn add_upward(&mut self, at: usize) {
        let rate = self.draws.between(1, 40);
        let vif = VifId(u32::try_from(at).unwrap_or(0));
        self.add_source((self.node.switch.vif_iface(vif), mac(at)), WIRE, rate);
    }

    fn add_source(&mut self, (from, own): (IfaceId, [u8; 6]), to: [u8; 6], mbps: u64) {
        let rate = OfferedRate::Bits(BitRate::from_mbps(mbps));
        let pace = match self.draws.between(0, 2) {
            0 => ArrivalProcess::Poisson(rate),
            _ => ArrivalProcess::Constant(rate),
        };
        let sizes = match self.draws.between(0, 2) {
            0 => SizePattern::Fixed(1000),
            1 => SizePattern::Uniform { least: 64, most: 1514 },
            _ => SizePattern::Cycle(vec![64, 1514, 300]),
        };
        let seed = Seed::new(self.draws.draw());
        let mut source = SimSource::with(from, own, to, sizes, pace, seed);
        source.start = self.node.now;
        self.sources.push(source);
        self.offers.push(mbps * 1_000_000);
    }

    fn change(&mut self, change: PacketChange) -> Result<(), SimError> {
        let mut policy = self.policy.clone();
        let send = |policy: &mut Policy, at: usize, set: &dyn Fn(&mut weir_policy::Share)| {
            policy.vifs.get_mut(at).into_iter().for_each(|vif| set(&mut vif.send));
        };
        match change {
            PacketChange::Rate(at, rate) => {
                send(&mut policy, at, &|send| send.rate = rate.map(BitRate::from_mbps));
            }
            PacketChange::Minimum(at, rate) => {
                send(&mut policy, at, &|send| send.min_rate = BitRate::from_mbps(rate));
            }
            PacketChange::Priority(at, priority) => {
                send(&mut policy, at, &|send| send.priority = priority);
            }
            PacketChange::Port(rate) => {
                policy.ports.iter_mut().for_each(|port| port.rate = BitRate::from_mbps(rate));
            }
            PacketChange::Limit(limit) => {
                let (now, limit) = (self.node.now, limit.map(PacketRate::from_pps));
                self.node.switch.limit_router(now, RouterId(0), limit, &mut self.node.pool);
                return Ok(());
            }
            PacketChange::Toggle => match self.gone.take() {
                Some(vif) => drop(policy.add_vif(vif)),
                None => self.gone = policy.vifs.pop(),
            },
            PacketChange::Offer(at, mbps) => {
                self.offer(at, mbps);
                return Ok(());
            }
        }
        self.node.apply(&told(&policy, self.mutant))?;
        self.policy = policy;
        if let PacketChange::Toggle = change {
            let last = 2 * VIFS - 2;
            self.sources.truncate(last);
            self.offers.truncate(last);
            self.newest.remove(&last);
            if self.gone.is_none() {
                self.add_upward(VIFS - 1);
            }
        }
        Ok(())
    }

    /// Has a vif's sender begin anew at another rate.
    fn offer(&mut self, at: usize, mbps: u64) {
        let index = VIFS - 1 + at;
        let Some(source) = self.sources.get_mut(index) else { return };
        let rate = OfferedRate::Bits(BitRate::from_mbps(mbps));
        let seed = Seed::new(self.draws.draw());
        let (from, own, to) = (source.from, source.mac, source.to);
        let pace = ArrivalProcess::Constant(rate);
        let mut new = SimSource::with(from, own, to, source.sizes.clone(), pace, seed);
        new.start = self.node.now;
        *source = new;
        self.offers.get_mut(index).into_iter().for_each(|bits| *bits = mbps * 1_000_000);
    }

    fn segment(&mut self, lasts: Nanos) -> Result<(), SimError> {
        let before = self.account();
        let (begin, end) = (self.node.now, self.node.now + lasts);
        let (mut offered, mut left) = (0, Vec::new());
        self.node.run(&mut self.sources, end, &mut |observation| match observation {
            Observation::Offered { .. } => offered += 1,
            Observation::Left(departure) => left.push(departure),
        })?;
        self.offered += offered;
        match self.mutant {
            Some(SwarmMutant::LosesFrame) if left.len() > 100 => drop(left.remove(50)),
            Some(SwarmMutant::SwapsFrames) => swap(&mut left),
            _ => {}
        }
        self.judge_conservation(&before, offered, &left);
        self.judge_order(&left);
        self.judge_rates(&left);
        self.judge_shares(&left, begin, lasts);
        Ok(())
    }

    /// Returns the numbers of frames dropped before a queue, dropped after it, copied, and waiting.
    fn account(&self) -> [u64; 4] {
        let (mut dropped, mut after, mut copies) = (0, 0, 0);
        for iface in self.node.interfaces() {
            for direction in Direction::ALL {
                let counters = self.node.counters(iface, direction);
                dropped += counters.dropped_total().packets;
                // Frames that a router's limit drops while they wait are not the scheduler's.
                let limited = counters.dropped_after_for(Reason::RouterPackets).packets;
                dropped += limited;
                after += counters.dropped_after.packets - limited;
                copies += counters.copies.packets;
            }
        }
        [dropped, after, copies, self.node.pool.taken() as u64]
    }

    fn judge_conservation(&mut self, before: &[u64; 4], offered: u64, left: &[Departure]) {
        if let Err(text) = self.node.balanced() {
            self.broken(Invariant::Conservation, text);
        }
        let now = self.account();
        let [dropped, after, copies, taken] = [0, 1, 2, 3].map(|at| (before[at], now[at]));
        let enters = offered + (copies.1 - copies.0) + taken.0;
        let leaves = left.len() as u64 + (dropped.1 - dropped.0) + (after.1 - after.0) + taken.1;
        if enters != leaves {
            let text = format!(
                "{offered} frames offered, {} left, dropped {dropped:?}, {after:?} after a queue, \
                 copies {copies:?}, waiting {taken:?}",
                left.len()
            );
            self.broken(Invariant::Conservation, text);
        }
        if after.0 != after.1 {
            self.broken(
                Invariant::Conservation,
                format!("{after:?} were dropped after scheduling"),
            );
        }
    }

    fn judge_order(&mut self, left: &[Departure]) {
        for departure in left {
            // A sender that begins anew counts from zero again, but offers later.
            let number = (departure.offered, departure.number);
            let before = self.newest.insert(departure.source, number);
            if before.is_some_and(|before| number <= before) {
                let text = format!("{departure:?} left after number {before:?}");
                self.broken(Invariant::Order, text);
            }
        }
    }

    /// Judges each window of the segment: no more leaves than the rate allows, the burst and two
    /// frames.
    fn judge_rates(&mut self, left: &[Departure]) {
        let up = self.node.switch.port_iface(PortId(0));
        let limits = self.policy.vifs.iter().enumerate().filter_map(|(at, vif)| {
            Some((Some(VIFS - 1 + at), vif.send.rate?, vif.send.burst.get()))
        });
        let port = self.policy.ports.iter().map(|port| (None, port.rate, 0));
        let mut late = Vec::new();
        for (source, rate, burst) in limits.chain(port) {
            let of = |one: &&Departure| {
                one.iface == up && source.is_none_or(|source| one.source == source)
            };
            let excess = excess(left.iter().filter(of), rate);
            let most = u128::from(burst + 2 * FRAME_MAX);
            if excess > most {
                late.push(format!("{source:?} at {rate}: {excess} bytes ahead of {most}"));
            }
        }
        late.into_iter().for_each(|text| self.broken(Invariant::Rate, text));
    }

    /// Judges minimums over the second half of a segment.
    fn judge_shares(&mut self, left: &[Departure], begin: Instant, lasts: Nanos) {
        let half = Nanos::new(lasts.as_nanos() / 2);
        let up = self.node.switch.port_iface(PortId(0));
        let mut short = Vec::new();
        for (at, vif) in self.policy.vifs.iter().enumerate() {
            let index = VIFS - 1 + at;
            let min = vif.send.rate.map_or(vif.send.min_rate, |rate| rate.min(vif.send.min_rate));
            let asks = self.offers.get(index).copied().unwrap_or(0);
            // A Poisson process may ask for less for a while.
            if lasts < Nanos::from_millis(100) || asks < min.as_bps() * 3 / 2 {
                continue;
            }
            let mine = left
                .iter()
                .filter(|one| one.source == index && one.iface == up && one.at >= begin + half);
            let bytes: u64 = mine.map(|one| one.bytes).sum();
            let due = min.as_bps() / 8 * half.as_nanos() / 1_000_000_000;
            if (bytes + 3 * FRAME_MAX) * 100 < due * 95 {
                short.push(format!("{} sent {bytes} of {due} bytes", vif.name));
            }
        }
        short.into_iter().for_each(|text| self.broken(Invariant::Share, text));
    }

    fn broken(&mut self, invariant: Invariant, text: String) {
        let at = self.node.now;
        if !self.violations.iter().any(|one| one.invariant == invariant) {
            self.violations.push(Violation { invariant, at, text });
        }
    }
}

/// Returns by how many bytes any window of these frames exceeds the rate, its last frame left out.
fn excess<'d>(frames: impl Iterator<Item = &'d Departure>, rate: BitRate) -> u128 {
    let (mut excess, mut worst, mut last) = (0u128, 0u128, None::<Instant>);
    for frame in frames {
        let passed = last.map_or(0, |last| frame.at.saturating_since(last).as_nanos());
        // In 10⁻⁹ bytes.
        excess = excess.saturating_sub(u128::from(passed) * u128::from(rate.as_bps()) / 8);
        worst = worst.max(excess);
        excess += u128::from(frame.bytes) * 1_000_000_000;
        last = Some(frame.at);
    }
    worst / 1_000_000_000
}

/// Exchanges the first two frames of one source.
fn swap(left: &mut [Departure]) {
    let Some(source) = left.first().map(|one| one.source) else { return };
    let mut of = left.iter_mut().filter(|one| one.source == source);
    if let (Some(one), Some(other)) = (of.next(), of.next()) {
        std::mem::swap(&mut one.number, &mut other.number);
        std::mem::swap(&mut one.offered, &mut other.offered);
    }
}

fn policy(draws: &mut Seed) -> Policy {
    let mut policy = Policy::new("n");
    let mut port = Port::new("up", BitRate::from_mbps(draws.between(PORT_LEAST, 60)));
    (port.kind, port.catch_up) = (Kind::Memory, Nanos::ZERO);
    let port = policy.add_port(port);
    for at in 0..VIFS {
        let name = format!("v{at}");
        let slice = policy.add_slice(Slice::new(&name));
        let mut vif = Vif::new(&name, slice, port);
        vif.kind = Kind::Memory;
        vif.send.min_rate = BitRate::from_mbps(minimum(draws, at));
        if at == 0 {
            vif.router = Some(policy.add_router(Router::new("r", slice)));
        }
        policy.add_vif(vif);
    }
    policy
}

/// Returns the policy that the switch is given. Some mutants falsify it.
fn told(policy: &Policy, mutant: Option<SwarmMutant>) -> Policy {
    let mut told = policy.clone();
    match mutant {
        Some(SwarmMutant::SendsFaster) => {
            let more = |rate: BitRate| BitRate::from_bps(rate.as_bps() * 11 / 10);
            told.ports.iter_mut().for_each(|port| port.rate = more(port.rate));
            told.vifs.iter_mut().for_each(|vif| vif.send.rate = vif.send.rate.map(more));
        }
        Some(SwarmMutant::IgnoresMinimums) => {
            told.vifs.iter_mut().for_each(|vif| vif.send.min_rate = BitRate::from_bps(0));
        }
        _ => {}
    }
    told
}

fn mac(at: usize) -> [u8; 6] {
    [0x02, 0, 0, 0, 1, u8::try_from(at).unwrap_or(0)]
}

impl fmt::Display for PacketSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packets: {:?}, then {}", self.change, self.lasts)
    }
}

const WIRE: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
const VIFS: usize = 3;
const FRAME_MAX: u64 = 1514;
const FIRST: Nanos = Nanos::from_millis(30);

/// The least rate of the port, in Mb/s.
const PORT_LEAST: u64 = 16;

const SEGMENTS: u64 = 0x5e67;
const PACKETS: u64 = 0x9ac4;
