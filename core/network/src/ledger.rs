// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Charges of a network's arcs, now and in time to come.
//!
//! A direction of a connection charges each arc of its path for its window. While it moves, an arc
//! is charged the larger of old and new, never the sum: the packets take one path or the other. The
//! rate that is free in a window is the share, less the class for packets outside of tunnels, less
//! the highest sum of charges at any moment of the window.

use std::collections::BTreeMap;
use std::ops::Bound;

use weir_units::Instant;

use crate::connection::{ByDirection, FlowDirection, TimeWindow};
use crate::ids::{ArcId, ConnectionId};
use crate::virtual_network::ArcShare;

/// A direction of a connection, as charges name it.
pub(crate) type FlowKey = (ConnectionId, FlowDirection);

/// The key of a request that is tried out. No stored connection has it.
pub(crate) const REQUESTED: ConnectionId = ConnectionId(u64::MAX);

/// One of a moving flow's two charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeSide {
    Current,
    Next,
}

/// Charges of one network's arcs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArcLedger {
    /// Sorted by arc.
    arcs: Vec<ChargedArc>,
}

#[derive(Clone, Debug)]
struct ChargedArc {
    arc: ArcId,
    /// The rate that connections may be promised together.
    sellable: u64,
    /// Rates of flows that are charged for all time and do not move: nearly all of them, and most
    /// of the memory of a network with many connections. A key with its direction would take half
    /// as much again.
    steady: ByDirection<BTreeMap<ConnectionId, u64>>,
    /// Charges for all time of flows that move.
    moving: BTreeMap<FlowKey, ArcCharge>,
    /// Charges that do not last for all time. They alone are walked through to find what is free.
    windowed: BTreeMap<FlowKey, ArcCharge>,
    /// The sum of all charges for all time.
    always: u64,
    /// The sum of all charges, whenever they are.
    total: u64,
}

#[derive(Clone, Copy, Debug)]
struct ArcCharge {
    current: u64,
    next: u64,
    window: TimeWindow,
}

impl ArcCharge {
    fn rate(&self) -> u64 {
        self.current.max(self.next)
    }

    /// The part of it that belongs to the sum of charges for all time.
    fn always(&self) -> u64 {
        if self.window == TimeWindow::ALWAYS { self.rate() } else { 0 }
    }
}

impl ArcLedger {
    pub(crate) fn new(shares: &[ArcShare]) -> Self {
        let mut arcs: Vec<ChargedArc> = shares.iter().map(ChargedArc::new).collect();
        arcs.sort_by_key(|charged| charged.arc);
        Self { arcs }
    }

    fn find(&self, arc: ArcId) -> Option<&ChargedArc> {
        let place = self.arcs.binary_search_by_key(&arc, |charged| charged.arc).ok()?;
        self.arcs.get(place)
    }

    fn find_mut(&mut self, arc: ArcId) -> Option<&mut ChargedArc> {
        let place = self.arcs.binary_search_by_key(&arc, |charged| charged.arc).ok()?;
        self.arcs.get_mut(place)
    }

    /// All that connections may have of an arc; `None` if the network has no share.
    pub(crate) fn sellable(&self, arc: ArcId) -> Option<u64> {
        self.find(arc).map(|charged| charged.sellable)
    }

    /// The least that is free in a window, without a flow's own charge. It is negative if the share
    /// was made smaller than its charges.
    pub(crate) fn free(&self, arc: ArcId, window: TimeWindow, except: Option<FlowKey>) -> i128 {
        self.find(arc).map_or(0, |charged| {
            i128::from(charged.sellable) - i128::from(charged.peak(window, except))
        })
    }

    /// Tells whether `need` is free in a window: the same answer as by [`Self::free`], mostly
    /// faster.
    pub(crate) fn has_free(
        &self,
        arc: ArcId,
        need: u64,
        window: TimeWindow,
        except: Option<FlowKey>,
    ) -> bool {
        self.find(arc).is_some_and(|charged| {
            let fits = |used: u64| used.saturating_add(need) <= charged.sellable;
            fits(charged.total) || fits(charged.peak(window, except))
        })
    }

    /// The charge of a flow on an arc, the larger of current and next.
    pub(crate) fn charge_of(&self, arc: ArcId, flow: FlowKey) -> u64 {
        let charge = self.find(arc).and_then(|charged| charged.charge(flow));
        charge.map_or(0, |charge| charge.rate())
    }

    /// Connections that charge an arc.
    pub(crate) fn connections_on(&self, arc: ArcId) -> impl Iterator<Item = ConnectionId> {
        let charged = self.find(arc).into_iter();
        charged.flat_map(|charged| {
            let ByDirection { forward, backward } = &charged.steady;
            let others = charged.moving.keys().chain(charged.windowed.keys());
            let others = others.map(|(connection, _)| connection);
            forward.keys().chain(backward.keys()).chain(others).copied()
        })
    }

    /// The number of flows that charge an arc.
    pub(crate) fn flows_on(&self, arc: ArcId) -> usize {
        self.find(arc).map_or(0, |charged| {
            let ByDirection { forward, backward } = &charged.steady;
            forward.len() + backward.len() + charged.moving.len() + charged.windowed.len()
        })
    }

    /// The next flow after `after`, in the order of connections, among those that charge an arc;
    /// the first one for `None`. So a caller can visit flows without a copy of all. Flows that are
    /// charged for all time and move are left out.
    pub(crate) fn flow_after(&self, arc: ArcId, after: Option<FlowKey>) -> Option<FlowKey> {
        let charged = self.find(arc)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let windowed = charged.windowed.range((from, Bound::Unbounded)).next();
        let steady = FlowDirection::BOTH.into_iter().filter_map(|direction| {
            let from = after.map_or(Bound::Unbounded, |(id, last)| match direction > last {
                true => Bound::Included(id),
                false => Bound::Excluded(id),
            });
            let (id, _) = charged.steady.of(direction).range((from, Bound::Unbounded)).next()?;
            Some((*id, direction))
        });
        steady.chain(windowed.map(|(key, _)| *key)).min()
    }

    /// Returns the rate by which the free rate of an arc in a window would grow without the flows
    /// of some connections. Charges for all time of flows that move stay.
    pub(crate) fn freed_without(
        &self,
        arc: ArcId,
        window: TimeWindow,
        gives: impl Fn(ConnectionId) -> bool,
    ) -> u64 {
        self.find(arc).map_or(0, |charged| {
            let steady = FlowDirection::BOTH.map(|direction| charged.steady.of(direction).iter());
            let given = steady.into_iter().flatten().filter(|(id, _)| gives(**id));
            let left = given.fold(charged.always, |left, (_, rate)| left.saturating_sub(*rate));
            let peak = charged.peak_over(left, window, |(id, _)| gives(id));
            charged.peak(window, None).saturating_sub(peak)
        })
    }

    /// The highest sum of charges of an arc at any time.
    pub(crate) fn highest(&self, arc: ArcId) -> u64 {
        self.find(arc).map_or(0, |charged| charged.peak(TimeWindow::ALWAYS, None))
    }

    /// Sets one side of a flow's charge on arcs. Rate zero on both sides removes it.
    pub(crate) fn set(
        &mut self,
        arcs: &[ArcId],
        flow: FlowKey,
        side: ChargeSide,
        rate: u64,
        window: TimeWindow,
    ) {
        for arc in arcs {
            if let Some(charged) = self.find_mut(*arc) {
                charged.set(flow, side, rate, window);
            }
        }
    }

    /// Changes what connections may be promised together of an arc that the network has a share of.
    pub(crate) fn resize(&mut self, share: &ArcShare) {
        if let Some(charged) = self.find_mut(share.arc) {
            charged.sellable = sellable_of(share);
        }
    }

    /// Arcs that are charged more than they may be, at any moment.
    pub(crate) fn overcharged(&self) -> Vec<ArcId> {
        let over = |arc: &&ChargedArc| arc.peak(TimeWindow::ALWAYS, None) > arc.sellable;
        self.arcs.iter().filter(over).map(|charged| charged.arc).collect()
    }
}

/// Returns the part of a share that connections may be promised together.
pub(crate) fn sellable_of(share: &ArcShare) -> u64 {
    share.rate.as_bps().saturating_sub(share.untunnelled.as_bps())
}

impl ChargedArc {
    fn new(share: &ArcShare) -> Self {
        Self {
            arc: share.arc,
            sellable: sellable_of(share),
            steady: ByDirection::default(),
            moving: BTreeMap::new(),
            windowed: BTreeMap::new(),
            always: 0,
            total: 0,
        }
    }

    fn charge(&self, flow: FlowKey) -> Option<ArcCharge> {
        let steady = |rate: &u64| ArcCharge { current: *rate, next: 0, window: TimeWindow::ALWAYS };
        let (connection, direction) = flow;
        let rate = self.steady.of(direction).get(&connection);
        let others = || self.moving.get(&flow).or_else(|| self.windowed.get(&flow)).copied();
        rate.map(steady).or_else(others)
    }

    fn set(&mut self, flow: FlowKey, side: ChargeSide, rate: u64, window: TimeWindow) {
        let old = self.charge(flow);
        let mut charge = old.unwrap_or(ArcCharge { current: 0, next: 0, window });
        match side {
            ChargeSide::Current => charge.current = rate,
            ChargeSide::Next => charge.next = rate,
        }
        charge.window = window;
        if let Some(old) = old {
            self.total = self.total.saturating_sub(old.rate());
            self.always = self.always.saturating_sub(old.always());
            self.steady.of_mut(flow.1).remove(&flow.0);
            self.moving.remove(&flow);
            self.windowed.remove(&flow);
        }
        if charge.rate() == 0 {
            return;
        }
        self.total = self.total.saturating_add(charge.rate());
        self.always = self.always.saturating_add(charge.always());
        if charge.window != TimeWindow::ALWAYS {
            self.windowed.insert(flow, charge);
        } else if charge.next != 0 {
            self.moving.insert(flow, charge);
        } else {
            self.steady.of_mut(flow.1).insert(flow.0, charge.current);
        }
    }

    /// The highest sum of charges in a window.
    fn peak(&self, window: TimeWindow, except: Option<FlowKey>) -> u64 {
        let own = except.and_then(|flow| self.charge(flow));
        let always = self.always.saturating_sub(own.map_or(0, |charge| charge.always()));
        self.peak_over(always, window, |flow| Some(flow) == except)
    }

    /// The highest sum in a window of charges for all time, `always`, and of those with a window.
    fn peak_over(
        &self,
        mut always: u64,
        window: TimeWindow,
        except: impl Fn(FlowKey) -> bool,
    ) -> u64 {
        // Charges that begin or end within the window. At the same instant, ends sort first.
        let mut events: Vec<(Instant, bool, u64)> = Vec::new();
        for (flow, charge) in &self.windowed {
            if !charge.window.overlaps(window) || except(*flow) {
                continue;
            }
            if charge.window.start <= window.start && charge.window.end >= window.end {
                always = always.saturating_add(charge.rate());
                continue;
            }
            events.push((charge.window.start.max(window.start), true, charge.rate()));
            events.push((charge.window.end, false, charge.rate()));
        }
        events.sort_unstable();
        let (mut sum, mut highest) = (0u64, 0u64);
        for (_, begins, rate) in events {
            sum = if begins { sum.saturating_add(rate) } else { sum.saturating_sub(rate) };
            highest = highest.max(sum);
        }
        always.saturating_add(highest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_units::BitRate;

    use super::*;

    const ARC: ArcId = ArcId(3);

    fn ledger() -> ArcLedger {
        let (rate, untunnelled) = (BitRate::from_bps(100), BitRate::from_bps(10));
        ArcLedger::new(&[ArcShare { arc: ARC, rate, untunnelled }])
    }

    fn flow(number: u64) -> FlowKey {
        (ConnectionId(number), FlowDirection::Forward)
    }

    fn window(start: u64, end: u64) -> TimeWindow {
        TimeWindow { start: Instant::from_nanos(start), end: Instant::from_nanos(end) }
    }

    #[test]
    fn a_moving_flow_is_charged_the_larger_rate() {
        let mut ledger = ledger();
        ledger.set(&[ARC], flow(1), ChargeSide::Current, 40, TimeWindow::ALWAYS);
        ledger.set(&[ARC], flow(1), ChargeSide::Next, 60, TimeWindow::ALWAYS);
        assert_eq!(ledger.free(ARC, TimeWindow::ALWAYS, None), 30);
        ledger.set(&[ARC], flow(1), ChargeSide::Current, 0, TimeWindow::ALWAYS);
        assert_eq!(ledger.free(ARC, TimeWindow::ALWAYS, None), 30);
        ledger.set(&[ARC], flow(1), ChargeSide::Next, 0, TimeWindow::ALWAYS);
        assert_eq!(ledger.free(ARC, TimeWindow::ALWAYS, None), 90);
    }

    #[test]
    fn windows_that_only_touch_do_not_add_up() {
        let mut ledger = ledger();
        ledger.set(&[ARC], flow(1), ChargeSide::Current, 50, window(0, 10));
        ledger.set(&[ARC], flow(2), ChargeSide::Current, 40, window(10, 20));
        assert_eq!(ledger.free(ARC, window(0, 20), None), 40);
        assert_eq!(ledger.free(ARC, window(9, 10), None), 40);
        assert_eq!(ledger.free(ARC, window(10, 11), None), 50);
        assert_eq!(ledger.free(ARC, window(20, 30), None), 90);
        assert_eq!(ledger.free(ARC, window(0, 20), Some(flow(1))), 50);
        assert!(ledger.has_free(ARC, 40, window(0, 20), None));
        assert!(!ledger.has_free(ARC, 41, window(0, 20), None));
        assert_eq!(ledger.highest(ARC), 50);
    }

    /// Goal: charges for all time are not walked through, however many there are, because another
    /// one has a window. Walked through, this takes 10 000 000 000 steps.
    #[test]
    fn one_window_does_not_have_all_charges_walked_through() {
        let mut ledger = ledger();
        for number in 0..100_000 {
            ledger.set(&[ARC], flow(number), ChargeSide::Current, 1, TimeWindow::ALWAYS);
        }
        ledger.set(&[ARC], flow(100_000), ChargeSide::Current, 50, window(0, 10));
        for _ in 0..100_000 {
            assert!(!ledger.has_free(ARC, 1, TimeWindow::ALWAYS, None));
        }
    }

    fn rated() -> impl Strategy<Value = (u64, bool, u64, (u64, u64))> {
        (0u64..6, any::<bool>(), 0u64..20, (0u64..20, 1u64..20))
    }

    proptest! {
        /// Goal: what is free is what a sum at each moment says, and flows are visited once each.
        #[test]
        fn sums_are_those_of_the_charges(
            sets in prop::collection::vec((rated(), any::<bool>()), 1..40),
            asked in (0u64..30, 1u64..10),
        ) {
            let (mut ledger, mut model) = (ledger(), BTreeMap::new());
            for ((number, forward, rate, (start, length)), for_ever) in sets {
                let direction = FlowDirection::BOTH[usize::from(!forward)];
                let key = (ConnectionId(number), direction);
                let ends = window(start, start + length);
                let time = if for_ever { TimeWindow::ALWAYS } else { ends };
                ledger.set(&[ARC], key, ChargeSide::Current, rate, time);
                model.insert(key, (rate, time));
            }
            model.retain(|_, (rate, _)| *rate > 0);
            let asked = window(asked.0, asked.0 + asked.1);
            let highest = |gives: &dyn Fn(FlowKey) -> bool| {
                let at = |moment: u64| -> u64 {
                    let on = model.iter().filter(|(key, (_, time))| {
                        !gives(**key) && time.overlaps(window(moment, moment + 1))
                    });
                    on.map(|(_, (rate, _))| rate).sum()
                };
                (asked.start.as_nanos()..asked.end.as_nanos()).map(at).max().unwrap()
            };
            let all = highest(&|_| false);
            prop_assert_eq!(ledger.free(ARC, asked, None), 90 - i128::from(all));
            let but_one = highest(&|key| key == flow(3));
            prop_assert_eq!(ledger.free(ARC, asked, Some(flow(3))), 90 - i128::from(but_one));
            let odd = |id: ConnectionId| id.0 % 2 == 1;
            let even = highest(&|key| odd(key.0));
            prop_assert_eq!(ledger.freed_without(ARC, asked, odd), all - even);
            let mut visited = Vec::new();
            while let Some(key) = ledger.flow_after(ARC, visited.last().copied()) {
                visited.push(key);
            }
            prop_assert_eq!(visited.len(), ledger.flows_on(ARC));
            prop_assert!(visited.iter().eq(model.keys()));
        }
    }

    #[test]
    fn an_arc_without_a_share_has_nothing() {
        assert_eq!(ledger().free(ArcId(4), TimeWindow::ALWAYS, None), 0);
        assert!(!ledger().has_free(ArcId(4), 0, TimeWindow::ALWAYS, None));
    }
}
