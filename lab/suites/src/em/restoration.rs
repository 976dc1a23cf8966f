// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections whose path fails, on the wire: 200 leave a link that lost its carrier, by priority
//! where not all fit, and come back; likewise with a link that is set down and with a router that
//! does not answer. Before that, a request finds room after another connection was moved.
//!
//! The time is from the failure until the broker's list has all of them on another path, read back
//! from the routers. The routers are compared from outside.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, connection_path};
use super::guarantee::{LabPath, iperf};
use super::tunnel_parts::differences;

/// Shows the part of row 9 on the wire.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    // First: what is not in a tunnel, as the receiver's control connection, loses its routes with
    // a link.
    rearranged(&lab, rec)?;
    let count: u64 = if rec.quick { 40 } else { 200 };
    make(&lab, count)?;
    let near = near_router(&lab)?;
    let far = if near == "b2" { "b3" } else { "b2" };
    // All fit on the other path.
    set_carrier(&lab, near, "down")?;
    let took = wait_for(&lab, |all| active_by(all, far) == count)?;
    let series = Series::unordered("s", vec![took]);
    let text = format!("until {count} connections have left a link without a carrier");
    rec.claim_samples("moved", text, series, Rule::Max, Bound::at_most(3.0))?;
    let all = connections(&lab)?;
    rec.none("moved/strays", "differences of the routers then", differences(&lab, &all)?)?;
    set_carrier(&lab, near, "up")?;
    some_fit(&lab, rec, [near, far], count)?;
    set_down(&lab, rec, [near, far])?;
    silent(&lab, rec, [near, far])?;
    for connection in connections(&lab)? {
        lab.remove(&connection)?;
    }
    broker.terminate();
    lab.down()
}

/// Shows that the most important connections get the rest of a path of which most is reserved.
fn some_fit(
    lab: &BrokerLab,
    rec: &mut Recording<'_>,
    [near, far]: [&str; 2],
    count: u64,
) -> Result {
    let filler = json!({
        "network": "blue", "from": "bh1", "to": "bh2", "rate": "45Mbit", "protocol": "udp",
        "to_port": 5000, "avoid": [format!("b1-{far}")]
    });
    in_service(lab, near)?;
    let _filler: Value = lab.ask(Method::POST, "/v1/connections", Some(&filler))?;
    set_carrier(lab, far, "down")?;
    let settled = |all: &[Value]| {
        let [active, broken] = ["active", "broken"].map(|state| with_state(all, state));
        broken > 0 && active + broken == all.len() as u64
    };
    wait_for(lab, settled)?;
    let all = connections(lab)?;
    let rank = |of: &Value| of["request"]["priority"].as_u64().unwrap_or_default();
    let of_state = |state: &'static str| all.iter().filter(move |of| of["state"] == state);
    let most_kept = of_state("active").map(rank).max().unwrap_or_default();
    let least_lost = of_state("broken").map(rank).min().unwrap_or_default();
    let inverted = of_state("broken").filter(|of| rank(of) < most_kept).count() as u64;
    let lost = with_state(&all, "broken");
    rec.say(&format!(
        "{lost} of {count} do not fit: priorities to {most_kept} have a path, from {least_lost} on \
         not: {}",
        of_state("broken").next().map_or("", |of| of["refusal"].as_str().unwrap_or_default())
    ));
    rec.at_least("some-fit/lost", "connections that do not fit on the other path", lost, 1)?;
    rec.none("some-fit/inverted", "of these, more important than one with a path", inverted)?;
    let silent = of_state("broken").filter(|of| !of["refusal"].is_string()).count() as u64;
    rec.none("some-fit/silent", "of these, without a reason", silent)?;
    rec.none("some-fit/strays", "differences of the routers then", differences(lab, &all)?)?;
    set_carrier(lab, far, "up")?;
    let took = wait_for(lab, |all| with_state(all, "active") == all.len() as u64)?;
    let series = Series::unordered("s", vec![took]);
    let text = "until all have a path again, from the link's return";
    rec.claim_samples("some-fit/back", text, series, Rule::Max, Bound::at_most(3.0))?;
    let all = connections(lab)?;
    rec.none("some-fit/strays-after", "differences of the routers then", differences(lab, &all)?)
}

/// Shows that connections leave a link that is set down, though packets could pass it.
fn set_down(lab: &BrokerLab, rec: &mut Recording<'_>, [near, far]: [&str; 2]) -> Result {
    // Without the filler all fit on either path.
    for connection in connections(lab)? {
        if connection["request"]["rate"] == "45Mbit" {
            lab.remove(&connection)?;
        }
    }
    for (down, up) in [(far, near), (near, far)] {
        let path = format!("/v1/networks/blue/links/b1-{down}");
        let body = json!({ "up": false });
        patch(lab, &path, &body)?;
        let took = wait_for(lab, |all| active_by(all, up) == all.len() as u64)?;
        let series = Series::unordered("s", vec![took]);
        let text = "until all have left a link that was set down";
        let id = format!("set-down/{down}");
        rec.claim_samples(id, text, series, Rule::Max, Bound::at_most(3.0))?;
        patch(lab, &path, &json!({ "up": true }))?;
    }
    Ok(())
}

/// Shows that connections leave a router between the edges that no longer answers.
fn silent(lab: &BrokerLab, rec: &mut Recording<'_>, [near, far]: [&str; 2]) -> Result {
    lab.run(far, Command::line("ip link set mg down"))?;
    let took = wait_for(lab, |all| active_by(all, near) == all.len() as u64)?;
    let series = Series::unordered("s", vec![took]);
    // A second without an answer, and an exchange that waits 10 s for one.
    let text = "until all have left a router that does not answer";
    rec.claim_samples("silent", text, series, Rule::Max, Bound::at_most(30.0))?;
    lab.run(far, Command::line("ip link set mg up"))?;
    // Link-local addresses went with the device.
    lab.run(far, Command::line("ip -6 addr replace fe80::2/64 dev mg nodad"))?;
    let address = format!("fd1f:{}::2/64", far.trim_start_matches('b'));
    lab.run(far, Command::line(&format!("ip -6 addr replace {address} dev mg nodad")))?;
    in_service(lab, far)?;
    let all = connections(lab)?;
    rec.none("silent/strays", "differences of the routers then", differences(lab, &all)?)
}

/// Shows that a request finds room after another connection was moved, which loses no packet.
fn rearranged(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let ask = |rate: &str, port: u16, avoid: &[&str]| {
        let body = json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": rate, "protocol": "udp",
            "to_port": port, "avoid": avoid
        });
        lab.ask(Method::POST, "/v1/connections", Some(&body))
    };
    let mut all = vec![ask("45Mbit", 5001, &["b1-b3"])?, ask("55Mbit", 5002, &["b1-b2"])?];
    let small = ask("25Mbit", 5201, &[])?;
    let before = small["tunnels"][0]["links"].clone();
    let path = LabPath { from: "bh1", to: "bh2", address: "fd10:2::2", port: 5201 };
    let (found, made) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| iperf(lab, path, "20M", 4));
        let made = clock::sleep(Duration::from_secs(2));
        let made = made.and_then(|()| Ok(ask("38Mbit", 5003, &[])?));
        (weir_experiment::joined(sender), made)
    });
    let found = found?;
    let admitted = u64::from(made.is_ok());
    rec.count("rearranged/admitted", "requests admitted after a move", admitted, ONE)?;
    all.extend(made);
    let now: Value = lab.ask(Method::GET, &connection_path(&small), None)?;
    let moved = u64::from(now["tunnels"][0]["links"] != before);
    rec.count("rearranged/moved", "connections moved for it", moved, ONE)?;
    let sum = &found["end"]["sum"];
    let lost = sum["lost_packets"].as_i64().ok_or_else(|| {
        ExperimentError::Node(format!("iperf3 does not say what was lost: {found:.400}"))
    })?;
    rec.say(&format!("the connection that was moved: {sum}"));
    // A packet that arrives twice, or after its successors, counts as less than none.
    let lost = lost.unsigned_abs();
    rec.none("rearranged/lost", "packets that the moved one lost", lost)?;
    all.push(small);
    all.iter().try_for_each(|connection| lab.remove(connection))
}

/// Asks for connections that together take two thirds of a path, of four priorities.
fn make(lab: &BrokerLab, count: u64) -> Result {
    let rate = format!("{}kbit", 60_000 / count);
    let request = |number: u64| {
        json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": rate, "protocol": "udp",
            "to_port": 6000 + number, "priority": number % 4
        })
    };
    lab.connect_many(&(0..count).map(request).collect::<Vec<_>>()).map(drop)
}

/// Returns the router between the edges that all connections pass.
fn near_router(lab: &BrokerLab) -> Result<&'static str> {
    let all = connections(lab)?;
    let by: BTreeMap<_, _> = ["b2", "b3"].map(|router| (router, active_by(&all, router))).into();
    let all = all.len() as u64;
    let near = by.iter().find(|(_, count)| **count == all).map(|(router, _)| *router);
    near.ok_or_else(|| ExperimentError::Node(format!("connections are on two paths: {by:?}")))
}

fn patch(lab: &BrokerLab, path: &str, body: &Value) -> Result {
    let client = lab.client()?;
    Ok(lab.within(|| client.ask::<()>(Method::PATCH, path, Some(body)))??)
}

fn connections(lab: &BrokerLab) -> Result<Vec<Value>> {
    let all: Value = lab.ask(Method::GET, "/v1/connections", None)?;
    Ok(all.as_array().cloned().unwrap_or_default())
}

/// Counts active connections by way of a router.
fn active_by(all: &[Value], router: &str) -> u64 {
    let active = all.iter().filter(|of| of["state"] == "active");
    let by = active.filter(|of| {
        let passed = of["tunnels"][0]["routers"].as_array();
        passed.is_some_and(|routers| routers.iter().any(|name| name == router))
    });
    by.count() as u64
}

fn with_state(all: &[Value], state: &str) -> u64 {
    all.iter().filter(|of| of["state"] == state).count() as u64
}

/// Waits until no link at a router has a fault.
fn in_service(lab: &BrokerLab, router: &str) -> Result {
    let is = clock::wait_for(WITHIN, POLL, || {
        let networks = lab.ask(Method::GET, "/v1/networks", None)?;
        Ok(has_no_fault(&networks, router).then_some(()))
    })?;
    is.ok_or_else(|| ExperimentError::Node(format!("links of {router} do not come back")))
}

fn has_no_fault(networks: &Value, router: &str) -> bool {
    let links = networks.as_array().into_iter().flatten();
    let links = links.filter_map(|of| of["links"].as_array()).flatten();
    let mut at = links.filter(|link| link["from"] == router || link["to"] == router);
    at.all(|link| link["fault"].is_null())
}

fn set_carrier(lab: &BrokerLab, router: &str, to: &str) -> Result {
    lab.run("b1", Command::line(&format!("ip link set {router} {to}")))?;
    if to == "up" {
        // Addresses go with the device.
        let number = router.trim_start_matches('b');
        for address in [format!("fd10:1{number}::1/64"), "fe80::1/64".to_owned()] {
            let line = format!("ip -6 addr replace {address} dev {router} nodad");
            lab.run("b1", Command::line(&line))?;
        }
    }
    Ok(())
}

/// Waits until the connections are as wanted. Returns the seconds.
fn wait_for(lab: &BrokerLab, wanted: impl Fn(&[Value]) -> bool) -> Result<f64> {
    let begun = Instant::now();
    let is = clock::wait_for(WITHIN, POLL, || Ok(wanted(&connections(lab)?).then_some(())))?;
    is.ok_or_else(|| ExperimentError::Node("connections do not become as wanted".to_owned()))?;
    Ok(begun.elapsed().as_secs_f64())
}

const WITHIN: Duration = Duration::from_secs(60);

/// The list of 200 connections takes the broker some milliseconds.
const POLL: Duration = Duration::from_millis(50);

const ONE: Bound = Bound::equal(1.0);
