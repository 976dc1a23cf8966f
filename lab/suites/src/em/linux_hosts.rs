// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two networks on one physical link between hosts without Weir: VLANs, bridges and classes of
//! their kernels, which the broker keeps over SSH. It runs on an emulated machine, so on a link of
//! 10 Mbit/s, and for function.

use std::time::Instant;

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_experiment::{TrafficFlows, clock};
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, connection_path, parsed};
use super::comparison;
use super::shared_lab::SharedLab;
use super::sharing::within_share;
use super::sharing::{RED, connection_of_red, crossing, flood, floods, from_root, sockets};

/// Shows it, or says what this kernel lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let Some(shared) = SharedLab::on_linux_hosts()? else {
        comparison::skipped(rec, "shares at hosts without Weir", "no 8021q or no flower here");
        return Ok(());
    };
    let broker = shared.lab.broker()?;
    rec.within("share/", |rec| floods(&shared.lab, UNIT, rec))?;
    rec.within("crossing/", crossing)?;
    rec.within("host/", |rec| host(&shared.lab, rec))?;
    rec.within("refused/", |rec| refused(&shared.lab, rec))?;
    rec.within("change/", |rec| change(&shared.lab, rec))?;
    rec.within("drift/", |rec| drift(&shared.lab, rec))?;
    broker.kill()?;
    rec.within("successor/", |rec| successor(&shared.lab, rec))?;
    shared.down()
}

/// Root in blue asks for the host itself on its bridge: the host does not answer, and has no
/// address there.
fn host(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    lab.run("n1", Command::line("ip addr add 192.0.2.1/32 dev lo"))?;
    lab.run("b1", Command::line("ip addr add 192.0.2.2/24 dev b2"))?;
    // It fails: the host has no way back. It is asked for its link address first.
    let _lost = lab.run("b1", Command::line("ping -c 2 -W 1 192.0.2.1"));
    let known = lab.run("b1", Command::line("ip neigh show 192.0.2.1 dev b2"))?;
    let answers = u64::from(known.contains("lladdr"));
    rec.none("answers", "answers of the host to root in blue", answers)?;
    let addresses = lab.run("n1", Command::line("ip -o addr show"))?;
    let own = addresses.lines().filter(|line| line.contains(" wb") || line.contains(" wv"));
    rec.none("addresses", "addresses of the host in networks", own.count() as u64)?;
    lab.run("b1", Command::line("ip addr del 192.0.2.2/24 dev b2"))?;
    lab.run("n1", Command::line("ip addr del 192.0.2.1/32 dev lo")).map(drop)
}

/// A vif that the host does not let join stops nobody else, and no tree is made again for it.
fn refused(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    settle(lab)?;
    let before = sent_bytes(lab)?;
    // A bridge cannot be in a bridge.
    for line in ["ip link set b1 down", "ip link set b1 name b1-away", "ip link add b1 type bridge"]
    {
        lab.run("n1", Command::line(line))?;
    }
    let senders = [within_share(UNIT)];
    let receivers = [sockets("rh2", "[fd20:2::2]:9000")];
    let length = Duration::from_secs(25);
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let (seen, fault) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns + 15_000_000_000)?;
        let networks = lab.ask(Method::GET, "/v1/networks", None)?;
        Ok(networks[0]["nodes"][0]["fault"].as_str().unwrap_or_default().to_owned())
    })?;
    let lost = seen.packets_sent(RED).saturating_sub(seen.packets(0, RED));
    rec.none("lost", "packets of red lost while blue's vif cannot join", lost)?;
    rec.say(&format!("fault: {fault}"));
    let made = lab.ask(Method::POST, "/v1/connections", Some(&connection_of_red("1Mbit", 7000)))?;
    let is_active = made["state"] == "active";
    let text = "connections of red made meanwhile";
    rec.count("made", text, u64::from(is_active), Bound::equal(1.0))?;
    lab.remove(&made)?;
    let named = u64::from(fault.starts_with("b1: "));
    rec.count("named", "faults that name the vif", named, Bound::equal(1.0))?;
    let counted = sent_bytes(lab)?.iter().zip(&before).all(|(now, before)| now >= before);
    rec.count("classes", "trees that stay meanwhile", u64::from(counted), Bound::equal(1.0))?;
    lab.run("n1", Command::line("ip link del b1"))?;
    lab.run("n1", Command::line("ip link set b1-away name b1"))?;
    settle(lab)
}

/// A share changes while red sends within the smallest of its own, beside a flood; a connection has
/// its part of it.
fn change(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let senders = [within_share(UNIT), from_root(vec![flood(UNIT)])];
    let receivers = [sockets("rh2", "[fd20:2::2]:9000")];
    let length = Duration::from_secs(12);
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let share = |network: &str, link: &str, rate: &str| {
        let path = format!("/v1/networks/{network}/links/{link}");
        lab.ask(Method::PATCH, &path, Some(&json!({ "rate": rate }))).map(drop)
    };
    let (seen, shown) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        share("blue", "b1-b2", "4Mbit")?;
        share("red", "r1-r2", "5Mbit")?;
        let shown = wait_for_blue(lab, "4Mbit")?;
        Ok(shown.is_some())
    })?;
    let lost = seen.packets_sent(RED).saturating_sub(seen.packets(0, RED));
    rec.none("lost", "packets of red lost while shares change, beside the flood", lost)?;
    rec.count("taken", "hosts that take them", u64::from(shown), Bound::equal(1.0))?;
    share("red", "r1-r2", "4Mbit")?;
    share("blue", "b1-b2", "5Mbit")?;
    wait_for_blue(lab, "5Mbit")?;
    let made = lab.ask(Method::POST, "/v1/connections", Some(&connection_of_red("2Mbit", 7000)))?;
    let is_active = made["state"] == "active";
    rec.count("made", "connections made over them", u64::from(is_active), Bound::equal(1.0))?;
    lab.ask(Method::DELETE, &connection_path(&made), None)?;
    Ok(())
}

/// Somebody damages what is the broker's at a host: how long until it is back, and whether what is
/// somebody else's stays.
fn drift(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    settle(lab)?;
    let run = |line: &str| lab.run("n1", Command::line(line)).map(drop);
    run("ip link add link wire name own99 type vlan id 99")?;
    let sound = state(lab)?;
    let vlan = own_devices(lab, "wv")?;
    let bridge = own_devices(lab, "wb")?;
    for (name, what, line) in [
        ("vlan", "a removed VLAN device", format!("ip link del {vlan}")),
        ("bridge", "a removed bridge", format!("ip link del {bridge}")),
        ("member", "a vif taken off its bridge", "ip link set b1 nomaster".to_owned()),
        (
            "stranger",
            "a stranger on a network's bridge is off it",
            format!("ip link set own99 master {bridge}"),
        ),
        ("tree", "a removed tree", "tc qdisc del dev wire root".to_owned()),
        (
            "class",
            "a class of another rate",
            "tc class change dev wire parent 7e10:1 classid 7e10:2 htb rate 9mbit ceil 9mbit"
                .to_owned(),
        ),
    ] {
        run(&line)?;
        let begun = Instant::now();
        let same = || Ok((state(lab)? == sound).then_some(()));
        let back = clock::wait_for(BACK_WITHIN, POLL, same)?;
        let took = back.map_or(BACK_WITHIN, |()| begun.elapsed()).as_secs_f64();
        let series = Series::unordered("s", vec![took]);
        let bound = Bound::at_most(REPAIRED_WITHIN);
        rec.claim_samples(name, format!("until {what}: repaired"), series, Rule::Max, bound)?;
        settle(lab)?;
    }
    let stays = run("ip link del own99").is_ok();
    rec.count("foreign", "devices of others that stay", u64::from(stays), Bound::equal(1.0))
}

/// A broker that takes over from a killed one changes nothing, and loses nothing.
fn successor(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let before = (record(lab)?, state(lab)?, identities(lab)?);
    let sent_before = sent_bytes(lab)?;
    let senders = [within_share(UNIT)];
    let receivers = [sockets("rh2", "[fd20:2::2]:9000")];
    let length = Duration::from_secs(20);
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let (seen, broker) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        lab.broker()
    })?;
    let lost = seen.packets_sent(RED).saturating_sub(seen.packets(0, RED));
    rec.none("lost", "packets lost while another broker takes over", lost)?;
    let same = (record(lab)?, state(lab)?, identities(lab)?) == before;
    rec.count("same", "hosts left as they were", u64::from(same), Bound::equal(1.0))?;
    // A class that was made anew counts from zero.
    let counted = sent_bytes(lab)?.iter().zip(&sent_before).all(|(now, before)| now >= before);
    rec.count("classes", "hosts that kept their classes", u64::from(counted), Bound::equal(1.0))?;
    broker.terminate();
    Ok(())
}

/// Waits until blue's class at host n1 has this rate.
fn wait_for_blue(lab: &BrokerLab, rate: &str) -> Result<Option<()>> {
    let class = format!("leaf 1012: prio 0 rate {rate} ");
    clock::wait_for(BACK_WITHIN, POLL, || {
        let classes = lab.run("n1", Command::line("tc class show dev wire"))?;
        Ok(classes.contains(&class).then_some(()))
    })
}

/// The file in which host n1 keeps its record, by its number, and the record.
fn record(lab: &BrokerLab) -> Result<String> {
    let line = "ls -i /run/weir/host-n1; cat /run/weir/host-n1";
    lab.run("n1", Command::new("sh", ["-ec", line]))
}

/// The numbers of the devices that the broker made at host n1: one that is made anew has another.
fn identities(lab: &BrokerLab) -> Result<Vec<Value>> {
    let links: Vec<Value> = parsed(&lab.run("n1", Command::line("ip -j link show"))?)?;
    Ok(links.iter().map(|link| link["ifindex"].clone()).collect())
}

/// The bytes that each class at host n1 has sent.
fn sent_bytes(lab: &BrokerLab) -> Result<Vec<u64>> {
    let said = lab.run("n1", Command::line("tc -s class show dev wire"))?;
    let words =
        said.lines().filter_map(|line| line.trim().strip_prefix("Sent ")?.split(' ').next());
    Ok(words.filter_map(|word| word.parse().ok()).collect())
}

/// Waits until host n1 has all that its record says.
fn settle(lab: &BrokerLab) -> Result {
    let whole = || Ok(record(lab)?.contains("\"uncertain\":[]").then_some(()));
    let settled = clock::wait_for(BACK_WITHIN, POLL, whole)?;
    settled.ok_or_else(|| ExperimentError::Node("host n1 does not settle".to_owned()))
}

/// The classes and filters at host n1, and its devices with VLAN and bridge.
fn state(lab: &BrokerLab) -> Result<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for line in ["tc class show dev wire", "tc filter show dev wire"] {
        lines.extend(lab.run("n1", Command::line(line))?.lines().map(str::to_owned));
    }
    lines.sort();
    let links: Vec<Value> = parsed(&lab.run("n1", Command::line("ip -j -d link show"))?)?;
    lines.extend(links.iter().map(|link| {
        let vlan = &link["linkinfo"]["info_data"]["id"];
        format!("{} {vlan} {}", link["ifname"], link["master"])
    }));
    lines.sort();
    Ok(lines)
}

/// The first of the devices at host n1 whose names begin so.
fn own_devices(lab: &BrokerLab, prefix: &str) -> Result<String> {
    let links: Vec<Value> = parsed(&lab.run("n1", Command::line("ip -j link show"))?)?;
    let names = links.iter().filter_map(|link| link["ifname"].as_str());
    let found = names.filter(|name| name.starts_with(prefix)).min();
    let none = || ExperimentError::Node(format!("host n1 has no device {prefix}…"));
    found.map(str::to_owned).ok_or_else(none)
}

/// A hundredth of the link.
const UNIT: u64 = 100_000;

/// Three comparisons, of which an emulated machine makes one in two seconds.
const REPAIRED_WITHIN: f64 = 6.0;

const BACK_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(100);
