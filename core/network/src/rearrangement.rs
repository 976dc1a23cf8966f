// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rearrangement: moves of connections, so that a new one fits.
//!
//! A move is make-before-break: its new path must have room while the old one is still charged. The
//! search therefore needs both an assignment of paths in which everything fits, and an order of
//! moves that leads to it.
//!
//! 1. *Conflicts.* The new connection is put on a path. If that overcharges an arc, a connection
//!    that has not been moved yet must leave the arc. Each such connection, on each of its paths
//!    without the arc, is a branch. If an assignment exists, one branch leads to it, since in that
//!    assignment some connection on the arc has another path. Fewer moves are tried before more.
//! 2. *Order.* All orders of the moves are tried; every move of an order must have room.
//! 3. *Detours.* If no order exists, connections that swap paths may need a third path for a
//!    while. Then all states that moves can reach are searched, breadth first.
//!
//! Each part is complete while the number of paths and states stays within its bounds; if a bound
//! is reached, the outcome says so. Work is counted in states: visiting a flow costs one, and a
//! path search costs states in proportion to its steps. To resolve conflicts, only flows on an
//! overcharged arc are visited, one after the other: the cost depends on their number, and not on
//! that of all connections.
//!
//! A connection that must be disjoint from another stays where it is, and so does that other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::admission::{FlowQuestion, SearchTerms};
use crate::connection::{AdmittedFlow, ConnectionRequest, FlowDirection, RoutedPath, TimeWindow};
use crate::ids::{ArcId, ConnectionId};
use crate::ledger::{ArcLedger, ChargeSide, FlowKey, REQUESTED};
use crate::lifecycle::ConnectionState;
use crate::path_search::PathObjective;
use crate::state::{AdmittedFlows, NetworkState};

/// Bounds of a search for a rearrangement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RearrangementLimits {
    /// Most moves, at most 16.
    pub moves: usize,
    /// Most paths that are tried for a direction of a connection.
    pub paths: usize,
    /// Most states that are looked at, at some microseconds each. Other work counts as states.
    pub states: usize,
}

impl Default for RearrangementLimits {
    fn default() -> Self {
        Self { moves: 6, paths: 32, states: 50_000 }
    }
}

/// Most moves that limits can allow.
const MOVES_MAX: usize = 16;

/// Most flows among which detours are searched for.
const DETOUR_FLOWS_MAX: usize = 64;

/// Number of partial paths that cost as much as one state.
const PARTIAL_PER_STATE: usize = 16;

/// Number of lookups in the set of visited states that cost as much as one state.
const LOOKS_PER_STATE: usize = 64;

/// Number of steps of a path search that cost as much as one state.
const STEPS_PER_STATE: u64 = 256;

/// A direction of a connection, moved to another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMove {
    /// The connection.
    pub connection: ConnectionId,
    /// The direction.
    pub direction: FlowDirection,
    /// Its flow afterwards: another path at the same rate.
    pub flow: AdmittedFlow,
}

/// An answer to whether moves make room for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RearrangementOutcome {
    /// After these moves, in this order, the request is admitted with these flows.
    Found {
        /// The moves. Empty if the request is admitted without any.
        moves: Vec<PathMove>,
        /// The flows of the new connection.
        flows: AdmittedFlows,
    },
    /// No moves make room.
    Impossible,
    /// A bound was reached before the answer was known.
    Exhausted,
}

/// A flow that may be moved.
struct MovableFlow {
    window: TimeWindow,
    flow: AdmittedFlow,
    question: FlowQuestion,
    /// Its path before any move.
    old: RoutedPath,
    /// All its paths, once they were searched for.
    alternatives: Option<Vec<RoutedPath>>,
}

/// A state of the search for detours: the path of each flow, as an index into its list of paths,
/// and the moves that led there.
struct ReachedState {
    places: Vec<usize>,
    /// Each move: the flow's index, and the index of its path afterwards.
    moves: Vec<(usize, usize)>,
}

/// A flow with all its paths; the first is the one before any move.
struct FlowPaths(FlowKey, Vec<RoutedPath>);

struct RearrangementSearch<'a> {
    state: &'a mut NetworkState,
    request: &'a ConnectionRequest,
    limits: RearrangementLimits,
    /// Flows that were looked at and may be moved.
    flows: BTreeMap<FlowKey, MovableFlow>,
    /// Flows that are moved.
    moved: Vec<FlowKey>,
    states_left: usize,
    /// Set if a bound cut the search short.
    is_cut: bool,
}

impl NetworkState {
    /// Finds moves of existing connections that make room for a request. Charges nothing.
    pub fn rearrange(
        &mut self,
        request: &ConnectionRequest,
        limits: RearrangementLimits,
    ) -> RearrangementOutcome {
        if self.check(request, None).is_err() || self.connections.contains_key(&REQUESTED) {
            return RearrangementOutcome::Impossible;
        }
        if let Ok(flows) = self.find_flows(request, None, SearchTerms::default()) {
            return RearrangementOutcome::Found { moves: Vec::new(), flows };
        }
        self.finder.set_budget(Some((limits.states as u64).saturating_mul(STEPS_PER_STATE)));
        let outcome = self.find_moves(request, limits);
        self.finder.set_budget(None);
        outcome
    }

    fn find_moves(
        &mut self,
        request: &ConnectionRequest,
        limits: RearrangementLimits,
    ) -> RearrangementOutcome {
        let mut search = RearrangementSearch {
            state: self,
            request,
            limits: RearrangementLimits { moves: limits.moves.min(MOVES_MAX), ..limits },
            flows: BTreeMap::new(),
            moved: Vec::new(),
            states_left: limits.states,
            is_cut: false,
        };
        if let Some(found) = search.by_conflicts().or_else(|| search.by_detours()) {
            return found;
        }
        if search.is_cut || search.states_left == 0 {
            return RearrangementOutcome::Exhausted;
        }
        RearrangementOutcome::Impossible
    }
}

impl RearrangementSearch<'_> {
    /// Takes work from the states that are left. Returns false if none are left.
    const fn spend(&mut self, states: usize) -> bool {
        self.states_left = self.states_left.saturating_sub(states);
        self.states_left > 0
    }

    fn ledger(&mut self) -> Option<&mut ArcLedger> {
        let network = self.state.networks.get_mut(&self.request.network)?;
        Some(&mut network.ledger)
    }

    /// Adds a flow to those that may be moved; false if it may not be moved.
    fn take(&mut self, key: FlowKey) -> bool {
        if self.flows.contains_key(&key) {
            return true;
        }
        let (id, direction) = key;
        let Some(known) = self.state.connections.get(&id) else { return false };
        let of = &known.connection.request;
        let is_named = FlowDirection::BOTH
            .iter()
            .any(|direction| self.request.limits.of(*direction).disjoint_from == Some(id));
        let may_move = of.network == self.request.network
            && known.next.is_none()
            && known.connection.state == ConnectionState::Active
            && !known.is_suspended
            && !is_named
            && !self.state.is_tied(known);
        let flow = known.connection.flows.of(direction).as_ref().filter(|_| may_move);
        let Some(flow) = flow.cloned() else { return false };
        let flow = MovableFlow {
            window: of.window,
            question: self.state.question(of, direction, Some(id)),
            old: flow.path.clone(),
            flow,
            alternatives: None,
        };
        self.flows.insert(key, flow);
        true
    }

    /// Paths that a question allows, whether or not they have room: all of them, or the cheapest if
    /// there are too many.
    fn alternatives_of(&mut self, question: &FlowQuestion) -> Vec<RoutedPath> {
        let Some(known) = self.state.networks.get(&self.request.network) else { return Vec::new() };
        let (query, topology) = (question.query(PathObjective::Cost), &self.state.topology);
        let found = self.state.finder.alternatives(query, self.limits.paths, |arc| {
            question.may_pass(topology, arc) && known.ledger.sellable(arc).is_some()
        });
        self.is_cut |= !found.is_complete;
        self.spend(1 + found.partial / PARTIAL_PER_STATE);
        found.paths
    }

    fn charge(&mut self, arcs: &[ArcId], key: FlowKey, rate: u64, window: TimeWindow) {
        if let Some(ledger) = self.ledger() {
            ledger.set(arcs, key, ChargeSide::Current, rate, window);
        }
    }

    /// Puts a flow on another path, as if its old path had been released.
    fn place_on(&mut self, key: FlowKey, path: &RoutedPath) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let (window, rate) = (flow.window, flow.flow.reserved.as_bps());
        let before = core::mem::replace(&mut flow.flow.path, path.clone());
        self.charge(&before.arcs, key, 0, window);
        self.charge(&path.arcs, key, rate, window);
    }

    /// Puts a flow back on its path before any move.
    fn put_back(&mut self, key: FlowKey) {
        if let Some(old) = self.flows.get(&key).map(|flow| flow.old.clone()) {
            self.place_on(key, &old);
        }
    }

    /// Tells whether a flow's new path has room while its present path is charged.
    fn fits(&mut self, key: FlowKey, path: &RoutedPath) -> bool {
        let Some(flow) = self.flows.get(&key) else { return false };
        let (window, rate) = (flow.window, flow.flow.reserved.as_bps());
        self.ledger().is_some_and(|ledger| {
            path.arcs.iter().all(|arc| ledger.has_free(*arc, rate, window, Some(key)))
        })
    }

    /// Paths of a flow other than its present one.
    fn others(&mut self, key: FlowKey) -> Vec<RoutedPath> {
        let is_unknown = |flow: &&MovableFlow| flow.alternatives.is_none();
        let unknown = self.flows.get(&key).filter(is_unknown).map(|flow| flow.question.clone());
        let searched = unknown.map(|question| self.alternatives_of(&question));
        let Some(flow) = self.flows.get_mut(&key) else { return Vec::new() };
        if searched.is_some() {
            flow.alternatives = searched;
        }
        let differs = |path: &&RoutedPath| path.arcs != flow.flow.path.arcs;
        flow.alternatives.iter().flatten().filter(differs).cloned().collect()
    }

    fn by_conflicts(&mut self) -> Option<RearrangementOutcome> {
        let mut choices = Vec::new();
        for direction in FlowDirection::BOTH {
            if self.request.rate_of(direction).is_zero() {
                choices.push(vec![None]);
                continue;
            }
            let question = self.state.question(self.request, direction, None);
            let paths = self.alternatives_of(&question);
            let flows = paths.into_iter().map(|path| Some(question.rate.on(path)));
            choices.push(flows.collect());
        }
        for moves in 1..=self.limits.moves {
            for forward in &choices[0] {
                for backward in &choices[1] {
                    let flows =
                        AdmittedFlows { forward: forward.clone(), backward: backward.clone() };
                    if let Some(found) = self.with_new(&flows, moves) {
                        return Some(found);
                    }
                    if self.states_left == 0 {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Tries to make room for the new connection on given paths.
    fn with_new(&mut self, flows: &AdmittedFlows, moves: usize) -> Option<RearrangementOutcome> {
        self.charge_new(flows, true);
        let moves = self.resolve(flows, moves);
        self.charge_new(flows, false);
        Some(RearrangementOutcome::Found { moves: moves?, flows: flows.clone() })
    }

    fn charge_new(&mut self, flows: &AdmittedFlows, is_charged: bool) {
        for (direction, flow) in flows.present() {
            let rate = if is_charged { flow.reserved.as_bps() } else { 0 };
            self.charge(&flow.path.arcs, (REQUESTED, direction), rate, self.request.window);
        }
    }

    fn path_move(&self, key: FlowKey, path: &RoutedPath) -> Option<PathMove> {
        let (connection, direction) = key;
        let flow = AdmittedFlow { path: path.clone(), ..self.flows.get(&key)?.flow.clone() };
        Some(PathMove { connection, direction, flow })
    }

    /// Moves flows off overcharged arcs until everything fits. Returns the moves in an order in
    /// which each has room, and leaves all flows where they were.
    fn resolve(&mut self, new: &AdmittedFlows, moves_left: usize) -> Option<Vec<PathMove>> {
        if !self.spend(1) {
            return None;
        }
        let Some(arc) = self.overcharged(new) else { return self.in_order(new) };
        if moves_left == 0 {
            return None;
        }
        let mut last = None;
        while let Some(key) = self.ledger()?.flow_after(arc, last) {
            last = Some(key);
            if !self.spend(1) {
                return None;
            }
            if self.moved.contains(&key) || !self.take(key) {
                continue;
            }
            for path in self.others(key) {
                if path.arcs.contains(&arc) {
                    continue;
                }
                self.place_on(key, &path);
                self.moved.push(key);
                let moves = self.resolve(new, moves_left - 1);
                self.moved.pop();
                self.put_back(key);
                if moves.is_some() || self.states_left == 0 {
                    return moves;
                }
            }
        }
        None
    }

    /// An arc that is overcharged, among those that the new connection or a move uses.
    fn overcharged(&mut self, new: &AdmittedFlows) -> Option<ArcId> {
        let new = new.present().map(|(_, flow)| flow);
        let moved = self.moved.iter().filter_map(|key| Some(&self.flows.get(key)?.flow));
        let arcs: Vec<ArcId> = new.chain(moved).flat_map(|flow| flow.path.arcs.clone()).collect();
        let ledger = self.ledger()?;
        let is_over = |arc: &ArcId| ledger.free(*arc, TimeWindow::ALWAYS, None) < 0;
        arcs.into_iter().find(is_over)
    }

    /// Returns the moves in an order in which each has room without the new connection; `None` if
    /// there is no such order. Leaves all flows where they are.
    fn in_order(&mut self, new: &AdmittedFlows) -> Option<Vec<PathMove>> {
        let moved = self.moved.iter();
        let moved = moved.filter_map(|key| Some((*key, self.flows.get(key)?.flow.path.clone())));
        let moved: Vec<_> = moved.collect();
        self.charge_new(new, false);
        for (key, _) in &moved {
            self.put_back(*key);
        }
        let (mut order, mut tried) = (Vec::new(), BTreeSet::new());
        let has_order = self.order_from(&moved, &mut order, &mut tried);
        for (key, target) in &moved {
            self.place_on(*key, target);
        }
        self.charge_new(new, true);
        let moves = order.into_iter().filter_map(|at| {
            let (key, target) = &moved[at];
            self.path_move(*key, target)
        });
        has_order.then(|| moves.collect())
    }

    /// Extends an order of moves, each of which has room. If it finds a full order, the flows stay
    /// moved.
    fn order_from(
        &mut self,
        moved: &[(FlowKey, RoutedPath)],
        order: &mut Vec<usize>,
        tried: &mut BTreeSet<u32>,
    ) -> bool {
        if order.len() == moved.len() {
            return true;
        }
        // All orders of one set of moves lead to the same state, which is tried once.
        if !tried.insert(order.iter().fold(0, |set, at| set | 1 << at)) || !self.spend(1) {
            return false;
        }
        for (at, (key, target)) in moved.iter().enumerate() {
            if order.contains(&at) || !self.fits(*key, target) {
                continue;
            }
            self.place_on(*key, target);
            order.push(at);
            if self.order_from(moved, order, tried) {
                return true;
            }
            order.pop();
            self.put_back(*key);
        }
        false
    }

    /// Adds all flows that may be moved; false if there are too many, or no work is left.
    fn take_all(&mut self) -> bool {
        let mut from = Bound::Unbounded;
        loop {
            let connections = &self.state.connections;
            let Some((id, _)) = connections.range((from, Bound::Unbounded)).next() else {
                return true;
            };
            let id = *id;
            from = Bound::Excluded(id);
            if !self.spend(1) || self.flows.len() > DETOUR_FLOWS_MAX {
                return false;
            }
            for direction in FlowDirection::BOTH {
                self.take((id, direction));
            }
        }
    }

    /// Searches all states that moves can reach, those with the fewest moves first.
    fn by_detours(&mut self) -> Option<RearrangementOutcome> {
        if !self.take_all() || self.flows.len() > DETOUR_FLOWS_MAX {
            self.is_cut = true;
            return None;
        }
        let keys: Vec<FlowKey> = self.flows.keys().copied().collect();
        let flows = keys.iter().filter_map(|key| {
            let old = self.flows.get(key)?.old.clone();
            Some(FlowPaths(*key, core::iter::once(old).chain(self.others(*key)).collect()))
        });
        let flows: Vec<FlowPaths> = flows.collect();
        let looks: usize = flows.iter().map(|FlowPaths(_, paths)| paths.len()).sum();
        let start = vec![0; flows.len()];
        let mut seen = BTreeSet::from([start.clone()]);
        let mut queue = VecDeque::from([ReachedState { places: start.clone(), moves: Vec::new() }]);
        let mut now = start.clone();
        let mut found = None;
        while let Some(reached) = queue.pop_front() {
            if !self.spend(1 + looks / LOOKS_PER_STATE) {
                break;
            }
            self.charge_state(&flows, &mut now, &reached.places);
            if let Some(flows) = self.flows_of_new() {
                found = Some((reached.moves, flows));
                break;
            }
            self.grow(&flows, &reached, &mut seen, &mut queue);
        }
        self.charge_state(&flows, &mut now, &start);
        let (moves, new) = found?;
        let moves = moves.into_iter().filter_map(|(place, to)| {
            let FlowPaths(key, paths) = &flows[place];
            self.path_move(*key, &paths[to])
        });
        Some(RearrangementOutcome::Found { moves: moves.collect(), flows: new })
    }

    /// Paths of the new connection, if there is room for it now.
    fn flows_of_new(&mut self) -> Option<AdmittedFlows> {
        let before = self.state.finder.steps();
        let found = self.state.find_flows(self.request, None, SearchTerms::default());
        let states = (self.state.finder.steps() - before) / STEPS_PER_STATE;
        self.spend(usize::try_from(states).unwrap_or(usize::MAX));
        self.is_cut |= self.state.finder.is_spent();
        found.ok()
    }

    /// Queues each unseen state that is one move away.
    fn grow(
        &mut self,
        flows: &[FlowPaths],
        reached: &ReachedState,
        seen: &mut BTreeSet<Vec<usize>>,
        queue: &mut VecDeque<ReachedState>,
    ) {
        for (place, FlowPaths(key, paths)) in flows.iter().enumerate() {
            for (to, path) in paths.iter().enumerate() {
                let mut places = reached.places.clone();
                places[place] = to;
                if seen.contains(&places) || !self.fits(*key, path) {
                    continue;
                }
                if seen.len() >= self.limits.states || reached.moves.len() >= self.limits.moves {
                    self.is_cut = true;
                    continue;
                }
                seen.insert(places.clone());
                let moves = [reached.moves.as_slice(), &[(place, to)]].concat();
                queue.push_back(ReachedState { places, moves });
            }
        }
    }

    /// Charges the paths of a state.
    fn charge_state(&mut self, flows: &[FlowPaths], now: &mut [usize], to: &[usize]) {
        for (place, FlowPaths(key, paths)) in flows.iter().enumerate() {
            if now[place] != to[place] {
                self.place_on(*key, &paths[to[place]]);
                now[place] = to[place];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::NodeId;
    use crate::state::NetworkLimits;
    use crate::test_network::{NETWORK, admit, network, request};

    /// Goal: however many connections cross a bridge that none of them can leave, only as many are
    /// looked at as the bound of states allows.
    #[test]
    fn a_bridge_with_many_flows_does_not_cost_all_of_them() {
        let links = [(0, 1, 4_000), (1, 2, 4_000), (2, 3, 4_000), (1, 3, 100), (0, 2, 1)];
        let mut state = network(&links, |link| 10 + link, NetworkLimits::default());
        for id in 1..=4_000 {
            assert!(admit(&mut state, id, request(u16::try_from(id).unwrap(), [0, 1], 1)));
        }
        let wanted = request(9_000, [0, 1], 10);
        let limits = RearrangementLimits { moves: 4, paths: 8, states: 200 };
        assert_eq!(state.rearrange(&wanted, limits), RearrangementOutcome::Exhausted);
        let mut search = RearrangementSearch {
            state: &mut state,
            request: &wanted,
            limits,
            flows: BTreeMap::new(),
            moved: Vec::new(),
            states_left: limits.states,
            is_cut: false,
        };
        assert_eq!(search.by_conflicts(), None);
        assert_eq!(search.states_left, 0);
        assert!(search.flows.len() < limits.states, "{} flows", search.flows.len());
    }

    /// All simple paths between two nodes.
    fn all_paths(state: &NetworkState, [from, to]: [u32; 2]) -> Vec<Vec<ArcId>> {
        let (mut found, mut open) = (Vec::new(), vec![(vec![NodeId(from)], Vec::new())]);
        while let Some((nodes, arcs)) = open.pop() {
            if nodes.last() == Some(&NodeId(to)) {
                found.push(arcs);
                continue;
            }
            for (id, arc) in (0..).map(ArcId).zip(&state.topology.arcs) {
                if nodes.last() == Some(&arc.from) && !nodes.contains(&arc.to) {
                    let nodes = [nodes.as_slice(), &[arc.to]].concat();
                    open.push((nodes, [arcs.as_slice(), &[id]].concat()));
                }
            }
        }
        found
    }

    /// Tells whether moves can make room, by a search of all states that they can reach.
    fn is_solvable(
        state: &NetworkState,
        new: [u32; 2],
        rate: u64,
        links: &[(u32, u32, u64)],
    ) -> bool {
        let flows: Vec<_> = state
            .connections()
            .map(|of| {
                let flow = of.flows.forward.as_ref().unwrap();
                let mut paths = all_paths(state, [of.request.source.0, of.request.destination.0]);
                paths.retain(|path| *path != flow.path.arcs);
                paths.insert(0, flow.path.arcs.clone());
                (flow.reserved.as_bps(), paths)
            })
            .collect();
        let new = all_paths(state, new);
        let capacity = |arc: &ArcId| links[arc.index() / 2].2;
        let start = vec![0; flows.len()];
        let (mut seen, mut open) = (BTreeSet::from([start.clone()]), vec![start]);
        while let Some(places) = open.pop() {
            let used = |arc: &ArcId| -> u64 {
                let on =
                    flows.iter().zip(&places).filter(|((_, paths), at)| paths[**at].contains(arc));
                on.map(|((rate, _), _)| rate).sum()
            };
            if new.iter().any(|path| path.iter().all(|arc| used(arc) + rate <= capacity(arc))) {
                return true;
            }
            for (place, (rate, paths)) in flows.iter().enumerate() {
                let old = &paths[places[place]];
                for (to, path) in paths.iter().enumerate() {
                    let mut added = path.iter().filter(|arc| !old.contains(arc));
                    let mut next = places.clone();
                    next[place] = to;
                    if added.all(|arc| used(arc) + rate <= capacity(arc))
                        && seen.insert(next.clone())
                    {
                        open.push(next);
                    }
                }
            }
        }
        false
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Goal: within the default limits moves are found whenever some make room; each of them
        /// has room when its turn comes, and looking for them charges nothing.
        #[test]
        fn moves_are_found_whenever_some_make_room(
            chords in prop::collection::vec((0u32..5, 2u32..4), 2),
            capacities in prop::collection::vec(2u64..6, 7),
            wanted in prop::collection::vec((0u32..5, 1u32..5, 1u64..4), 1..30),
        ) {
            let ring = (0..5).map(|node| (node, (node + 1) % 5));
            let chords = chords.into_iter().map(|(node, step)| (node, (node + step) % 5));
            let links: Vec<_> =
                ring.chain(chords).zip(capacities).map(|((a, b), rate)| (a, b, rate)).collect();
            let mut state = network(&links, |link| 10 + link, NetworkLimits::default());
            let mut refused = None;
            for (port, (from, step, rate)) in (1u16..).zip(wanted) {
                let ends = [from, (from + step) % 5];
                if !admit(&mut state, u64::from(port), request(port, ends, rate)) {
                    refused = Some((request(port, ends, rate), ends, rate));
                    break;
                }
            }
            let Some((request, ends, rate)) = refused else { return Ok(()) };
            if state.connections().count() > 6 {
                return Ok(());
            }
            let uses = |state: &NetworkState| -> Vec<_> {
                (0..14).map(|arc| state.use_of(NETWORK, ArcId(arc))).collect()
            };
            let (before, solvable) = (uses(&state), is_solvable(&state, ends, rate, &links));
            let outcome = state.rearrange(&request, RearrangementLimits::default());
            prop_assert_eq!(uses(&state), before);
            let RearrangementOutcome::Found { moves, flows } = outcome else {
                prop_assert!(!solvable, "{:?}", outcome);
                return Ok(());
            };
            prop_assert!(solvable);
            for PathMove { connection, direction, flow } in moves {
                let known = state.connection(connection).unwrap().clone();
                let mut flows = known.flows;
                *flows.of_mut(direction) = Some(flow);
                state.begin_change(connection, known.request, flows).unwrap();
                state.finish_change(connection).unwrap();
            }
            let new = ConnectionId(1_000);
            state.reserve(new, request, flows, ConnectionState::Active).unwrap();
            prop_assert_eq!(state.overcharged(NETWORK), []);
        }
    }
}
