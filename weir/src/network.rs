// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir network`: a broker's networks, what is reserved in them, their links and their policing.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_broker_api_types::{
    LinkSetting, NetworkConduct, NetworkView, NodeContention, PolicingReport, RouterSetPoint,
    RouterState,
};
use weir_client::{Client, Method, escaped};
use weir_platform::failure::Failure;
use weir_platform::output;
use weir_units::{BitRate, PacketRate};

use crate::broker::BrokerAddress;

/// Virtual networks and what is reserved in them.
#[derive(Debug, Args)]
pub(crate) struct NetworkCommand {
    /// Take a link out of service, NETWORK/LINK: its connections get other paths
    #[arg(long, value_name = "LINK")]
    down: Option<String>,
    /// Put a link back into service, NETWORK/LINK
    #[arg(long, value_name = "LINK", conflicts_with = "down")]
    up: Option<String>,
    /// Give a network's link, NETWORK/LINK, another share of the physical link that carries it
    #[arg(long, value_name = "LINK", conflicts_with_all = ["down", "up"], requires = "rate")]
    share: Option<String>,
    /// The share, such as 60Mbit
    #[arg(long, requires = "share")]
    rate: Option<String>,
    /// The part of the share that connections may reserve
    #[arg(long, requires = "share")]
    reservable: Option<String>,
    /// Show networks under their agreements on packet rates, and the nodes that they pass
    #[arg(long, conflicts_with_all = ["down", "up", "share"])]
    policing: bool,
    #[command(flatten)]
    at: BrokerAddress,
}

impl NetworkCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let client = self.at.client()?;
        for (link, up) in [(&self.down, false), (&self.up, true)] {
            let Some(link) = link else { continue };
            return set_link(
                &client,
                link,
                &LinkSetting { up: Some(up), ..LinkSetting::default() },
            );
        }
        if let Some(link) = &self.share {
            let (rate, reservable) = (self.rate, self.reservable);
            return set_link(&client, link, &LinkSetting { up: None, rate, reservable });
        }
        if self.policing {
            let report: PolicingReport = client.get("/v1/policing")?;
            return show(self.at.json, &report, policing_text);
        }
        let networks: Vec<NetworkView> = client.get("/v1/networks")?;
        show(self.at.json, &networks, |networks| networks.iter().map(network_text).collect())
    }
}

/// Changes a link, NETWORK/LINK.
fn set_link(client: &Client, link: &str, setting: &LinkSetting) -> Result<ExitCode, Failure> {
    let (network, name) = link.split_once('/').ok_or("a link is NETWORK/LINK")?;
    let path = format!("/v1/networks/{}/links/{}", escaped(network), escaped(name));
    client.ask::<()>(Method::PATCH, &path, Some(setting))?;
    Ok(ExitCode::SUCCESS)
}

fn show<T: Serialize>(
    json: bool,
    answer: &T,
    text: impl Fn(&T) -> String,
) -> Result<ExitCode, Failure> {
    if json {
        output::print_json(answer)?;
    } else {
        output::print(&text(answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn network_text(network: &NetworkView) -> String {
    let NetworkView { name, routers, nodes, hosts, links, connections, .. } = network;
    let mut text = format!("{name}: {connections} connections; end nodes {}\n", hosts.join(" "));
    for link in links {
        let [reserved, most] = [link.reserved_bps, link.reservable_bps].map(BitRate::from_bps);
        let fault = fault_text(link.fault.as_ref());
        let (from, to, link) = (&link.from, &link.to, &link.link);
        text += &format!("  {link}: {from} -> {to}: {reserved} of {most} reserved{fault}\n");
    }
    let routers = routers.iter().map(|state| ("router", state));
    for (kind, state) in routers.chain(nodes.iter().map(|state| ("node", state))) {
        let RouterState { name, reachable, fault, .. } = state;
        if let Some(fault) = fault {
            let what = if *reachable { "lacks a part" } else { "does not answer" };
            text += &format!("  {kind} {name} {what}: {fault}\n");
        }
    }
    text
}

fn policing_text(report: &PolicingReport) -> String {
    let networks = report.networks.iter().map(conduct_text);
    networks.chain(report.nodes.iter().map(node_line)).collect()
}

fn conduct_text(of: &NetworkConduct) -> String {
    let pps = PacketRate::from_pps;
    let NetworkConduct { network, min_pps, max_pps, priority, grade, .. } = of;
    let most = max_pps.map(|most| format!(", at most {}", pps(most))).unwrap_or_default();
    let held = match of.allowed_pps {
        Some(allowed) => format!("held at {}, {grade}", pps(allowed)),
        None => format!("not held, {grade}"),
    };
    let min = pps(*min_pps);
    let mut text = format!("{network}: {held}; guaranteed {min}{most}, priority {priority}\n");
    for router in &of.routers {
        let RouterSetPoint { router, node, entry, set_point_pps, offered_pps, fault, .. } = router;
        let entry = if *entry { ", entry" } else { "" };
        let rate = |what: &str, rate: Option<u64>| {
            rate.map(|rate| format!("; {what} {}", pps(rate))).unwrap_or_default()
        };
        let (held, came) = (rate("held at", *set_point_pps), rate("offered", *offered_pps));
        let fault = fault_text(fault.as_ref());
        text += &format!("  {router} at {node}{entry}{came}{held}{fault}\n");
    }
    text
}

fn node_line(of: &NodeContention) -> String {
    let NodeContention { node, capacity_pps, contended, silent, fault } = of;
    let carries = capacity_pps.map(|most| format!("carries {}, ", PacketRate::from_pps(most)));
    let state = if *contended { "contended" } else { "not contended" };
    let silent = match silent {
        0 => String::new(),
        count => format!("; {count} samples without an answer"),
    };
    let fault = fault_text(fault.as_ref());
    format!("node {node}: {}{state}{silent}{fault}\n", carries.unwrap_or_default())
}

fn fault_text(fault: Option<&String>) -> String {
    fault.map(|fault| format!("; {fault}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a network that is held and punished, and a node that does not answer, each in a line.
    #[test]
    fn policing_is_told_in_lines() {
        let router = RouterSetPoint {
            router: "r1".to_owned(),
            node: "n1".to_owned(),
            entry: true,
            set_point_pps: Some(500),
            offered_pps: Some(9000),
            passed_pps: Some(500),
            fault: None,
        };
        let unseen = RouterSetPoint {
            router: "r2".to_owned(),
            node: "n2".to_owned(),
            entry: false,
            set_point_pps: None,
            offered_pps: None,
            passed_pps: None,
            fault: Some("its node does not answer".to_owned()),
        };
        let red = NetworkConduct {
            network: "red".to_owned(),
            min_pps: 100,
            max_pps: Some(2000),
            priority: 3,
            held: true,
            allowed_pps: Some(1000),
            grade: "lower set-point".to_owned(),
            judged: 2,
            routers: vec![router, unseen],
        };
        let node = NodeContention {
            node: "n2".to_owned(),
            capacity_pps: Some(2000),
            contended: true,
            silent: 3,
            fault: Some("no answer within 450ms".to_owned()),
        };
        let report =
            PolicingReport { networks: vec![red], nodes: vec![node], ..PolicingReport::default() };
        let text = "red: held at 1kpps, lower set-point; guaranteed 100pps, at most 2kpps, \
                    priority 3\n  r1 at n1, entry; offered 9kpps; held at 500pps\n  \
                    r2 at n2; its node does not answer\nnode n2: carries 2kpps, contended; \
                    3 samples without an answer; no answer within 450ms\n";
        assert_eq!(policing_text(&report), text);
    }
}
