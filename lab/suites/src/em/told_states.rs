// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A caller that makes, changes and removes connections while something fails, and what it was told
//! of each: whether a connection is there, and at which rate.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_sim::Seed;

/// Makes, changes and removes connections until it is to stop, in an order drawn from `seed`.
pub(super) fn call(client: &Client, stop: &AtomicBool, seed: u64) -> ToldStates {
    let (mut told, mut draw) = (ToldStates::default(), Seed::new(seed));
    for number in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let made = told.make(client, 6000 + number % 1000);
        if draw.one_in(3) {
            told.change(client, &mut draw);
        }
        if draw.one_in(2) {
            told.remove(client, &mut draw);
        }
        if !made {
            // The broker may be gone: this is no race with it.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    told
}

/// Answers that a caller got about its connections.
#[derive(Debug, Default)]
pub(super) struct ToldStates {
    /// By connection, each state that it may have: its rate in bits a second, or none if it is
    /// gone. There are several while a request has no answer, since nobody knows its outcome then.
    may_be: BTreeMap<String, Vec<Option<u64>>>,
    /// Creations, changes and removals that were confirmed.
    pub(super) confirmed: [u64; 3],
}

impl ToldStates {
    /// Counts connections that have no state which they may have.
    pub(super) fn unkept(&self, connections: &[Value]) -> u64 {
        let rate = |of: &Value| {
            Some((of["id"].as_str()?.to_owned(), of["tunnels"][0]["rate_bps"].as_u64()?))
        };
        let rates: BTreeMap<_, _> = connections.iter().filter_map(rate).collect();
        let is_unkept = |(id, may_be): &(&String, &Vec<Option<u64>>)| {
            let is = rates.get(*id).copied();
            let is_kept = may_be.contains(&is);
            if !is_kept {
                eprintln!("{id}: {is:?} and not one of {may_be:?}");
            }
            !is_kept
        };
        self.may_be.iter().filter(is_unkept).count() as u64
    }

    /// Makes a connection of 1 Mbit/s each way. Returns true if that was confirmed.
    fn make(&mut self, client: &Client, port: u32) -> bool {
        let body = json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": "1Mbit", "back_rate": "1Mbit",
            "protocol": "udp", "to_port": port
        });
        let made: Result<Value, _> = client.ask(Method::POST, "/v1/connections", Some(&body));
        let Some(id) = made.ok().and_then(|made| made["id"].as_str().map(str::to_owned)) else {
            return false;
        };
        self.confirmed[0] += 1;
        self.may_be.insert(id, vec![Some(MBIT)]);
        true
    }

    /// Gives one another rate, and in two of three cases another path.
    fn change(&mut self, client: &Client, draw: &mut Seed) {
        let mbits = draw.between(1, 3);
        let mut body = json!({ "rate": format!("{mbits}Mbit") });
        if let Some(Some(link)) = one_of(draw, &[None, Some("b1-b2"), Some("b1-b3")]) {
            body["avoid"] = json!([link]);
        }
        self.ask(draw, Some(mbits * MBIT), |path| {
            client.ask::<Value>(Method::PATCH, path, Some(&body)).is_ok()
        });
    }

    /// Removes one.
    fn remove(&mut self, client: &Client, draw: &mut Seed) {
        self.ask(draw, None, |path| client.ask::<()>(Method::DELETE, path, None::<&()>).is_ok());
    }

    /// Asks for a new state of a connection that is certainly there.
    fn ask(&mut self, draw: &mut Seed, state: Option<u64>, ask: impl FnOnce(&str) -> bool) {
        let there: Vec<_> = self.may_be.iter().filter(|(_, of)| !of.contains(&None)).collect();
        let Some((id, _)) = one_of(draw, &there) else { return };
        let id = (*id).clone();
        let is_confirmed = ask(&format!("/v1/connections/{id}"));
        let may_be = self.may_be.entry(id).or_default();
        if is_confirmed {
            may_be.clear();
            self.confirmed[if state.is_some() { 1 } else { 2 }] += 1;
        }
        may_be.push(state);
    }
}

/// Draws one of some values; none of none.
fn one_of<'v, T>(draw: &mut Seed, values: &'v [T]) -> Option<&'v T> {
    let last = values.len().checked_sub(1)?;
    values.get(usize::try_from(draw.between(0, last as u64)).ok()?)
}

const MBIT: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a connection that lost its confirmed rate, or is there again after a confirmed
    /// removal, is found as one that is lost; a request without an answer may have either outcome.
    #[test]
    fn what_was_confirmed_is_to_be_so() {
        let list = |all: &[(&str, u64)]| -> Vec<Value> {
            let view =
                |(id, rate): &(&str, u64)| json!({"id": id, "tunnels": [{"rate_bps": rate}]});
            all.iter().map(view).collect()
        };
        let mut told = ToldStates::default();
        let mut expect = |id: &str, may_be: &[Option<u64>]| {
            told.may_be.insert(id.to_owned(), may_be.to_vec());
        };
        expect("made", &[Some(1)]);
        expect("changed", &[Some(2)]);
        expect("removed", &[None]);
        expect("changing", &[Some(1), Some(2)]);
        expect("removing", &[Some(1), None]);
        let kept = [("made", 1), ("changed", 2), ("changing", 1), ("removing", 1), ("other", 9)];
        assert_eq!(told.unkept(&list(&kept)), 0);
        assert_eq!(told.unkept(&list(&[("made", 1), ("changed", 2), ("changing", 2)])), 0);
        let back = [("made", 1), ("changed", 1), ("removed", 1), ("changing", 3)];
        assert_eq!(told.unkept(&list(&back)), 3);
        assert_eq!(told.unkept(&[]), 3);
    }

    /// Goal: an answer replaces what a connection may be, and without one both are possible.
    #[test]
    fn without_an_answer_both_states_are_possible() {
        let (mut told, mut draw) = (ToldStates::default(), Seed::new(1));
        told.may_be.insert("c1".to_owned(), vec![Some(1)]);
        told.ask(&mut draw, Some(2), |_| false);
        assert_eq!(told.may_be["c1"], [Some(1), Some(2)]);
        told.ask(&mut draw, Some(3), |_| true);
        assert_eq!(told.may_be["c1"], [Some(3)]);
        told.ask(&mut draw, None, |_| true);
        assert_eq!((told.may_be["c1"].as_slice(), told.confirmed), ([None].as_slice(), [0, 1, 1]));
        // It is not asked about again.
        told.ask(&mut draw, Some(4), |_| true);
        assert_eq!(told.may_be["c1"], [None]);
    }
}
