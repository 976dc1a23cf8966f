// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers have a bound of work, however many connections there are.

use crate::answer::{AdmissionAnswer, RefusalReason};
use crate::ids::ConnectionId;
use crate::lifecycle::ConnectionState;
use crate::state::{NetworkLimits, NetworkState};
use crate::test_network::{admit, network, request, set_link};

/// Does something, and returns its result with the number of search steps that it took.
fn steps<T>(state: &mut NetworkState, of: impl FnOnce(&mut NetworkState) -> T) -> (T, u64) {
    let before = state.finder.steps();
    let done = of(state);
    (done, state.finder.steps() - before)
}

/// Goal: a connection that becomes broken gets a reason, by a few searches for each bit of its
/// rate. One that is broken already costs one search at each try.
#[test]
fn a_broken_connection_costs_one_search_at_each_try() {
    let mut state =
        network(&[(0, 1, 100), (0, 1, 100)], |link| 10 + link, NetworkLimits::default());
    assert!(admit(&mut state, 1, request(1, [0, 1], 60)));
    assert!(admit(&mut state, 2, request(2, [0, 1], 60)));
    set_link(&mut state, 0, false);
    let (outcomes, first) = steps(&mut state, |state| state.restore().unwrap());
    let Err(Some(reason)) = &outcomes[0].answer else { panic!("{outcomes:?}") };
    assert!(matches!(reason, RefusalReason::Bandwidth { free: 40, .. }), "{reason}");
    // 60 is less than 2^6.
    assert!(first <= 40, "{first} steps");
    state.set_state(ConnectionId(1), ConnectionState::Broken).unwrap();
    let (outcomes, again) = steps(&mut state, |state| state.restore().unwrap());
    assert_eq!(outcomes[0].answer, Err(None));
    assert!(again <= 2, "{again} steps");
}

/// Goal: a refusal names changes while its searches keep within their bound of steps, and none
/// after it, so that each is the smallest of its kind; the reason stays.
#[test]
fn an_explanation_has_a_bound() {
    let refused = |budget: u64| {
        let mut limits = NetworkLimits::default();
        limits.paths.steps = budget;
        let mut state = network(&[(0, 1, 100), (1, 2, 100), (0, 2, 50)], |link| 10 + link, limits);
        let (answer, used) = steps(&mut state, |state| state.admit(&request(1, [0, 2], 1_000_000)));
        let AdmissionAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert!(matches!(refusal.reason, RefusalReason::Bandwidth { .. }), "{refusal:?}");
        (refusal.changes, used)
    };
    let (all, whole) = refused(1 << 20);
    assert_eq!(all.len(), 2);
    let (none, _) = refused(whole / 4);
    assert_eq!(none, []);
    for budget in 20..whole {
        let (changes, used) = refused(budget);
        assert!(changes.iter().all(|change| all.contains(change)), "{changes:?}");
        assert!(used < budget + 10, "{used} of {budget} steps");
    }
}

/// Goal: pre-emption makes a few searches for each bit of a priority, however many connections
/// could give room, and ends at its bound of flows.
#[test]
fn pre_emption_has_a_bound() {
    let mut state = network(&[(0, 1, 100_000)], |link| 10 + link, NetworkLimits::default());
    let fill = |state: &mut NetworkState, from: u64, to: u64| {
        for id in from..to {
            let mut request = request(u16::try_from(id).unwrap(), [0, 1], 1);
            request.priority = 5 + u8::try_from(id % 3).unwrap();
            assert!(admit(state, id, request));
        }
    };
    fill(&mut state, 1, 10_001);
    assert!(admit(&mut state, 60_000, request(60_000, [0, 1], 90_000)));
    let wanted = request(65_000, [0, 1], 20);
    let (given, used) = steps(&mut state, |state| state.preemptable(&wanted));
    let given = given.unwrap();
    assert_eq!(given.len(), 20);
    let lasting = given.iter().all(|id| state.connection(*id).unwrap().request.priority == 7);
    assert!(lasting, "{given:?}");
    assert!(used <= 30, "{used} steps");
    // Now more than the bound.
    state.release(ConnectionId(60_000)).unwrap();
    fill(&mut state, 10_001, 50_002);
    assert!(admit(&mut state, 60_000, request(60_000, [0, 1], 49_999)));
    assert_eq!(state.preemptable(&wanted), None);
}
