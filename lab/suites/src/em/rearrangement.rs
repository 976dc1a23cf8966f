// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rearrangement (row 9): small networks, filled until a request is refused. Whether moves could
//! make room is found by looking at all states that moves can reach, with plain tables.

use std::collections::{BTreeSet, VecDeque};

use weir_experiment::prelude::*;
use weir_network::{
    AdmissionAnswer, ArcId, ArcShare, ByDirection, ConnectionId, ConnectionRequest,
    ConnectionState, FlowDirection, NetworkId, NetworkLimits, NetworkState, NetworkTopology,
    NodeId, PathMove, RearrangementLimits, RearrangementOutcome, RefusalReason, RequestedRate,
    TunnelAccounting,
};
use weir_sim::Seed;

use super::drawn::{self, DrawnLink};

const NODES: u32 = 6;
const LINKS: u32 = 9;
/// Most flows of a case, so that all states can be looked at.
const FLOWS_MAX: usize = 7;
/// The number of the request that is made room for.
const NEW: ConnectionId = ConnectionId(1_000);

/// Shows the part of row 9 that needs no wire.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<()> {
    let wanted = if rec.quick { 40 } else { 200 };
    let mut counts = RearrangementCounts::default();
    let mut seed = 0;
    while counts.solvable < wanted && seed < wanted * 1000 {
        if let Some(mut case) = RearrangementCase::draw(&mut Seed::new(seed))? {
            case.judge(&mut counts)?;
        }
        seed += 1;
    }
    rec.say(&format!("{counts:?}"));
    let all = Bound::equal(float(wanted));
    rec.count("solvable", "cases that the search of all states solves", counts.solvable, all)?;
    rec.count("solved", "of these, solved with moves that have room", counts.solved, all)?;
    rec.none("invalid", "answers with a move or a connection that has no room", counts.invalid)?;
    rec.none("exhausted", "answers that a bound was reached", counts.exhausted)?;
    rec.none("made-up", "solutions of cases that have none", counts.made_up)?;
    rec.none("changed", "searches that left charges changed", counts.changed)?;
    let text = "solvable cases that need more than one move";
    rec.at_least("several", text, counts.several, wanted / 20)
}

#[derive(Debug, Default)]
struct RearrangementCounts {
    solvable: u64,
    unsolvable: u64,
    solved: u64,
    invalid: u64,
    exhausted: u64,
    made_up: u64,
    changed: u64,
    several: u64,
}

/// A flow in plain numbers.
struct PlainFlow {
    rate: u64,
    /// All simple paths; the first is the present one.
    paths: Vec<Vec<ArcId>>,
}

struct RearrangementCase {
    state: NetworkState,
    request: ConnectionRequest,
    /// By arc: what connections may be promised.
    sellable: Vec<u64>,
}

impl RearrangementCase {
    /// Draws a network and fills it until a request is refused for lack of bandwidth; `None` if
    /// that takes [`FLOWS_MAX`] flows.
    fn draw(draw: &mut Seed) -> Result<Option<Self>> {
        let links: Vec<_> = (0..LINKS)
            .map(|number| {
                let a = number % NODES;
                let far = drawn::between(draw, 2, NODES - 2);
                DrawnLink {
                    ends: [a, if number < NODES { (a + 1) % NODES } else { (a + far) % NODES }],
                    delay: Nanos::new(1),
                    capacity: BitRate::from_mbps(draw.between(2, 5)),
                }
            })
            .collect();
        let topology = drawn::topology(draw, NODES, 5, &links);
        let sellable: Vec<u64> = topology.arcs.iter().map(|arc| arc.sellable().as_bps()).collect();
        let accounting = TunnelAccounting { limiter_error_ppm: 0 };
        let mut state = NetworkState::new(topology, accounting, NetworkLimits::default())?;
        let shares = (0..).zip(&sellable).map(|(arc, rate)| ArcShare {
            arc: ArcId(arc),
            rate: BitRate::from_bps(*rate),
            untunnelled: BitRate::ZERO,
        });
        state.add_network(drawn::virtual_network(1, shares.collect()))?;
        for number in 0..NODES {
            state.add_end_node(drawn::end_node(number, NetworkId(1), NodeId(number)))?;
        }
        let mut flows = 0;
        for number in 0.. {
            let request = Self::request(draw, number);
            flows += FlowDirection::BOTH.iter().filter(|d| !request.rate_of(**d).is_zero()).count();
            match state.admit(&request) {
                AdmissionAnswer::Admitted(flows) => {
                    state.reserve(ConnectionId(number), request, flows, ConnectionState::Active)?;
                }
                AdmissionAnswer::Refused(refusal) => {
                    let is_full = matches!(refusal.reason, RefusalReason::Bandwidth { .. });
                    return Ok(is_full.then_some(Self { state, request, sellable }));
                }
            }
            if flows >= FLOWS_MAX {
                break;
            }
        }
        Ok(None)
    }

    fn request(draw: &mut Seed, number: u64) -> ConnectionRequest {
        let source = drawn::between(draw, 0, NODES - 1);
        let destination = (source + drawn::between(draw, 1, NODES - 1)) % NODES;
        let rate =
            |draw: &mut Seed| RequestedRate(BitRate::from_bps(draw.between(8, 25) * 100_000));
        let forward = rate(draw);
        let backward = if draw.one_in(3) { rate(draw) } else { RequestedRate::default() };
        let mut request = drawn::plain_request(NetworkId(1), [source, destination], number);
        request.rate = ByDirection { forward, backward };
        request
    }

    fn judge(&mut self, counts: &mut RearrangementCounts) -> Result<()> {
        let fewest = self.fewest_moves();
        let before = self.uses();
        // Each look at a flow or path counts as well, so that these are enough for all states.
        let limits = RearrangementLimits { moves: 12, paths: 1_000, states: 50_000_000 };
        let outcome = self.state.rearrange(&self.request, limits);
        counts.changed += u64::from(self.uses() != before);
        match fewest {
            Some(moves) => {
                counts.solvable += 1;
                counts.several += u64::from(moves > 1);
            }
            None => counts.unsolvable += 1,
        }
        match outcome {
            RearrangementOutcome::Found { moves, flows } => {
                counts.made_up += u64::from(fewest.is_none());
                let holds = self.replay(&moves)
                    && self
                        .state
                        .reserve(NEW, self.request.clone(), flows, ConnectionState::Held)
                        .is_ok()
                    && self.state.overcharged(NetworkId(1)).is_empty();
                counts.invalid += u64::from(!holds);
                counts.solved += u64::from(holds && fewest.is_some());
            }
            RearrangementOutcome::Impossible => {}
            RearrangementOutcome::Exhausted => counts.exhausted += 1,
        }
        Ok(())
    }

    /// Makes the moves, each as a change that is charged for both paths before it is done.
    fn replay(&mut self, moves: &[PathMove]) -> bool {
        moves.iter().all(|PathMove { connection, direction, flow }| {
            let Some(known) = self.state.connection(*connection).cloned() else { return false };
            let mut flows = known.flows;
            *flows.of_mut(*direction) = Some(flow.clone());
            self.state.begin_change(*connection, known.request, flows).is_ok()
                && self.state.finish_change(*connection).is_ok()
        })
    }

    fn uses(&self) -> Vec<Option<(u64, u64)>> {
        let arcs = (0..).zip(&self.sellable).map(|(arc, _)| ArcId(arc));
        arcs.map(|arc| self.state.use_of(NetworkId(1), arc)).collect()
    }

    /// Finds the fewest moves that make room, by a search of all states that moves can reach.
    fn fewest_moves(&self) -> Option<usize> {
        let topology = self.state.topology();
        let mut flows = Vec::new();
        for connection in self.state.connections() {
            debug_assert!(connection.id < NEW, "the number of the request is free");
            for direction in FlowDirection::BOTH {
                let Some(flow) = connection.flows.of(direction) else { continue };
                let mut paths = all_paths(topology, ends(&connection.request, direction));
                paths.retain(|path| *path != flow.path.arcs);
                paths.insert(0, flow.path.arcs.clone());
                flows.push(PlainFlow { rate: flow.reserved.as_bps(), paths });
            }
        }
        let new = FlowDirection::BOTH.map(|direction| {
            let rate = self.request.rate_of(direction).as_bps();
            let paths = if rate == 0 {
                vec![Vec::new()]
            } else {
                all_paths(topology, ends(&self.request, direction))
            };
            (rate, paths)
        });
        let start = vec![0_usize; flows.len()];
        let mut seen = BTreeSet::from([start.clone()]);
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((state, moves)) = queue.pop_front() {
            let used = self.used(&flows, &state);
            if self.fits_new(&used, &new) {
                return Some(moves);
            }
            for (place, flow) in flows.iter().enumerate() {
                let old = &flow.paths[state[place]];
                for (to, path) in flow.paths.iter().enumerate() {
                    // The old path stays charged until the new one is.
                    let fits = path.iter().filter(|arc| !old.contains(arc)).all(|arc| {
                        used[arc.0 as usize] + flow.rate <= self.sellable[arc.0 as usize]
                    });
                    let mut next = state.clone();
                    next[place] = to;
                    if fits && seen.insert(next.clone()) {
                        queue.push_back((next, moves + 1));
                    }
                }
            }
        }
        None
    }

    fn used(&self, flows: &[PlainFlow], state: &[usize]) -> Vec<u64> {
        let mut used = vec![0; self.sellable.len()];
        for (flow, at) in flows.iter().zip(state) {
            flow.paths[*at].iter().for_each(|arc| used[arc.0 as usize] += flow.rate);
        }
        used
    }

    fn fits_new(&self, used: &[u64], new: &[(u64, Vec<Vec<ArcId>>); 2]) -> bool {
        let [(forward_rate, forward), (backward_rate, backward)] = new;
        forward.iter().any(|there| {
            backward.iter().any(|back| {
                there.iter().chain(back).all(|arc| {
                    let mut need = used[arc.0 as usize];
                    need += if there.contains(arc) { *forward_rate } else { 0 };
                    need += if back.contains(arc) { *backward_rate } else { 0 };
                    need <= self.sellable[arc.0 as usize]
                })
            })
        })
    }
}

/// End nodes have the number of their gateway.
fn ends(request: &ConnectionRequest, direction: FlowDirection) -> [NodeId; 2] {
    let [a, b] = [NodeId(request.source.0), NodeId(request.destination.0)];
    match direction {
        FlowDirection::Forward => [a, b],
        FlowDirection::Backward => [b, a],
    }
}

fn all_paths(topology: &NetworkTopology, [from, to]: [NodeId; 2]) -> Vec<Vec<ArcId>> {
    let mut found = Vec::new();
    let mut open = vec![(vec![from], Vec::new())];
    while let Some((nodes, arcs)) = open.pop() {
        if nodes.last() == Some(&to) {
            found.push(arcs);
            continue;
        }
        for (number, arc) in (0..).zip(&topology.arcs) {
            if Some(&arc.from) == nodes.last() && !nodes.contains(&arc.to) {
                open.push((
                    [nodes.as_slice(), &[arc.to]].concat(),
                    [arcs.as_slice(), &[ArcId(number)]].concat(),
                ));
            }
        }
    }
    found
}
