// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that build a topology, given what is there already. Nothing here runs them.

use std::time::Duration;

use weir_units::{BitRate, Nanos};

use super::topology::{End, HEADER_BYTES, Topology, TopologyLink};
use weir_platform::inspect::LinkView;
use weir_platform::run::{Command, LIMIT};

/// The devices that each node has, by the node's index; empty for a node that does not exist.
pub(super) type Actual = Vec<Vec<LinkView>>;

/// Returns the command that keeps a node quiet: the kernel sends no packet of its own accord.
pub(super) fn quiet(topology: &Topology, node: usize) -> Command {
    let mut args = vec!["-q".to_owned(), "-e".to_owned(), "-w".to_owned()];
    let settings: &[&str] = if topology.speaks_ipv6(node) { QUIET_IPV6 } else { NO_IPV6 };
    for scope in ["all", "default"] {
        args.extend(settings.iter().map(|setting| format!("net.ipv6.conf.{scope}.{setting}")));
    }
    Command::new("sysctl", args).in_namespace(&namespace(topology, node))
}

/// Returns the command that sets the kernel variables of the topology, if it names any.
pub(super) fn sysctls(topology: &Topology, node: usize) -> Option<Command> {
    let settings = &topology.nodes[node].sysctls;
    let mut args = vec!["-q".to_owned(), "-w".to_owned()];
    args.extend(settings.iter().map(|(key, value)| format!("{key}={value}")));
    let command = Command::new("sysctl", args).in_namespace(&namespace(topology, node));
    (!settings.is_empty()).then_some(command)
}

/// Returns the commands that make the links of which an end is missing. Each pair is one request to
/// the kernel, so that there is never half a link, and no end is ever in this process's namespace.
pub(super) fn make_links(topology: &Topology, actual: &Actual) -> Vec<Command> {
    let (mut commands, mut lines) = (Vec::new(), Vec::new());
    for link in &topology.links {
        if is_whole(link, actual) {
            continue;
        }
        for end in &link.ends {
            if find(actual, end.node, &end.device).is_some() {
                let delete = Command::new("ip", ["link", "del", "dev", &end.device]);
                commands.push(delete.in_namespace(&namespace(topology, end.node)));
            }
        }
        let queues = format!("numtxqueues {0} numrxqueues {0} mtu {1}", link.queues, link.mtu);
        let [a, b] = &link.ends;
        let (of_a, of_b) = (namespace(topology, a.node), namespace(topology, b.node));
        lines.push(format!(
            "link add name {} netns {of_a} {queues} type veth peer name {} netns {of_b} {queues}",
            a.device, b.device
        ));
    }
    let limit = LIMIT + LINK_LIMIT * u32::try_from(lines.len()).unwrap_or(u32::MAX);
    commands.push(Command::batch("ip", lines).limit(limit));
    commands
}

/// Returns the command that configures the links of a node and makes its missing bridges.
pub(super) fn configure(topology: &Topology, node: usize, actual: &Actual) -> Command {
    let mut lines = vec!["link set dev lo up".to_owned()];
    for (link, end) in topology.ends_of(node) {
        let device = &end.device;
        let mac = end.mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
        lines.push(format!("link set dev {device} mtu {}{mac}", link.mtu));
        lines.push(format!("link set dev {device} up"));
        lines.extend(end.addresses.iter().map(|a| format!("addr replace {a} dev {device}")));
    }
    for bridge in topology.bridges.iter().filter(|bridge| bridge.node == node) {
        let name = &bridge.name;
        if find(actual, node, name).is_none() {
            lines.push(format!("link add name {name} type bridge {BRIDGE_OPTIONS}"));
        }
        lines.extend(bridge.members.iter().map(|m| format!("link set dev {m} master {name}")));
        lines.push(format!("link set dev {name} up"));
    }
    // Neighbours after all devices are up: setting a device down would flush them.
    for (_, end) in topology.ends_of(node) {
        lines.extend(end.neighbours.iter().map(|(address, mac)| {
            format!("neigh replace {address} lladdr {mac} dev {} nud permanent", end.device)
        }));
    }
    lines.extend(topology.nodes[node].routes.iter().map(|route| format!("route replace {route}")));
    Command::batch("ip", lines).in_namespace(&namespace(topology, node))
}

/// Returns the command that sets the queue, and the rate if there is one, at each end in a node. A
/// veth without a queue drops frames that its peer has no room for, although the sender was told
/// that they are sent; with a queue, the sender is held back. With `netem` the queue also delays
/// frames.
pub(super) fn shape(topology: &Topology, node: usize, netem: bool) -> Command {
    let mut lines = Vec::new();
    for (link, end) in topology.ends_of(node) {
        let device = &end.device;
        let queue = if netem && end.delay > Nanos::ZERO {
            // Frames under way count against netem's limit.
            let limit = end.queue.saturating_add(UNDER_WAY_MAX);
            format!("netem limit {limit} delay {}us", end.delay.as_nanos().div_ceil(1000))
        } else {
            format!("pfifo limit {}", end.queue)
        };
        match end.rate {
            Some(rate) => {
                lines.push(format!("qdisc replace dev {device} {}", tbf(link, end, rate)));
                lines.push(format!("qdisc replace dev {device} parent 1:1 handle 10: {queue}"));
            }
            None => lines.push(format!("qdisc replace dev {device} root handle 10: {queue}")),
        }
    }
    Command::batch("tc", lines).in_namespace(&namespace(topology, node))
}

/// Returns the commands that turn off the offloads of the ends that are to have none.
pub(super) fn offloads(topology: &Topology, node: usize) -> Vec<Command> {
    let ends = topology.ends_of(node).filter(|(_, end)| !end.offloads);
    ends.map(|(_, end)| {
        let args = [&["-K", end.device.as_str()], OFFLOADS_OFF].concat();
        Command::new("ethtool", args).in_namespace(&namespace(topology, node))
    })
    .collect()
}

/// Returns true if both ends are there and each is the other's peer.
pub(super) fn is_whole(link: &TopologyLink, actual: &Actual) -> bool {
    let [a, b] = link.ends.each_ref().map(|end| find(actual, end.node, &end.device));
    let (Some(a), Some(b)) = (a, b) else { return false };
    let peer = |one: &LinkView, other: &LinkView| {
        one.link_index == Some(other.ifindex) || one.link.as_ref() == Some(&other.ifname)
    };
    a.is("veth") && b.is("veth") && peer(a, b) && peer(b, a)
}

pub(super) fn find<'a>(actual: &'a Actual, node: usize, device: &str) -> Option<&'a LinkView> {
    actual.get(node)?.iter().find(|link| link.ifname == device)
}

fn namespace(topology: &Topology, node: usize) -> String {
    topology.namespace(&topology.nodes[node])
}

/// Writes a token bucket for the root. Its limit in bytes is above what the packet queue inside
/// holds, whose own limit then counts.
fn tbf(link: &TopologyLink, end: &End, rate: BitRate) -> String {
    let burst = end.burst_at(rate, link.mtu).get();
    let frame_max = u64::from(link.mtu) + HEADER_BYTES + TAG_BYTES;
    let limit = u64::from(end.queue).saturating_mul(frame_max).min(LIMIT_MAX).max(burst);
    format!("root handle 1: tbf rate {}bit burst {burst} limit {limit}", rate.as_bps())
}

/// The time that making a link may take: ten times what it takes on a busy machine.
const LINK_LIMIT: Duration = Duration::from_millis(50);

/// The largest limit of a token bucket, which `tc` keeps in 32 bits.
const LIMIT_MAX: u64 = 1 << 30;

/// The bytes of an 802.1Q tag.
const TAG_BYTES: u64 = 4;

/// Most frames under way on a link that netem delays: 1 s at 250 kpps.
const UNDER_WAY_MAX: u32 = 250_000;

/// The options of a bridge: ports forward at once, and it sends no multicast queries.
const BRIDGE_OPTIONS: &str = "forward_delay 0 stp_state 0 mcast_snooping 0";

const NO_IPV6: &[&str] = &["disable_ipv6=1"];

/// The kernel variables of a node with IPv6: its addresses are the given ones and usable at once,
/// and it neither solicits nor announces.
const QUIET_IPV6: &[&str] = &[
    "accept_ra=0",
    "autoconf=0",
    "router_solicitations=0",
    "accept_dad=0",
    "dad_transmits=0",
    "addr_gen_mode=1",
];

const OFFLOADS_OFF: &[&str] = &["tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off"];

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        Topology::parse(
            r#"
            name = "t"
            [[node]]
            name = "a"
            routes = ["default via 10.0.0.2"]
            [[node]]
            name = "sw"
            [[link]]
            a = { at = "a:eth0", mac = "02:00:00:00:00:01", addresses = ["10.0.0.1/24"] }
            b = { at = "sw:a0", rate = "100Mbit" }
            [[bridge]]
            node = "sw"
            name = "br0"
            members = ["a0"]
            "#,
        )
        .unwrap()
    }

    fn view(name: &str, ifindex: u32, peer: u32) -> LinkView {
        let text = format!(
            r#"{{"ifindex":{ifindex},"ifname":"{name}","link_index":{peer},"mtu":1500,
                "linkinfo":{{"info_kind":"veth"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_fresh_lab_is_made_by_these_commands() {
        let topology = topology();
        let actual = vec![vec![], vec![]];
        let commands = make_links(&topology, &actual);
        let lines: Vec<&str> = commands[0].input_lines().collect();
        let queues = "numtxqueues 1 numrxqueues 1 mtu 1500";
        let expected = format!(
            "link add name eth0 netns t-a {queues} type veth peer name a0 netns t-sw {queues}"
        );
        assert_eq!(lines, [expected]);
        assert_eq!(
            configure(&topology, 0, &actual).to_string(),
            "ip -n t-a -batch - <<'END'\n\
             link set dev lo up\n\
             link set dev eth0 mtu 1500 address 02:00:00:00:00:01\n\
             link set dev eth0 up\n\
             addr replace 10.0.0.1/24 dev eth0\n\
             route replace default via 10.0.0.2\n\
             END"
        );
        // 2 ms at 100 Mbit/s are 25 000 bytes; 1000 packets of 1518 fit below the limit.
        assert_eq!(
            shape(&topology, 1, false).to_string(),
            "tc -n t-sw -batch - <<'END'\n\
             qdisc replace dev a0 root handle 1: tbf rate 100000000bit burst 25000 limit 1518000\n\
             qdisc replace dev a0 parent 1:1 handle 10: pfifo limit 1000\n\
             END"
        );
        assert!(
            shape(&topology, 0, false).to_string().contains("root handle 10: pfifo limit 1000")
        );
    }

    #[test]
    fn where_netem_is_it_delays_below_the_rate() {
        let mut topology = topology();
        for end in &mut topology.links[0].ends {
            end.delay = Nanos::new(1_500_500);
        }
        let delayed = shape(&topology, 1, true).to_string();
        assert!(delayed.contains("parent 1:1 handle 10: netem limit 251000 delay 1501us"));
        let delayed = shape(&topology, 0, true).to_string();
        assert!(delayed.contains("root handle 10: netem limit 251000 delay 1501us"));
    }

    #[test]
    fn what_is_there_is_adopted_and_half_a_link_is_made_anew() {
        let topology = topology();
        let whole = vec![vec![view("eth0", 2, 7)], vec![view("a0", 7, 2)]];
        assert!(make_links(&topology, &whole)[0].is_empty_batch());
        let other_peer = vec![vec![view("eth0", 2, 7)], vec![view("a0", 9, 3)]];
        let commands = make_links(&topology, &other_peer);
        assert_eq!(commands.len(), 3, "two strangers go, one link comes");
        let half = vec![vec![view("eth0", 2, 7)], vec![]];
        let commands = make_links(&topology, &half);
        assert_eq!(commands[0].to_string(), "ip -n t-a link del dev eth0");
        assert_eq!(commands.len(), 2);
    }
}
