// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says why a request is refused, and the smallest change that would admit it.
//!
//! A change is found by halving: whether a path exists is monotone in the rate, in a limit and in
//! what is added to a share. Each change is then tried on the whole request, and named only if it
//! admits it.

use weir_units::{BitRate, Nanos};

use crate::admission::{FailedFlow, FlowQuestion};
use crate::answer::{
    AdmissionAnswer, ArcShortage, ConnectionRefusal, RefusalReason, SmallestChange,
};
use crate::connection::{ByDirection, ConnectionRequest, FlowDirection, RequestedRate, RoutedPath};
use crate::ids::{ArcId, ConnectionId};
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
        match self.find_flows(request, own, &[]) {
            Ok(flows) => AdmissionAnswer::Admitted(flows),
            Err(failed) => {
                let reason = self.reason(request, &failed);
                let changes = self.changes(request, own, &failed);
                AdmissionAnswer::Refused(ConnectionRefusal { reason, changes })
            }
        }
    }

    /// Tells whether a request would be admitted if its network had more of some arcs.
    pub fn would_admit(&mut self, request: &ConnectionRequest, bonus: &[ArcShortage]) -> bool {
        self.check(request, None).is_ok() && self.find_flows(request, None, bonus).is_ok()
    }

    pub(crate) fn reason(
        &mut self,
        request: &ConnectionRequest,
        failed: &FailedFlow,
    ) -> RefusalReason {
        let FailedFlow { direction, question, is_exhausted } = failed;
        let direction = *direction;
        if *is_exhausted {
            let labels = self.limits.paths.labels as u64;
            return RefusalReason::SearchExhausted { direction, labels };
        }
        let free_of_limits = FlowQuestion { delay: u64::MAX, hops: u32::MAX, ..question.clone() };
        let fastest = self.best_path(request, &free_of_limits, PathObjective::Delay);
        if let PathOutcome::Found(path) = fastest {
            let least = path.delay;
            if least > question.delay {
                return RefusalReason::Delay { direction, limit: question.delay, least };
            }
            let fewest = self.best_path(request, &free_of_limits, PathObjective::Hops);
            if let PathOutcome::Found(path) = fewest
                && path.arcs.len() as u64 > u64::from(question.hops)
            {
                let limit = u16::try_from(question.hops).unwrap_or(u16::MAX);
                let least = u16::try_from(path.arcs.len()).unwrap_or(u16::MAX);
                return RefusalReason::Hops { direction, limit, least };
            }
        }
        // At rate zero only shares, failures and limits count.
        let widest = self.widest(request, question);
        let widest = widest.or_else(|| self.widest(request, &free_of_limits));
        match widest {
            Some((free, arc)) => {
                let asked = question.rate.reserved.as_bps();
                RefusalReason::Bandwidth { direction, asked, free, arc }
            }
            None => RefusalReason::NoRoute { direction },
        }
    }

    /// The room of the path with the most within the limits, and a fullest arc of it.
    fn widest(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
    ) -> Option<(u64, ArcId)> {
        let lacking = self.least_shortage(request, question)?;
        let worst = lacking.iter().max_by_key(|lack| lack.rate)?;
        let asked = question.rate.reserved.as_bps();
        Some((asked.saturating_sub(worst.rate.as_bps()), worst.arc))
    }

    /// The shortages of the path, within the limits, whose fullest arc lacks least.
    fn least_shortage(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
    ) -> Option<Vec<ArcShortage>> {
        let path_at =
            |state: &mut Self, shortage: u64| state.path_with_shortage(request, question, shortage);
        // A share that was made smaller may lack more than is asked for.
        let (mut low, mut high) = (0, u64::MAX / 4);
        let mut best = path_at(self, high)?;
        while high - low > 1 {
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
    ) -> Vec<SmallestChange> {
        if failed.is_exhausted {
            return Vec::new();
        }
        let (direction, question) = (failed.direction, &failed.question);
        let mut changes = Vec::new();
        changes.extend(self.lower_rate(request, own));
        changes.extend(self.raise_delay(request, own, direction, question));
        changes.extend(self.raise_hops(request, own, direction, question));
        if let Some(arcs) = self.least_shortage(request, question)
            && self.find_flows(request, own, &arcs).is_ok()
        {
            changes.push(SmallestChange::AddShare { direction, arcs });
        }
        changes
    }

    /// Lowers each direction that fails by itself, forward first, as little as is enough.
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
                state.find_flows(&lowered, own, &[]).is_ok()
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
        let fastest = self.best_path(request, &unlimited, PathObjective::Delay);
        let PathOutcome::Found(path) = fastest else { return None };
        let mut raised = request.clone();
        raised.limits.of_mut(direction).delay = Some(Nanos::new(path.delay));
        let admits = path.delay > question.delay && self.find_flows(&raised, own, &[]).is_ok();
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
        let fewest = self.best_path(request, &unlimited, PathObjective::Hops);
        let PathOutcome::Found(path) = fewest else { return None };
        let limit = u16::try_from(path.arcs.len()).ok()?;
        let mut raised = request.clone();
        raised.limits.of_mut(direction).hops = Some(limit);
        let admits = u32::from(limit) > question.hops && self.find_flows(&raised, own, &[]).is_ok();
        admits.then_some(SmallestChange::RaiseHops { direction, limit })
    }
}
