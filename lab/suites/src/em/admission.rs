// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admission (row 6): 10 000 random requests, arcs counted from outside, changes tried.
//!
//! Connections come, go and move; some are for later. After each step the arcs that it touched are
//! added up anew from the connections, at each moment at which one begins. The changes that a
//! refusal names are tried on the same network, in full and reduced by 1 %.

use std::collections::BTreeMap;

use weir_experiment::prelude::*;
use weir_network::{
    AdmissionAnswer, AdmittedFlows, ArcId, ArcShare, ArcShortage, ByDirection, ConnectionId,
    ConnectionRequest, ConnectionState, FlowDirection, NetworkId, NetworkLimits, NetworkState,
    NodeId, PathLimits, RateBasis, RefusalReason, RequestedRate, SmallestChange, TimeWindow,
    TunnelAccounting,
};
use weir_sim::Seed;
use weir_units::Instant;

use super::drawn;

const NODES: u32 = 24;
const END_NODES: u32 = 40;

/// Shows row 6.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<()> {
    let requests = if rec.quick { 1_000 } else { 10_000 };
    let mut draw = Seed::new(6);
    let mut trial = AdmissionTrial::new(&mut draw)?;
    for number in 0..requests {
        trial.step(&mut draw, number)?;
    }
    let counts = &trial.counts;
    rec.say(&format!("{counts:?}"));
    let least = requests / 5;
    rec.at_least("admitted", "requests admitted", counts.admitted, least)?;
    rec.at_least(
        "refused",
        "requests refused for what is free or for a limit",
        counts.refused,
        least,
    )?;
    rec.at_least("moved", "connections moved meanwhile", counts.moved, requests / 50)?;
    rec.none("over", "arcs promised more than there is, at any moment", counts.over)?;
    rec.none("stale", "admitted requests that could not be charged", counts.stale)?;
    rec.none("insufficient", "changes that are named and do not admit", counts.insufficient)?;
    rec.none("excessive", "changes less 1 % that admit nevertheless", counts.excessive)?;
    rec.at_least("changes", "changes tried", counts.changes, least)?;
    let text = "refusals for which no single change is enough";
    // Both rate and limit are out of reach then, or there is no path at all.
    rec.count("unchanged", text, counts.unchanged, Bound::at_most(float(counts.refused) / 5.0))?;
    let text = "arcs still charged after all connections have ended";
    let left = trial.release_all()?;
    rec.none("left", text, left)
}

#[derive(Debug, Default)]
struct AdmissionCounts {
    admitted: u64,
    refused: u64,
    invalid: u64,
    moved: u64,
    over: u64,
    stale: u64,
    changes: u64,
    insufficient: u64,
    excessive: u64,
    unchanged: u64,
}

type HeldFlows = (TimeWindow, AdmittedFlows, NetworkId);

struct AdmissionTrial {
    state: NetworkState,
    /// The flows of each connection: the present ones and, during a change, the next ones.
    held: BTreeMap<ConnectionId, [Option<HeldFlows>; 2]>,
    counts: AdmissionCounts,
}

impl AdmissionTrial {
    fn new(draw: &mut Seed) -> Result<Self> {
        let topology = drawn::scattered(draw, NODES, NODES * 5 / 2, 20);
        let arcs: Vec<BitRate> = topology.arcs.iter().map(|arc| arc.sellable()).collect();
        let accounting = TunnelAccounting::default();
        let mut state = NetworkState::new(topology, accounting, NetworkLimits::default())?;
        for number in 1..=2u16 {
            let shares = (0..).zip(&arcs).map(|(arc, sellable)| ArcShare {
                arc: ArcId(arc),
                rate: BitRate::from_bps(sellable.as_bps() / 2),
                untunnelled: BitRate::from_bps(sellable.as_bps() / 20),
            });
            state.add_network(drawn::virtual_network(number, shares.collect()))?;
        }
        for number in 0..END_NODES {
            let gateway = NodeId(drawn::between(draw, 0, NODES - 1));
            let network = NetworkId(1 + number % 2);
            state.add_end_node(drawn::end_node(number, network, gateway))?;
        }
        Ok(Self { state, held: BTreeMap::new(), counts: AdmissionCounts::default() })
    }

    fn step(&mut self, draw: &mut Seed, number: u64) -> Result<()> {
        let request = drawn_request(draw, number);
        let id = ConnectionId(number);
        match self.state.admit(&request) {
            AdmissionAnswer::Admitted(flows) => {
                self.counts.admitted += 1;
                let window = request.window;
                let state = ConnectionState::Active;
                let network = request.network;
                if self.state.reserve(id, request, flows.clone(), state).is_err() {
                    self.counts.stale += 1;
                }
                let arcs = arcs_of(&flows);
                self.held.insert(id, [Some((window, flows, network)), None]);
                self.audit(network, &arcs);
            }
            AdmissionAnswer::Refused(refusal) => match refusal.reason {
                RefusalReason::Bandwidth { .. }
                | RefusalReason::Delay { .. }
                | RefusalReason::Hops { .. } => {
                    self.counts.refused += 1;
                    self.counts.unchanged += u64::from(refusal.changes.is_empty());
                    refusal.changes.iter().for_each(|change| self.try_change(&request, change));
                }
                _ => self.counts.invalid += 1,
            },
        }
        if draw.one_in(4) {
            self.move_one(draw)?;
        }
        if draw.one_in(3) {
            self.end_one(draw)?;
        }
        Ok(())
    }

    /// Ends a change that is under way, or begins one.
    fn move_one(&mut self, draw: &mut Seed) -> Result<()> {
        let Some(id) = self.any(draw) else { return Ok(()) };
        let Some(connection) = self.state.connection(id).cloned() else { return Ok(()) };
        let network = connection.request.network;
        if let Some([now, next]) = self.held.get_mut(&id)
            && let Some(new) = next.take()
        {
            if draw.one_in(3) {
                self.state.abort_change(id)?;
            } else {
                self.state.finish_change(id)?;
                *now = Some(new);
                self.counts.moved += 1;
            }
            return Ok(());
        }
        let mut request = connection.request;
        for direction in FlowDirection::BOTH {
            let flow = connection.flows.of(direction).as_ref();
            let used = flow.and_then(|flow| flow.path.arcs.first());
            let link = used.and_then(|arc| self.state.topology().arc(*arc)).map(|arc| arc.link);
            request.limits.of_mut(direction).avoid_links.extend(link);
            let rate = request.rate_of(direction).as_bps() * draw.between(50, 150) / 100;
            *request.rate.of_mut(direction) = RequestedRate(BitRate::from_bps(rate));
        }
        if let AdmissionAnswer::Admitted(flows) = self.state.admit_change(id, &request) {
            let window = request.window;
            if self.state.begin_change(id, request, flows.clone()).is_err() {
                self.counts.stale += 1;
                return Ok(());
            }
            let arcs = arcs_of(&flows);
            if let Some([_, next]) = self.held.get_mut(&id) {
                *next = Some((window, flows, network));
            }
            self.audit(network, &arcs);
        }
        Ok(())
    }

    fn end_one(&mut self, draw: &mut Seed) -> Result<()> {
        if let Some(id) = self.any(draw) {
            self.state.release(id)?;
            self.held.remove(&id);
        }
        Ok(())
    }

    fn any(&self, draw: &mut Seed) -> Option<ConnectionId> {
        let last = (self.held.len() as u64).checked_sub(1)?;
        let place = usize::try_from(draw.between(0, last)).ok()?;
        self.held.keys().nth(place).copied()
    }

    /// Adds up the rates on arcs anew, from the admitted flows alone.
    fn audit(&mut self, network: NetworkId, arcs: &[ArcId]) {
        let Some(known) = self.state.network(network) else { return };
        for arc in arcs {
            let share = known.shares.iter().find(|share| share.arc == *arc);
            let most = share.map_or(0, |share| share.rate.as_bps() - share.untunnelled.as_bps());
            let all: Vec<_> =
                self.held.values().flat_map(|sides| charges(sides, network, *arc)).collect();
            let sum_at = |moment: Instant| -> u64 {
                let on = all.iter().filter(|(w, _)| w.start <= moment && moment < w.end);
                on.map(|(_, rate)| rate).sum()
            };
            let highest = all.iter().map(|(window, _)| sum_at(window.start)).max().unwrap_or(0);
            self.counts.over += u64::from(highest > most);
        }
    }

    fn try_change(&mut self, request: &ConnectionRequest, change: &SmallestChange) {
        self.counts.changes += 1;
        let whole = self.admits(request, change, 0);
        let less = self.admits(request, change, 1);
        self.counts.insufficient += u64::from(!whole);
        self.counts.excessive += u64::from(less);
    }

    /// Returns whether a change admits when it is reduced by `less` per cent, rounded up to a unit.
    fn admits(&mut self, request: &ConnectionRequest, change: &SmallestChange, less: u64) -> bool {
        let mut changed = request.clone();
        let part = |amount: u64| (amount * less).div_ceil(100);
        match change {
            SmallestChange::LowerRate(rates) => {
                for direction in FlowDirection::BOTH {
                    let (asked, lowered) =
                        (request.rate_of(direction).as_bps(), rates.of(direction).0.as_bps());
                    let rate = BitRate::from_bps(lowered + part(asked - lowered));
                    *changed.rate.of_mut(direction) = RequestedRate(rate);
                }
            }
            SmallestChange::RaiseDelay { direction, limit } => {
                let old = request.limits.of(*direction).delay.map_or(0, Nanos::as_nanos);
                let raised = Nanos::new(limit - part(limit - old));
                changed.limits.of_mut(*direction).delay = Some(raised);
            }
            SmallestChange::RaiseHops { direction, limit } => {
                let less = u16::try_from(less).unwrap_or(1);
                changed.limits.of_mut(*direction).hops = Some(limit - less);
            }
            SmallestChange::AddShare { arcs, .. } => {
                let arcs: Vec<_> = arcs
                    .iter()
                    .map(|lack| ArcShortage {
                        arc: lack.arc,
                        rate: BitRate::from_bps(lack.rate.as_bps() - part(lack.rate.as_bps())),
                    })
                    .collect();
                return self.state.would_admit(request, &arcs);
            }
        }
        matches!(self.state.admit(&changed), AdmissionAnswer::Admitted(_))
    }

    fn release_all(&mut self) -> Result<u64> {
        for id in std::mem::take(&mut self.held).into_keys() {
            self.state.release(id)?;
        }
        let arcs = self.state.topology().arcs.len() as u64;
        let networks = [NetworkId(1), NetworkId(2)];
        let all = networks.iter().flat_map(|network| (0..arcs).map(move |arc| (*network, arc)));
        let charged = all.filter(|(network, arc)| {
            let arc = ArcId(u32::try_from(*arc).unwrap_or(u32::MAX));
            self.state.use_of(*network, arc).is_none_or(|(promised, _)| promised > 0)
        });
        Ok(charged.count() as u64)
    }
}

/// The charges of one connection on an arc: for each direction the larger of now and next.
fn charges(
    sides: &[Option<HeldFlows>; 2],
    network: NetworkId,
    arc: ArcId,
) -> Vec<(TimeWindow, u64)> {
    let known = sides.iter().flatten().filter(|(_, _, of)| *of == network);
    let mut charges = Vec::new();
    for direction in FlowDirection::BOTH {
        let passing = known.clone().filter_map(|(window, flows, _)| {
            let flow = flows.of(direction).as_ref()?;
            flow.path.arcs.contains(&arc).then_some((*window, flow.reserved.as_bps()))
        });
        charges.extend(passing.max_by_key(|(_, rate)| *rate));
    }
    charges
}

fn arcs_of(flows: &AdmittedFlows) -> Vec<ArcId> {
    let flows =
        FlowDirection::BOTH.into_iter().filter_map(|direction| flows.of(direction).as_ref());
    flows.flat_map(|flow| flow.path.arcs.clone()).collect()
}

fn drawn_request(draw: &mut Seed, number: u64) -> ConnectionRequest {
    let network = drawn::between(draw, 1, 2);
    let half = END_NODES / 2;
    let source = drawn::between(draw, 0, half - 1);
    let destination = (source + drawn::between(draw, 1, half - 1)) % half;
    // End nodes of network 1 have even numbers.
    let ends = [source, destination].map(|half| half * 2 + network - 1);
    let window = if draw.one_in(3) {
        let start = draw.between(0, 1000);
        let end = start + draw.between(1, 300);
        TimeWindow { start: Instant::from_nanos(start), end: Instant::from_nanos(end) }
    } else {
        TimeWindow::ALWAYS
    };
    let smallest_packet =
        [64, 576, 1460][usize::from(draw.one_in(2)) + usize::from(draw.one_in(2))];
    let mut request = drawn::plain_request(NetworkId(network), ends, number);
    request.rate = ByDirection { forward: drawn_rate(draw), backward: drawn_rate(draw) };
    request.limits = ByDirection { forward: drawn_limits(draw), backward: drawn_limits(draw) };
    request.window = window;
    if draw.one_in(2) {
        request.basis = RateBasis::Inner { smallest_packet };
    }
    request
}

fn drawn_rate(draw: &mut Seed) -> RequestedRate {
    RequestedRate(BitRate::from_bps(draw.between(1_000_000, 60_000_000)))
}

fn drawn_limits(draw: &mut Seed) -> PathLimits {
    PathLimits {
        delay: draw.one_in(2).then(|| Nanos::new(draw.between(15, 60))),
        hops: draw.one_in(3).then(|| u16::try_from(draw.between(4, 10)).unwrap_or(10)),
        exclude_any: if draw.one_in(4) { 1 } else { 0 },
        ..PathLimits::default()
    }
}
