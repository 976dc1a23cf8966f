// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Somebody deletes a route of a tunnel, changes its rate, removes its device or the marks of its
//! packets, or reboots its router: how long until it is back, while lines of others stay; and what
//! the history says.

use std::time::Instant;

use serde_json::Value;
use weir_client::Method;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::BrokerLab;
use super::guarantee::connect;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    show_in(rec, BrokerLab::patient()?, 1.0)
}

/// Shows that what changes comes back within `back_s` seconds in the median, in a lab that is up,
/// and takes the lab down.
pub(super) fn show_in(rec: &mut Recording<'_>, mut lab: BrokerLab, back_s: f64) -> Result {
    let broker = lab.broker()?;
    let made = connect(&lab, "20Mbit", 5201)?;
    let number = made["tunnels"][0]["number"].as_u64().unwrap_or_default();
    let foreign = "ip -6 route add fd77::/64 dev lo";
    lab.run("b1", Command::line(foreign))?;
    let rounds = if rec.quick { 4 } else { 34 };
    for damage in damages(number) {
        let Damage { id, text, line, look } = damage;
        let mut took = Vec::new();
        let sound = lab.run("b1", shell(&look))?;
        for round in 0..rounds {
            // Out of step with the comparison of each second.
            clock::sleep(Duration::from_millis(1000 + round * 37 % 1000))?;
            if line.is_empty() {
                lab.reboot("b1")?;
            } else {
                lab.run("b1", shell(&line))?;
            }
            let begun = Instant::now();
            let back = clock::wait_for(BACK_WITHIN, POLL, || {
                let now = lab.run("b1", shell(&look));
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
    noted(rec, &lab, repaired)?;
    broker.terminate();
    lab.down()
}

/// A thing that somebody does to a router.
struct Damage {
    id: &'static str,
    text: &'static str,
    /// The line that does it; empty for a reboot.
    line: String,
    /// The lines that show whether all is there.
    look: String,
}

/// Returns the damages to the router of a tunnel's entry.
fn damages(number: u64) -> [Damage; 8] {
    let (table, device) = (2_000_000 + number, format!("wc{number}"));
    [
        Damage {
            id: "route",
            text: "until a deleted route is back",
            line: format!("ip -6 route flush table {table}"),
            look: format!("ip -6 route show table {table}"),
        },
        Damage {
            id: "rate",
            text: "until a changed rate is back",
            line: format!(
                "tc qdisc replace dev {device} root tbf rate 1mbit burst 15000 latency 20ms"
            ),
            look: format!("tc qdisc show dev {device}"),
        },
        Damage {
            id: "device",
            text: "until a removed device is back with its limiter",
            line: format!("ip link del {device}"),
            look: "tc qdisc show".to_owned(),
        },
        Damage {
            id: "class",
            text: "until a changed rate of a link's class is back",
            line: "tc class change dev b2 parent 57:1 classid 57:10 htb rate 1mbit ceil 2mbit"
                .to_owned(),
            look: "tc class show dev b2".to_owned(),
        },
        Damage {
            id: "filter",
            text: "until a removed filter of a link is back",
            line: "tc filter del dev b2 parent 57: protocol ipv6 prio 1 u32".to_owned(),
            look: "tc filter show dev b2 parent 57:".to_owned(),
        },
        Damage {
            id: "marks",
            text: "until the marks of packets are back after all of nftables was flushed",
            line: "nft flush ruleset".to_owned(),
            look: "nft list ruleset".to_owned(),
        },
        Damage {
            id: "rules",
            text: "until the rules of marks are back, and a foreign rule of nftables is gone",
            line: "ip -6 rule del pref 30001; ip -6 rule del pref 30200; \
                   nft insert rule ip6 weir_tunnels tunnels accept"
                .to_owned(),
            look: "ip -6 rule; nft list ruleset".to_owned(),
        },
        Damage {
            id: "reboot",
            text: "until a router that was rebooted has all again, from its server's start",
            line: String::new(),
            look: format!(
                "tc qdisc show dev {device}; ip -6 rule; ip -6 route show table {table}; \
                 nft list ruleset"
            ),
        },
    ]
}

/// Claims that the history names the router, and what was damaged.
fn noted(rec: &mut Recording<'_>, lab: &BrokerLab, repaired: u64) -> Result {
    let of_router = |of: &Value| of["change"] == "repaired" && of["router"] == "b1";
    // A page of the history has 200 entries.
    let most = repaired.min(150);
    let noted = || -> Result<Vec<Value>> {
        let history = lab.ask(Method::GET, "/v1/history?network=blue", None)?;
        Ok(history.as_array().into_iter().flatten().filter(|of| of_router(of)).cloned().collect())
    };
    // The last one is stored after the router has all again.
    clock::wait_for(BACK_WITHIN, POLL, || Ok((noted()?.len() as u64 >= most).then_some(())))?;
    let noted = noted()?;
    let text = "repairs in the history that name the router";
    rec.count("noted", text, noted.len() as u64, Bound::at_least(float(most)))?;
    let names = |of: &&Value| of["detail"].as_str().is_some_and(|text| text.contains("entry/"));
    let named = noted.iter().filter(names).count() as u64;
    rec.count("named", "of those, which name the tunnel's entry", named, Bound::at_least(3.0))
}

fn shell(line: &str) -> Command {
    Command::new("sh", ["-c", line])
}

/// Compares what `ip`, `tc` or `nft` printed, without the numbers that the kernel gives anew.
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
