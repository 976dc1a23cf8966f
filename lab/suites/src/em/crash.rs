// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A broker that is killed at random points, and the one after it.
//!
//! While a caller makes, changes and removes connections, the broker gets SIGKILL. Its successor
//! must answer, finish what was under way, keep each connection whose creation was confirmed, and
//! leave on the routers exactly what its list of connections needs. The routers are read from
//! outside.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Client, ClientError, Method};
use weir_experiment::clock;
use weir_experiment::prelude::*;

use super::broker_lab::{BrokerLab, ROUTERS};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    show_in(rec, BrokerLab::up()?)
}

/// Shows it in a lab that is up, and takes the lab down.
pub(super) fn show_in(rec: &mut Recording<'_>, lab: BrokerLab) -> Result {
    let kills = if rec.quick { 8 } else { 200 };
    let (mut lost, mut strays, mut made) = (0, 0, 0);
    let mut settled = Vec::new();
    let mut broker = lab.broker()?;
    for kill in 0..kills {
        // Kills from 0 to 2 s after the caller begins, spread evenly but out of step.
        let after = Duration::from_millis(kill * 787 % 2000);
        let (client, stop) = (lab.client()?, AtomicBool::new(false));
        let mut confirmed = BTreeSet::new();
        std::thread::scope(|scope| -> Result {
            let caller = scope.spawn(|| lab.within(|| call(&client, &stop, &mut confirmed)));
            clock::sleep(after)?;
            broker.kill()?;
            stop.store(true, Ordering::Relaxed);
            made += weir_experiment::joined(caller)?;
            Ok(())
        })?;
        let begun = Instant::now();
        broker = lab.broker()?;
        let all = settle(&lab)?;
        settled.push(begun.elapsed().as_secs_f64());
        let ids: BTreeSet<_> = all.iter().filter_map(|of| of["id"].as_str()).collect();
        lost += confirmed.iter().filter(|id| !ids.contains(id.as_str())).count() as u64;
        strays += differences(&lab, &all)?;
        for connection in &all {
            lab.remove(connection)?;
        }
    }
    let text = "creations confirmed before the kills";
    rec.count("confirmed", text, made, Bound::at_least(float(kills)))?;
    rec.none("lost", "confirmed connections lost", lost)?;
    rec.none("orphans", "routes and entries missing or left on routers", strays)?;
    let series = Series::unordered("s", settled);
    let text = "from the successor's start until nothing is under way";
    rec.claim_samples("settled", text, series, Rule::Max, Bound::at_most(10.0))?;
    broker.terminate();
    lab.down()
}

/// Makes, changes and removes connections until the broker is gone. Keeps in `confirmed` those that
/// must be there, and returns how many creations were confirmed.
pub(super) fn call(client: &Client, stop: &AtomicBool, confirmed: &mut BTreeSet<String>) -> u64 {
    let mut count = 0;
    for number in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let body = json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": "1Mbit", "back_rate": "1Mbit",
            "protocol": "udp", "to_port": 6000 + number % 1000
        });
        let made: Result<Value, _> = client.ask(Method::POST, "/v1/connections", Some(&body));
        let Some(id) = made.ok().and_then(|made| made["id"].as_str().map(str::to_owned)) else {
            // The broker may be gone: this is no race with it.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        count += 1;
        let path = format!("/v1/connections/{id}");
        confirmed.insert(id.clone());
        if number % 3 == 0 {
            let body = json!({ "rate": "2Mbit", "avoid": ["b1-b2"] });
            let _changed: Result<Value, _> = client.ask(Method::PATCH, &path, Some(&body));
        }
        if number % 2 == 0 {
            // Without an answer nobody knows whether it is removed.
            confirmed.remove(&id);
            let _removed: Result<(), _> = client.ask(Method::DELETE, &path, None::<&()>);
        }
    }
    count
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

/// Counts differences between the routers and what the connections need there.
pub(super) fn differences(lab: &BrokerLab, connections: &[Value]) -> Result<u64> {
    // One comparison by the broker passes first: what a killed one had left is removed by it.
    clock::sleep(Duration::from_millis(1500))?;
    let mut differences = 0;
    for router in ROUTERS {
        let (mut routes, mut entries) = (0, 0);
        for tunnel in connections.iter().filter_map(|of| of["tunnels"].as_array()).flatten() {
            let passed = tunnel["routers"].as_array();
            match passed.and_then(|all| all.iter().position(|name| *name == router)) {
                Some(0) => entries += 1,
                Some(_) => routes += 1,
                None => {}
            }
        }
        let (routes_there, entries_there) = lab.tunnels_at(router)?;
        let difference = routes_there.abs_diff(routes) + entries_there.abs_diff(entries);
        differences += difference as u64;
    }
    Ok(differences)
}

const SETTLED_WITHIN: Duration = Duration::from_secs(30);
