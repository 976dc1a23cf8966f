// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Somebody deletes a route of a tunnel, changes its rate, removes its device: how long until it is
//! back, while lines of others stay.

use std::time::Instant;

use weir_client::Method;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::BrokerLab;
use super::guarantee::connect;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    show_in(rec, BrokerLab::up()?, 1.0)
}

/// Shows that what changes comes back within `back_s` seconds in the median, in a lab that is up,
/// and takes the lab down.
pub(super) fn show_in(rec: &mut Recording<'_>, lab: BrokerLab, back_s: f64) -> Result {
    let broker = lab.broker()?;
    let made = connect(&lab, "20Mbit", 5201)?;
    let number = made["tunnels"][0]["number"].as_u64().unwrap_or_default();
    let (table, device) = (2_000_000 + number, format!("wc{number}"));
    let foreign = "ip -6 route add fd77::/64 dev lo";
    lab.run("b1", Command::line(foreign))?;
    let rounds = if rec.quick { 4 } else { 34 };
    for (id, text, damage, look) in [
        (
            "route",
            "until a deleted route is back",
            format!("ip -6 route flush table {table}"),
            format!("ip -6 route show table {table}"),
        ),
        (
            "rate",
            "until a changed rate is back",
            format!("tc qdisc replace dev {device} root tbf rate 1mbit burst 15000 latency 20ms"),
            format!("tc qdisc show dev {device}"),
        ),
        (
            "device",
            "until a removed device is back with its limiter",
            format!("ip link del {device}"),
            "tc qdisc show".to_owned(),
        ),
        (
            "class",
            "until a changed rate of a link's class is back",
            "tc class change dev b2 parent 57:1 classid 57:10 htb rate 1mbit ceil 2mbit".to_owned(),
            "tc class show dev b2".to_owned(),
        ),
        (
            "filter",
            "until a removed filter of a link is back",
            "tc filter del dev b2 parent 57: protocol ipv6 prio 1 u32".to_owned(),
            "tc filter show dev b2 parent 57:".to_owned(),
        ),
    ] {
        let mut took = Vec::new();
        let sound = lab.run("b1", Command::line(&look))?;
        for round in 0..rounds {
            // Out of step with the comparison of each second.
            clock::sleep(Duration::from_millis(1000 + round * 37 % 1000))?;
            lab.run("b1", Command::line(&damage))?;
            let begun = Instant::now();
            let back = clock::wait_for(BACK_WITHIN, POLL, || {
                let now = lab.run("b1", Command::line(&look));
                Ok(now.is_ok_and(|now| same_lines(&now, &sound)).then_some(()))
            })?;
            took.push(back.map_or(BACK_WITHIN, |()| begun.elapsed()).as_secs_f64());
        }
        let series = Series::unordered("s", took);
        rec.claim_samples(id, text, series, Rule::Median, Bound::at_most(back_s))?;
    }
    let left = lab.run("b1", Command::line("ip -6 route show fd77::/64"))?;
    rec.count("foreign", "foreign routes that stay", left.lines().count() as u64, ONE)?;
    let networks = lab.ask(Method::GET, "/v1/networks", None)?;
    let routers = networks.as_array().into_iter().flatten();
    let routers = routers.filter_map(|of| of["routers"].as_array()).flatten();
    let repaired = routers.filter_map(|of| of["repaired"].as_u64()).sum();
    rec.count("counted", "repairs that the broker counts", repaired, Bound::at_least(1.0))?;
    broker.terminate();
    lab.down()
}

/// Compares what `ip` or `tc` printed, without the numbers that the kernel gives anew.
fn same_lines(now: &str, sound: &str) -> bool {
    let lines = |text: &str| {
        let line = |line: &str| {
            let words = line.split_whitespace();
            words.filter(|word| !word.ends_with(':')).collect::<Vec<_>>().join(" ")
        };
        let mut lines: Vec<_> = text.lines().map(line).collect();
        lines.sort();
        lines
    };
    lines(now) == lines(sound)
}

const BACK_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(20);

const ONE: Bound = Bound::equal(1.0);
