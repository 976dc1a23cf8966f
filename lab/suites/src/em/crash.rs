// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A broker that is killed at random points, and the one after it.
//!
//! While a caller makes, changes and removes connections, the broker gets SIGKILL. Its successor
//! must answer, finish what was under way, and keep what was confirmed: a connection that was made
//! is there with the rate that it was last given, one that was removed is gone. Routers must have
//! exactly what its list of connections needs; they are read from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;
use weir_client::{ClientError, Method};
use weir_experiment::clock;
use weir_experiment::prelude::*;

use super::broker_lab::BrokerLab;
use super::told_states::{ToldStates, call};
use super::tunnel_parts::differences;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    show_in(rec, BrokerLab::up()?)
}

/// Shows it in a lab that is up, and takes the lab down.
pub(super) fn show_in(rec: &mut Recording<'_>, lab: BrokerLab) -> Result {
    let kills = if rec.quick { 8 } else { 200 };
    let (mut unkept, mut strays, mut confirmed) = (0, 0, [0; 3]);
    let mut settled = Vec::new();
    let mut broker = lab.broker()?;
    for kill in 0..kills {
        // Kills from 0 to 2 s after the caller begins, spread evenly but out of step.
        let after = Duration::from_millis(kill * 787 % 2000);
        let (client, stop) = (lab.client()?, AtomicBool::new(false));
        let told = std::thread::scope(|scope| -> Result<ToldStates> {
            let caller = scope.spawn(|| lab.within(|| call(&client, &stop, kill)));
            clock::sleep(after)?;
            broker.kill()?;
            stop.store(true, Ordering::Relaxed);
            weir_experiment::joined(caller)
        })?;
        let begun = Instant::now();
        broker = lab.broker()?;
        let all = settle(&lab)?;
        settled.push(begun.elapsed().as_secs_f64());
        unkept += told.unkept(&all);
        confirmed.iter_mut().zip(told.confirmed).for_each(|(sum, count)| *sum += count);
        strays += differences(&lab, &all)?;
        lab.remove_many(&all)?;
    }
    // An emulated kernel confirms fewer.
    claim_kept(rec, "before the kills", (confirmed, kills / 2), [unkept, strays])?;
    let series = Series::unordered("s", settled);
    let text = "from the successor's start until nothing is under way";
    rec.claim_samples("settled", text, series, Rule::Max, Bound::at_most(10.0))?;
    broker.terminate();
    lab.down()
}

/// Claims that what was confirmed is so, that routers have what that needs and nothing else, and
/// that at least so many creations were confirmed.
pub(super) fn claim_kept(
    rec: &mut Recording<'_>,
    what: &str,
    (confirmed, creations): ([u64; 3], u64),
    [unkept, strays]: [u64; 2],
) -> Result {
    // A few creations may have no change or removal among them.
    let few = confirmed[0] / 20;
    for (part, count, least) in [
        ("creations", confirmed[0], creations),
        ("changes", confirmed[1], few),
        ("removals", confirmed[2], few),
    ] {
        let text = format!("{part} confirmed {what}");
        rec.at_least(format!("confirmed/{part}"), text, count, least)?;
    }
    let text = format!("{what}: connections not as confirmed: there with that rate, or gone");
    rec.none("unkept", text, unkept)?;
    let text = format!("{what}: parts of tunnels that routers lack or have too many of");
    rec.none("orphans", text, strays)
}

/// Waits until no connection is under way, and returns all.
pub(super) fn settle(lab: &BrokerLab) -> Result<Vec<Value>> {
    let settled = clock::wait_for(SETTLED_WITHIN, Duration::from_millis(20), || {
        let all = match lab.ask(Method::GET, "/v1/connections", None) {
            Ok(all) => all.as_array().cloned().unwrap_or_default(),
            Err(ClientError::Io { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(all.iter().all(|of| of["state"] == "active").then_some(all))
    })?;
    settled.ok_or_else(|| ExperimentError::Node("connections do not settle".to_owned()))
}

const SETTLED_WITHIN: Duration = Duration::from_secs(30);
