// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says why a request is refused, and the smallest change that would admit it.
//!
//! A lower rate and a larger share are found by bisection, since whether a path exists is monotone
//! in both; a wider limit is that of the fastest path with room, or of the one with the fewest
//! arcs. Each change is then tried on the whole request, and named only if it admits it.
//!
//! That takes up to some hundred searches, in which nobody else is served. So all of them together
//! have one bound of steps ([`crate::PathFinderLimits::steps`]); once it is reached, no more
//! changes are named.

use weir_units::{BitRate, Nanos};

use crate::admission::{ExtraRoom, FailedFlow, FlowQuestion, SearchTerms};
use crate::answer::{
    AdmissionAnswer, ArcShortage, ConnectionRefusal, RefusalReason, SmallestChange,
};
use crate::connection::{ByDirection, ConnectionRequest, FlowDirection, RequestedRate, RoutedPath};
use crate::ids::ConnectionId;
use crate::path_search::{PathObjective, PathOutcome};
use crate::state::NetworkState;

impl NetworkState {
    /// Answers a request for a new connection. Charges nothing.
    pub fn admit(&mut self, request: &ConnectionRequest) -> AdmissionAnswer {
        self.answer(request, None)
    }

    /// Answers a request for a change of a connection, whose own charges do not stand in its way.
    /// Charges nothing.
    pub fn admit_change(
        &mut self,
        id: ConnectionId,
        request: &ConnectionRequest,
    ) -> AdmissionAnswer {
        if !self.connections.contains_key(&id) {
            let reason = RefusalReason::UnknownConnection(id);
            return AdmissionAnswer::Refused(ConnectionRefusal { reason, changes: Vec::new() });
        }
        self.answer(request, Some(id))
    }

    fn answer(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> AdmissionAnswer {
        if let Err(reason) = self.check(request, own) {
            return AdmissionAnswer::Refused(ConnectionRefusal { reason, changes: Vec::new() });
        }
        match self.find_flows(request, own, SearchTerms::default()) {
            Ok(flows) => AdmissionAnswer::Admitted(flows),
            Err(failed) => AdmissionAnswer::Refused(self.explain(request, own, &failed)),
        }
    }

    fn explain(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        failed: &FailedFlow,
    ) -> ConnectionRefusal {
        let FailedFlow { direction, is_exhausted, .. } = *failed;
        if is_exhausted {
            let reason = self.exhausted(direction);
            return ConnectionRefusal { reason, changes: Vec::new() };
        }
        self.finder.set_budget(Some(self.limits.paths.steps));
        let limit = self.broken_limit(request, failed);
        let shortage = self.least_shortage(request, &failed.question);
        let reason = limit.unwrap_or_else(|| self.lack(request, failed, shortage.as_deref()));
        let changes = self.changes(request, own, failed, shortage);
        self.finder.set_budget(None);
        ConnectionRefusal { reason, changes }
    }

    /// Tells whether a request would be admitted if its network had more of some arcs.
    pub fn would_admit(&mut self, request: &ConnectionRequest, bonus: &[ArcShortage]) -> bool {
        self.check(request, None).is_ok() && self.find_flows(request, None, more(bonus)).is_ok()
    }

    /// The reason of a failure, without changes.
    pub(crate) fn reason(
        &mut self,
        request: &ConnectionRequest,
        failed: &FailedFlow,
    ) -> RefusalReason {
        if failed.is_exhausted {
            return self.exhausted(failed.direction);
        }
        self.finder.set_budget(Some(self.limits.paths.steps));
        let reason = self.broken_limit(request, failed).unwrap_or_else(|| {
            let shortage = self.least_shortage(request, &failed.question);
            self.lack(request, failed, shortage.as_deref())
        });
        self.finder.set_budget(None);
        reason
    }

    const fn exhausted(&self, direction: FlowDirection) -> RefusalReason {
        RefusalReason::SearchExhausted { direction, labels: self.limits.paths.labels as u64 }
    }

    /// The limit that no path with room keeps; `None` if each of them is kept by some path with
    /// room, or no path with room was found.
    fn broken_limit(
        &mut self,
        request: &ConnectionRequest,
        failed: &FailedFlow,
    ) -> Option<RefusalReason> {
        let (direction, question) = (failed.direction, &failed.question);
        let free_of_limits = free_of_limits(question);
        let nothing = ExtraRoom::Nothing;
        let fastest = self.best_path(request, &free_of_limits, PathObjective::Delay, nothing);
        let PathOutcome::Found(RoutedPath { delay: least, .. }) = fastest else { return None };
        if least > question.delay {
            return Some(RefusalReason::Delay { direction, limit: question.delay, least });
        }
        let fewest = self.best_path(request, &free_of_limits, PathObjective::Hops, nothing);
        let PathOutcome::Found(RoutedPath { arcs, .. }) = fewest else { return None };
        if arcs.len() as u64 <= u64::from(question.hops) {
            return None;
        }
        let limit = u16::try_from(question.hops).unwrap_or(u16::MAX);
        let least = u16::try_from(arcs.len()).unwrap_or(u16::MAX);
        Some(RefusalReason::Hops { direction, limit, least })
    }

    /// The room that is lacking, given the least shortage of a path within the limits.
    fn lack(
        &mut self,
        request: &ConnectionRequest,
        failed: &FailedFlow,
        shortage: Option<&[ArcShortage]>,
    ) -> RefusalReason {
        let (direction, question) = (failed.direction, &failed.question);
        let fullest = |lacking: &[ArcShortage]| lacking.iter().max_by_key(|of| of.rate).copied();
        // If no path keeps the limits even at rate zero, those that break them are looked at.
        let worst = shortage.and_then(fullest).or_else(|| {
            let lacking = self.least_shortage(request, &free_of_limits(question))?;
            fullest(&lacking)
        });
        let asked = question.rate.reserved.as_bps();
        match worst {
            Some(ArcShortage { arc, rate }) => {
                let free = asked.saturating_sub(rate.as_bps());
                RefusalReason::Bandwidth { direction, asked, free, arc }
            }
            None if self.finder.is_spent() => self.exhausted(direction),
            None => RefusalReason::NoRoute { direction },
        }
    }

    /// The shortages of the path, within the limits, whose fullest arc lacks least.
    fn least_shortage(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
    ) -> Option<Vec<ArcShortage>> {
        let path_at =
            |state: &mut Self, shortage: u64| state.path_with_shortage(request, question, shortage);
        // With a shortage of `high`, nothing is needed of any arc.
        let (mut low, mut high) = (0, question.most_need());
        let mut best = path_at(self, high)?;
        while high - low > 1 && !self.finder.is_spent() {
            let middle = low + (high - low) / 2;
            match path_at(self, middle) {
                Some(path) => {
                    best = path;
                    high = middle;
                }
                None => low = middle,
            }
        }
        let ledger = &self.networks.get(&request.network)?.ledger;
        let lacking = best.arcs.iter().filter_map(|&arc| {
            let need = i128::from(question.need(arc));
            let lack = need - ledger.free(arc, question.window, question.own);
            let rate = BitRate::from_bps(u64::try_from(lack).ok().filter(|lack| *lack > 0)?);
            Some(ArcShortage { arc, rate })
        });
        Some(lacking.collect())
    }

    fn path_with_shortage(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
        shortage: u64,
    ) -> Option<RoutedPath> {
        let known = self.networks.get(&request.network)?;
        let topology = &self.topology;
        let outcome = self.finder.find(question.query(PathObjective::Cost), |arc| {
            if !question.may_pass(topology, arc) || known.ledger.sellable(arc).is_none() {
                return false;
            }
            let need = question.need(arc).saturating_sub(shortage);
            need == 0 || known.ledger.has_free(arc, need, question.window, question.own)
        });
        match outcome {
            PathOutcome::Found(path) => Some(path),
            _ => None,
        }
    }

    fn changes(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        failed: &FailedFlow,
        shortage: Option<Vec<ArcShortage>>,
    ) -> Vec<SmallestChange> {
        let (direction, question) = (failed.direction, &failed.question);
        let mut changes = Vec::new();
        let change = self.lower_rate(request, own);
        changes.extend(self.unless_spent(change));
        let change = self.raise_delay(request, own, direction, question);
        changes.extend(self.unless_spent(change));
        let change = self.raise_hops(request, own, direction, question);
        changes.extend(self.unless_spent(change));
        let enough = |arcs: &Vec<_>| self.find_flows(request, own, more(arcs)).is_ok();
        let arcs = shortage.filter(enough);
        let change = arcs.map(|arcs| SmallestChange::AddShare { direction, arcs });
        changes.extend(self.unless_spent(change));
        changes
    }

    /// A change, if the searches for it were not cut short: else there may be a smaller one.
    fn unless_spent(&self, change: Option<SmallestChange>) -> Option<SmallestChange> {
        change.filter(|_| !self.finder.is_spent())
    }

    /// Lowers the rate of each direction that has no path, forward first, as little as is enough.
    fn lower_rate(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> Option<SmallestChange> {
        let mut lowered = request.clone();
        lowered.rate = ByDirection::default();
        for direction in FlowDirection::BOTH {
            let asked = request.rate_of(direction).as_bps();
            if asked == 0 {
                continue;
            }
            let mut fits = |state: &mut Self, rate: u64| {
                *lowered.rate.of_mut(direction) = RequestedRate(BitRate::from_bps(rate));
                state.find_flows(&lowered, own, SearchTerms::default()).is_ok()
            };
            if fits(self, asked) {
                continue;
            }
            let (mut low, mut high) = (0, asked);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if fits(self, middle) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            if low == 0 || !fits(self, low) {
                return None;
            }
        }
        Some(SmallestChange::LowerRate(lowered.rate))
    }

    fn raise_delay(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        direction: FlowDirection,
        question: &FlowQuestion,
    ) -> Option<SmallestChange> {
        let unlimited = FlowQuestion { delay: u64::MAX, ..question.clone() };
        let nothing = ExtraRoom::Nothing;
        let fastest = self.best_path(request, &unlimited, PathObjective::Delay, nothing);
        let PathOutcome::Found(path) = fastest else { return None };
        let mut raised = request.clone();
        raised.limits.of_mut(direction).delay = Some(Nanos::new(path.delay));
        let admits = path.delay > question.delay
            && self.find_flows(&raised, own, SearchTerms::default()).is_ok();
        admits.then_some(SmallestChange::RaiseDelay { direction, limit: path.delay })
    }

    fn raise_hops(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        direction: FlowDirection,
        question: &FlowQuestion,
    ) -> Option<SmallestChange> {
        let unlimited = FlowQuestion { hops: u32::MAX, ..question.clone() };
        let fewest = self.best_path(request, &unlimited, PathObjective::Hops, ExtraRoom::Nothing);
        let PathOutcome::Found(path) = fewest else { return None };
        let limit = u16::try_from(path.arcs.len()).ok()?;
        let mut raised = request.clone();
        raised.limits.of_mut(direction).hops = Some(limit);
        let admits = u32::from(limit) > question.hops
            && self.find_flows(&raised, own, SearchTerms::default()).is_ok();
        admits.then_some(SmallestChange::RaiseHops { direction, limit })
    }
}

/// The terms of a search with more of some arcs.
fn more(arcs: &[ArcShortage]) -> SearchTerms<'_> {
    SearchTerms { room: ExtraRoom::Shares(arcs), ..SearchTerms::default() }
}

fn free_of_limits(question: &FlowQuestion) -> FlowQuestion {
    FlowQuestion { delay: u64::MAX, hops: u32::MAX, ..question.clone() }
}
