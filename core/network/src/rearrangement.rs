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
//! is reached, the outcome says so. A connection that must be disjoint from another stays where it
//! is, and so does that other.

use std::collections::{BTreeSet, VecDeque};

use crate::admission::FlowQuestion;
use crate::alternatives::AlternativePaths;
use crate::connection::{AdmittedFlow, ConnectionRequest, FlowDirection, RoutedPath, TimeWindow};
use crate::ids::{ArcId, ConnectionId, NetworkId};
use crate::ledger::{ArcLedger, ChargeSide, FlowKey};
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
    /// Most states that are looked at.
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

/// The key of the new connection in the ledger, which no stored connection has.
const NEW: ConnectionId = ConnectionId(u64::MAX);

/// A flow that may be moved.
struct MovableFlow {
    key: FlowKey,
    window: TimeWindow,
    flow: AdmittedFlow,
    question: FlowQuestion,
    /// Its path before any move.
    old: RoutedPath,
    alternatives: Option<AlternativePaths>,
    is_moved: bool,
}

/// A state of the search for detours: the path of each flow, as an index into its list of paths,
/// and the moves that led there.
struct ReachedState {
    places: Vec<usize>,
    /// Each move: the flow's index, and the index of its path afterwards.
    moves: Vec<(usize, usize)>,
}

struct RearrangementSearch<'a> {
    state: &'a mut NetworkState,
    request: &'a ConnectionRequest,
    limits: RearrangementLimits,
    flows: Vec<MovableFlow>,
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
        if self.check(request, None).is_err() || self.connections.contains_key(&NEW) {
            return RearrangementOutcome::Impossible;
        }
        if let Ok(flows) = self.find_flows(request, None, &[]) {
            return RearrangementOutcome::Found { moves: Vec::new(), flows };
        }
        let flows = self.movable_flows(request);
        let mut search = RearrangementSearch {
            state: self,
            request,
            limits: RearrangementLimits { moves: limits.moves.min(MOVES_MAX), ..limits },
            flows,
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

    fn movable_flows(&self, request: &ConnectionRequest) -> Vec<MovableFlow> {
        let named = |request: &ConnectionRequest| {
            FlowDirection::BOTH.map(|direction| request.limits.of(direction).disjoint_from)
        };
        let mut fixed: BTreeSet<ConnectionId> = named(request).into_iter().flatten().collect();
        for connection in self.connections() {
            let others = named(&connection.request);
            if others.iter().any(Option::is_some) {
                fixed.insert(connection.id);
            }
            fixed.extend(others.into_iter().flatten());
        }
        let mut flows = Vec::new();
        for (id, known) in &self.connections {
            let of = &known.connection.request;
            let may_move = of.network == request.network
                && known.next.is_none()
                && known.connection.state == ConnectionState::Active
                && !fixed.contains(id);
            for direction in FlowDirection::BOTH {
                let Some(flow) = known.connection.flows.of(direction) else { continue };
                if may_move {
                    flows.push(MovableFlow {
                        key: (*id, direction),
                        window: of.window,
                        flow: flow.clone(),
                        question: self.question(of, direction, Some(*id)),
                        old: flow.path.clone(),
                        alternatives: None,
                        is_moved: false,
                    });
                }
            }
        }
        flows
    }

    /// Paths that satisfy a path query in a network, whether or not they have room: all of them, or
    /// the cheapest.
    fn alternatives_of(
        &mut self,
        network: NetworkId,
        question: &FlowQuestion,
        most: usize,
    ) -> AlternativePaths {
        let Some(known) = self.networks.get(&network) else { return AlternativePaths::default() };
        let query = question.query(PathObjective::Cost);
        let topology = &self.topology;
        self.finder.alternatives(query, most, |arc| {
            question.may_pass(topology, arc) && known.ledger.sellable(arc).is_some()
        })
    }
}

impl RearrangementSearch<'_> {
    fn ledger(&mut self) -> Option<&mut ArcLedger> {
        let network = self.state.networks.get_mut(&self.request.network)?;
        Some(&mut network.ledger)
    }

    fn charge(&mut self, arcs: &[ArcId], key: FlowKey, rate: u64, window: TimeWindow) {
        if let Some(ledger) = self.ledger() {
            ledger.set(arcs, key, ChargeSide::Current, rate, window);
        }
    }

    /// Puts a flow on another path, as if its old path had been released.
    fn put(&mut self, place: usize, path: RoutedPath) {
        let flow = &mut self.flows[place];
        let (key, window, rate) = (flow.key, flow.window, flow.flow.reserved.as_bps());
        let before = core::mem::replace(&mut flow.flow.path, path.clone());
        self.charge(&before.arcs, key, 0, window);
        self.charge(&path.arcs, key, rate, window);
    }

    /// Puts a flow back on its path before any move.
    fn put_back(&mut self, place: usize) {
        let old = self.flows[place].old.clone();
        self.put(place, old);
    }

    /// Tells whether a flow's new path has room while its present path is charged.
    fn fits(&mut self, place: usize, path: &RoutedPath) -> bool {
        let flow = &self.flows[place];
        let (key, window, rate) = (flow.key, flow.window, flow.flow.reserved.as_bps());
        self.ledger().is_some_and(|ledger| {
            path.arcs.iter().all(|arc| ledger.has_free(*arc, rate, window, Some(key)))
        })
    }

    /// Paths of a flow other than its present one.
    fn others(&mut self, place: usize) -> Vec<RoutedPath> {
        if self.flows[place].alternatives.is_none() {
            let question = self.flows[place].question.clone();
            let most = self.limits.paths;
            self.flows[place].alternatives =
                Some(self.state.alternatives_of(self.request.network, &question, most));
        }
        let flow = &self.flows[place];
        let Some(known) = &flow.alternatives else { return Vec::new() };
        self.is_cut |= !known.is_complete;
        let differs = |path: &&RoutedPath| path.arcs != flow.flow.path.arcs;
        known.paths.iter().filter(differs).cloned().collect()
    }

    fn by_conflicts(&mut self) -> Option<RearrangementOutcome> {
        let mut choices = Vec::new();
        for direction in FlowDirection::BOTH {
            if self.request.rate_of(direction).is_zero() {
                choices.push(vec![None]);
                continue;
            }
            let question = self.state.question(self.request, direction, None);
            let known =
                self.state.alternatives_of(self.request.network, &question, self.limits.paths);
            self.is_cut |= !known.is_complete;
            let flows = known.paths.into_iter().map(|path| Some(question.rate.on(path)));
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
            self.charge(&flow.path.arcs, (NEW, direction), rate, self.request.window);
        }
    }

    fn path_move(&self, place: usize, path: &RoutedPath) -> PathMove {
        let MovableFlow { key: (connection, direction), flow, .. } = &self.flows[place];
        let flow = AdmittedFlow { path: path.clone(), ..flow.clone() };
        PathMove { connection: *connection, direction: *direction, flow }
    }

    /// Moves flows off overcharged arcs until everything fits. Returns the moves in an order in
    /// which each has room, and leaves all flows where they were.
    fn resolve(&mut self, new: &AdmittedFlows, moves_left: usize) -> Option<Vec<PathMove>> {
        if self.states_left == 0 {
            return None;
        }
        self.states_left -= 1;
        let Some(arc) = self.overcharged(new) else { return self.in_order(new) };
        if moves_left == 0 {
            return None;
        }
        for place in 0..self.flows.len() {
            let flow = &self.flows[place];
            if flow.is_moved || !flow.flow.path.arcs.contains(&arc) {
                continue;
            }
            for path in self.others(place) {
                if path.arcs.contains(&arc) {
                    continue;
                }
                self.put(place, path);
                self.flows[place].is_moved = true;
                let moves = self.resolve(new, moves_left - 1);
                self.put_back(place);
                self.flows[place].is_moved = false;
                if moves.is_some() {
                    return moves;
                }
            }
        }
        None
    }

    /// An arc that is overcharged, among those that the new connection or a move uses.
    fn overcharged(&mut self, new: &AdmittedFlows) -> Option<ArcId> {
        let new = new.present().map(|(_, flow)| flow);
        let moved = self.flows.iter().filter(|flow| flow.is_moved).map(|flow| &flow.flow);
        let arcs: Vec<ArcId> = new.chain(moved).flat_map(|flow| flow.path.arcs.clone()).collect();
        let ledger = self.ledger()?;
        let is_over = |arc: &ArcId| ledger.free(*arc, TimeWindow::ALWAYS, None) < 0;
        arcs.into_iter().find(is_over)
    }

    /// Returns the moves in an order in which each has room without the new connection; `None` if
    /// there is no such order. Leaves all flows where they are.
    fn in_order(&mut self, new: &AdmittedFlows) -> Option<Vec<PathMove>> {
        let moved = self.flows.iter().enumerate().filter(|(_, flow)| flow.is_moved);
        let moved: Vec<_> = moved.map(|(place, flow)| (place, flow.flow.path.clone())).collect();
        self.charge_new(new, false);
        for (place, _) in &moved {
            self.put_back(*place);
        }
        let (mut order, mut tried) = (Vec::new(), BTreeSet::new());
        let has_order = self.order_from(&moved, &mut order, &mut tried);
        for (place, target) in &moved {
            self.put(*place, target.clone());
        }
        self.charge_new(new, true);
        let moves = order.into_iter().map(|at| {
            let (place, target) = &moved[at];
            self.path_move(*place, target)
        });
        has_order.then(|| moves.collect())
    }

    /// Extends an order of moves, each of which has room. If it finds a full order, the flows stay
    /// moved.
    fn order_from(
        &mut self,
        moved: &[(usize, RoutedPath)],
        order: &mut Vec<usize>,
        tried: &mut BTreeSet<u32>,
    ) -> bool {
        if order.len() == moved.len() {
            return true;
        }
        // All orders of one set of moves lead to the same state, which is tried once.
        if !tried.insert(order.iter().fold(0, |set, at| set | 1 << at)) {
            return false;
        }
        for (at, (place, target)) in moved.iter().enumerate() {
            if order.contains(&at) || !self.fits(*place, target) {
                continue;
            }
            self.put(*place, target.clone());
            order.push(at);
            if self.order_from(moved, order, tried) {
                return true;
            }
            order.pop();
            self.put_back(*place);
        }
        false
    }

    /// Searches all states that moves can reach, those with the fewest moves first.
    fn by_detours(&mut self) -> Option<RearrangementOutcome> {
        if self.flows.len() > DETOUR_FLOWS_MAX {
            self.is_cut = true;
            return None;
        }
        let paths: Vec<Vec<RoutedPath>> = (0..self.flows.len())
            .map(|place| {
                let old = self.flows[place].old.clone();
                core::iter::once(old).chain(self.others(place)).collect()
            })
            .collect();
        let start = vec![0; self.flows.len()];
        let mut seen = BTreeSet::from([start.clone()]);
        let mut queue = VecDeque::from([ReachedState { places: start.clone(), moves: Vec::new() }]);
        let mut now = start.clone();
        let mut found = None;
        while let Some(reached) = queue.pop_front() {
            if self.states_left == 0 {
                break;
            }
            self.states_left -= 1;
            self.go(&paths, &mut now, &reached.places);
            if let Ok(flows) = self.state.find_flows(self.request, None, &[]) {
                found = Some((reached.moves, flows));
                break;
            }
            self.grow(&paths, &reached, &mut seen, &mut queue);
        }
        self.go(&paths, &mut now, &start);
        let (moves, flows) = found?;
        let moves = moves.into_iter().map(|(place, to)| self.path_move(place, &paths[place][to]));
        Some(RearrangementOutcome::Found { moves: moves.collect(), flows })
    }

    /// Queues each unseen state that is one move away.
    fn grow(
        &mut self,
        paths: &[Vec<RoutedPath>],
        reached: &ReachedState,
        seen: &mut BTreeSet<Vec<usize>>,
        queue: &mut VecDeque<ReachedState>,
    ) {
        for (place, paths) in paths.iter().enumerate() {
            for (to, path) in paths.iter().enumerate() {
                let mut places = reached.places.clone();
                places[place] = to;
                if seen.contains(&places) || !self.fits(place, path) {
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
    fn go(&mut self, paths: &[Vec<RoutedPath>], now: &mut [usize], to: &[usize]) {
        for place in 0..to.len() {
            if now[place] != to[place] {
                self.put(place, paths[place][to[place]].clone());
                now[place] = to[place];
            }
        }
    }
}
