// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are to share no link with another, so that no failure ends both.
//!
//! Only one of the two names the other, but both must keep to it: if the named one moves, it keeps
//! off the links of those that name it. An index tells which these are. Links that both have
//! already do not count, or else not even the rate of the named one could be changed. After a
//! failure, the named one may share links if it has no other path.
//!
//! A connection may end while others name it. Their limit then has no effect.

use crate::answer::RefusalReason;
use crate::connection::{AdmittedFlow, ConnectionRequest, FlowDirection};
use crate::ids::{ConnectionId, LinkId};
use crate::state::{AdmittedFlows, KnownConnection, NetworkState};

/// The connections that a request names, by direction.
fn named(request: &ConnectionRequest) -> impl Iterator<Item = (FlowDirection, ConnectionId)> {
    let of = |direction| Some((direction, request.limits.of(direction).disjoint_from?));
    FlowDirection::BOTH.into_iter().filter_map(of)
}

/// The requests of a connection: the present one, and that of its change.
fn requests(known: &KnownConnection) -> impl Iterator<Item = &ConnectionRequest> {
    let next = known.next.as_ref().map(|(request, _)| request);
    core::iter::once(&known.connection.request).chain(next)
}

impl NetworkState {
    /// Notes that links fail together, since they lie over one physical link: paths that are to be
    /// disjoint share none of them. A link is in at most one such group.
    pub fn add_shared_risk_group(&mut self, links: &[LinkId]) {
        self.shared_risk.extend(links.iter().map(|link| (*link, links.to_vec())));
    }

    /// Checks that the connections that a request names are in its network. A named connection that
    /// is gone is ignored if the request changes a connection that named it already.
    pub(crate) fn check_disjoint(
        &self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> Result<(), RefusalReason> {
        let old = own.and_then(|id| self.connection(id)).map(|old| &old.request);
        for (direction, other) in named(request) {
            let Some(known) = self.connection(other) else {
                let had = old.and_then(|old| old.limits.of(direction).disjoint_from);
                if had == Some(other) {
                    continue;
                }
                return Err(RefusalReason::UnknownConnection(other));
            };
            if known.request.network != request.network {
                return Err(RefusalReason::ForeignConnection(other));
            }
        }
        Ok(())
    }

    /// Enters a connection into the index of those that name others.
    pub(crate) fn note_named(&mut self, id: ConnectionId) {
        let Some(known) = self.connections.get(&id) else { return };
        for (_, other) in requests(known).flat_map(named) {
            self.named_by.insert((other, id));
        }
    }

    /// Takes a connection out of the index of those that name others.
    pub(crate) fn forget_named(&mut self, id: ConnectionId) {
        let Some(known) = self.connections.get(&id) else { return };
        for (_, other) in requests(known).flat_map(named) {
            self.named_by.remove(&(other, id));
        }
    }

    /// The connections that name another.
    fn naming(&self, id: ConnectionId) -> impl Iterator<Item = &KnownConnection> {
        let range = (id, ConnectionId(u64::MIN))..=(id, ConnectionId(u64::MAX));
        self.named_by.range(range).filter_map(|(_, by)| self.connections.get(by))
    }

    /// Tells whether a connection is to be disjoint from another, or another from it.
    pub(crate) fn is_tied(&self, known: &KnownConnection) -> bool {
        let names = requests(known).flat_map(named).next().is_some();
        names || self.naming(known.connection.id).next().is_some()
    }

    /// Links of connections that name this one, for a path of it to keep off.
    pub(crate) fn links_to_leave(&self, own: Option<ConnectionId>) -> Vec<LinkId> {
        let Some(own) = own else { return Vec::new() };
        let mut links = Vec::new();
        for other in self.naming(own) {
            let present = (!other.is_suspended).then_some(&other.connection);
            let present = present.map(|of| (&of.request, &of.flows));
            let next = other.next.as_ref().map(|(request, flows)| (request, flows));
            for (request, flows) in present.into_iter().chain(next) {
                for (direction, _) in named(request).filter(|(_, named)| *named == own) {
                    links.extend(self.links_of(flows.of(direction).iter()));
                }
            }
        }
        if let Some(known) = self.connections.get(&own).filter(|known| !known.is_suspended) {
            let shared = self.links_of_all(&known.connection.flows);
            links.retain(|link| !shared.contains(link));
        }
        links
    }

    /// Tells whether a connection's next path shares a link with one that names it.
    pub(crate) fn joins_others(&self, id: ConnectionId, flows: &AdmittedFlows) -> bool {
        let links = self.links_to_leave(Some(id));
        !links.is_empty() && self.links_of_all(flows).iter().any(|link| links.contains(link))
    }

    /// The links of both directions, with those that fail with them.
    pub(crate) fn links_of_all(&self, flows: &AdmittedFlows) -> Vec<LinkId> {
        self.links_of(flows.present().map(|(_, flow)| flow))
    }

    fn links_of<'a>(&self, flows: impl Iterator<Item = &'a AdmittedFlow>) -> Vec<LinkId> {
        let arcs = flows.flat_map(|flow| &flow.path.arcs);
        let links = arcs.filter_map(|arc| self.topology.arc(*arc)).map(|arc| arc.link);
        links.flat_map(|link| self.sharing_risk(link).chain([link])).collect()
    }

    /// The links that fail with a link, as far as that was noted.
    fn sharing_risk(&self, link: LinkId) -> impl Iterator<Item = LinkId> {
        self.shared_risk.get(&link).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::AdmissionAnswer;
    use crate::ids::ArcId;
    use crate::lifecycle::ConnectionState;
    use crate::state::NetworkLimits;
    use crate::test_network::{admit, network, request, set_link};

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    /// Two nodes with four links; A is on link 0, and B, to be disjoint from it, on link 1.
    fn pair() -> NetworkState {
        let mut state = network(&[(0, 1, 100); 4], |link| 10 + link, NetworkLimits::default());
        assert!(admit(&mut state, A.0, request(1, [0, 1], 10)));
        let mut disjoint = request(2, [0, 1], 10);
        disjoint.limits.forward.disjoint_from = Some(A);
        assert!(admit(&mut state, B.0, disjoint));
        assert_eq!([A, B].map(|id| link(&state, id)), [0, 1]);
        state
    }

    fn link(state: &NetworkState, id: ConnectionId) -> u32 {
        let flow = state.connection(id).unwrap().flows.forward.as_ref().unwrap();
        let [ArcId(arc)] = flow.path.arcs[..] else { panic!("{flow:?}") };
        arc / 2
    }

    fn restore(state: &mut NetworkState) -> bool {
        let outcomes = state.restore().unwrap();
        assert_eq!((outcomes.len(), &outcomes[0].answer), (1, &Ok(())));
        state.finish_change(outcomes[0].id).unwrap();
        state.set_state(outcomes[0].id, ConnectionState::Active).unwrap();
        outcomes[0].joins_others
    }

    /// Goal: a connection that another is to be disjoint from keeps off its links when it is
    /// changed or restored, and shares them only after a failure that leaves it no other path.
    #[test]
    fn the_one_that_is_named_keeps_off() {
        let mut state = pair();
        let mut changed = request(1, [0, 1], 10);
        changed.limits.forward.avoid_links = vec![LinkId(0)];
        let answer = state.admit_change(A, &changed);
        let AdmissionAnswer::Admitted(flows) = answer else { panic!("{answer:?}") };
        assert_eq!(flows.forward.unwrap().path.arcs, [ArcId(4)]);
        set_link(&mut state, 0, false);
        assert!(!restore(&mut state));
        assert_eq!(link(&state, A), 2);
        set_link(&mut state, 2, false);
        set_link(&mut state, 3, false);
        assert!(restore(&mut state));
        assert_eq!(link(&state, A), 1);
        // A link that it shares already does not bar other changes.
        let faster = state.admit_change(A, &request(1, [0, 1], 20));
        assert!(matches!(faster, AdmissionAnswer::Admitted(_)), "{faster:?}");
        // With the other gone, nothing is left to keep off.
        state.release(B).unwrap();
        assert!(state.named_by.is_empty());
    }

    /// Goal: a connection that is to be disjoint from one that is gone can be changed, and a new
    /// one that names it is refused.
    #[test]
    fn one_that_is_gone_bars_no_change() {
        let mut state = pair();
        state.release(A).unwrap();
        let mut faster = state.connection(B).unwrap().request.clone();
        faster.rate = request(2, [0, 1], 20).rate;
        let answer = state.admit_change(B, &faster);
        let AdmissionAnswer::Admitted(flows) = answer else { panic!("{answer:?}") };
        state.begin_change(B, faster.clone(), flows).unwrap();
        state.finish_change(B).unwrap();
        faster.selector = request(3, [0, 1], 20).selector;
        let AdmissionAnswer::Refused(refusal) = state.admit(&faster) else {
            panic!("it names one that is gone");
        };
        assert_eq!(refusal.reason, RefusalReason::UnknownConnection(A));
    }
}
