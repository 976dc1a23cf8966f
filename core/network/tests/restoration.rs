// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restoration and pre-emption: nothing is overbooked, and nobody is left without a path for one
//! that matters less.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_network::{
    AdmissionAnswer, ArcId, ConnectionId, ConnectionRequest, ConnectionState, NetworkLimits,
    NetworkState,
};

#[path = "../src/test_network.rs"]
mod test_network;

use test_network::{NETWORK, admit, set_link};

const CAPACITY: u64 = 100;

/// Nodes of a ring, each joined with the next two: four paths and more between any two.
const NODES: u32 = 6;

fn network() -> NetworkState {
    let link = |link: u32| {
        let (a, step) = (link % NODES, 1 + link / NODES);
        (a, (a + step) % NODES, CAPACITY)
    };
    let links: Vec<_> = (0..NODES * 2).map(link).collect();
    test_network::network(&links, |link| 1 + link % 3, NetworkLimits::default())
}

/// A network with these connections as far as they fit, after which links failed.
fn broken(wanted: &[(u32, u32, u64, u8)], failed: &BTreeSet<u32>) -> NetworkState {
    let mut state = network();
    for (id, (from, step, rate, priority)) in (0u16..).zip(wanted) {
        let ends = [*from, (from + step) % NODES];
        admit(&mut state, u64::from(id), request(id + 1, ends, *rate, *priority));
    }
    for link in failed {
        set_link(&mut state, *link, false);
    }
    state
}

fn request(port: u16, ends: [u32; 2], rate: u64, priority: u8) -> ConnectionRequest {
    ConnectionRequest { priority, ..test_network::request(port, ends, rate) }
}

/// Does what a broker does with the outcomes, and returns those without a path. Outcomes are for
/// the connections over what failed and those that are broken, and for no others.
fn restore(state: &mut NetworkState) -> Vec<ConnectionId> {
    let mut needy: BTreeSet<_> = state.broken().into_iter().collect();
    let all = state.connections();
    needy.extend(all.filter(|of| of.state == ConnectionState::Broken).map(|of| of.id));
    let outcomes = state.restore().unwrap();
    assert_eq!(outcomes.iter().map(|of| of.id).collect::<BTreeSet<_>>(), needy);
    let mut left = Vec::new();
    for outcome in outcomes {
        if outcome.answer.is_ok() {
            state.finish_change(outcome.id).unwrap();
            state.set_state(outcome.id, ConnectionState::Active).unwrap();
        } else {
            state.set_state(outcome.id, ConnectionState::Broken).unwrap();
            left.push(outcome.id);
        }
    }
    left
}

/// Goal: of two connections over a failed link, that of the higher priority gets the one path that
/// is left. The other has nothing reserved, and is back when the link is.
#[test]
fn the_more_important_connection_gets_the_path_that_is_left() {
    let mut state = network();
    // From 0 to 1 by their own link, 0.
    assert!(admit(&mut state, 1, request(1, [0, 1], 50, 9)));
    assert!(admit(&mut state, 2, request(2, [0, 1], 50, 0)));
    // One of the other three links at node 0 has room for one of the two.
    for link in [NODES, NODES + 4] {
        set_link(&mut state, link, false);
    }
    assert!(admit(&mut state, 3, request(3, [0, 5], 50, 5)));
    set_link(&mut state, 0, false);
    assert_eq!(restore(&mut state), [ConnectionId(1)]);
    assert!(state.is_suspended(ConnectionId(1)) && !state.is_suspended(ConnectionId(2)));
    // Its packets are still its own.
    assert!(!admit(&mut state, 4, request(1, [0, 1], 1, 0)));
    set_link(&mut state, 0, true);
    assert_eq!(restore(&mut state), []);
    assert!(!state.is_suspended(ConnectionId(1)));
    assert_eq!(state.overcharged(NETWORK), []);
}

/// Goal: a change that is taken back leaves a suspended connection without a charge.
#[test]
fn a_restoration_that_is_taken_back_charges_nothing() {
    let mut state = network();
    assert!(admit(&mut state, 1, request(1, [0, 1], 50, 0)));
    set_link(&mut state, 0, false);
    assert_eq!(state.restore().unwrap().len(), 1);
    state.abort_change(ConnectionId(1)).unwrap();
    let charged = |state: &NetworkState| {
        let used = (0..NODES * 4).filter_map(|arc| state.use_of(NETWORK, ArcId(arc)));
        used.map(|(used, _)| used).sum::<u64>()
    };
    assert_eq!(charged(&state), 0);
    state.release(ConnectionId(1)).unwrap();
    assert_eq!(charged(&state), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Goal: without those that give room the request is admitted, and each of them is less
    /// important. If there are none, nothing would have helped. Asking charges nothing.
    #[test]
    fn pre_emption_makes_room(
        wanted in prop::collection::vec((0..NODES, 1..NODES, 20u64..90, 0u8..4), 10..60),
        new in (0..NODES, 1..NODES, 20u64..90, 0u8..3),
    ) {
        let mut state = network();
        for (id, (from, step, rate, priority)) in (0u16..).zip(&wanted) {
            let ends = [*from, (from + step) % NODES];
            admit(&mut state, u64::from(id), request(id + 1, ends, *rate, *priority));
        }
        let uses = |state: &NetworkState| {
            (0..NODES * 4).map(|arc| state.use_of(NETWORK, ArcId(arc))).collect::<Vec<_>>()
        };
        let before = uses(&state);
        let (from, step, rate, priority) = new;
        let new = request(999, [from, (from + step) % NODES], rate, priority);
        let given = state.preemptable(&new);
        prop_assert_eq!(uses(&state), before);
        let rank = |state: &NetworkState, id| state.connection(id).map(|of| of.request.priority);
        let all = state.connections().map(|of| of.id);
        let less: Vec<_> = all.filter(|id| rank(&state, *id) > Some(priority)).collect();
        let Some(given) = given else {
            for id in less {
                state.release(id).unwrap();
            }
            prop_assert!(matches!(state.admit(&new), AdmissionAnswer::Refused(_)));
            return Ok(());
        };
        prop_assert!(given.iter().all(|id| less.contains(id)));
        if matches!(state.admit(&new), AdmissionAnswer::Admitted(_)) {
            prop_assert_eq!(given, []);
            return Ok(());
        }
        prop_assert!(!given.is_empty());
        for id in &given {
            state.release(*id).unwrap();
        }
        let is_admitted = matches!(state.admit(&new), AdmissionAnswer::Admitted(_));
        prop_assert!(is_admitted);
    }

    /// Goal: turns find what one restoration of all finds. Whoever is yet to be tried has no
    /// charge, and is found by a later restoration even if its link is back.
    #[test]
    fn turns_are_a_restoration(
        wanted in prop::collection::vec((0..NODES, 1..NODES, 5u64..60, 0u8..4), 1..40),
        failed in prop::collection::btree_set(0..NODES * 2, 1..5),
        most in 1usize..5,
    ) {
        let broken = || broken(&wanted, &failed);
        let (mut at_once, mut in_turns) = (broken(), broken());
        let all = at_once.restore().unwrap();
        let (mut tried, mut after) = (Vec::new(), None);
        let mut first = true;
        loop {
            let turn = in_turns.restore_some(after, most).unwrap();
            prop_assert!(turn.outcomes.len() <= most);
            let later: Vec<_> = all[tried.len() + turn.outcomes.len()..].iter().collect();
            prop_assert!(later.iter().all(|of| in_turns.is_suspended(of.id)));
            if first {
                prop_assert!(turn.suspended.iter().eq(later.iter().map(|of| &of.id)));
            } else {
                prop_assert_eq!(turn.suspended, []);
            }
            tried.extend(turn.outcomes);
            (after, first) = (turn.next, false);
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(tried, all);
        let mut begun = broken();
        begun.restore_some(None, most).unwrap();
        for link in &failed {
            set_link(&mut begun, *link, true);
        }
        let left: Vec<_> = begun.connections().map(|of| of.id).collect();
        let left = left.into_iter().filter(|id| begun.is_suspended(*id));
        let left: Vec<_> = left.filter(|id| begun.change_of(*id).is_none()).collect();
        let found: BTreeSet<_> = begun.restore().unwrap().into_iter().map(|of| of.id).collect();
        prop_assert_eq!(found, left.into_iter().collect::<BTreeSet<_>>());
    }

    /// Goal: after failures nothing is overbooked and nobody uses what failed; and whoever has no
    /// path has none even if all that matter less, and were restored, were not there.
    #[test]
    fn nobody_waits_for_one_that_matters_less(
        wanted in prop::collection::vec((0..NODES, 1..NODES, 5u64..60, 0u8..4), 1..40),
        failed in prop::collection::btree_set(0..NODES * 2, 1..5),
    ) {
        let mut state = broken(&wanted, &failed);
        let touched: Vec<_> = state.broken();
        let left = restore(&mut state);
        prop_assert_eq!(state.overcharged(NETWORK), []);
        let still: Vec<_> = state.broken();
        prop_assert!(still.iter().all(|id| left.contains(id)));
        let rank = |state: &NetworkState, id: ConnectionId| {
            state.connection(id).map(|known| (known.request.priority, id))
        };
        for id in &left {
            let mut other = network();
            for link in &failed {
                set_link(&mut other, *link, false);
            }
            let own = rank(&state, *id);
            for known in state.connections() {
                let is_in_the_way = !touched.contains(&known.id) || rank(&state, known.id) < own;
                if is_in_the_way && !left.contains(&known.id) {
                    let (request, flows) = (known.request.clone(), known.flows.clone());
                    other.reserve(known.id, request, flows, ConnectionState::Active).unwrap();
                }
            }
            let request = &state.connection(*id).unwrap().request;
            prop_assert!(matches!(other.admit(request), AdmissionAnswer::Refused(_)));
        }
    }
}
