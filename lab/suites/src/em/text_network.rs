// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The size of the text's testbed: 14 virtual routers in two networks, and 40 end nodes. Each
//! network is a ring of three routers in the core, at two of which each of four edge routers is,
//! and five end nodes behind each of these. Routers have an SSH server, and FRR where it is
//! installed.

use std::fmt::Write as _;

use weir_experiment::prelude::*;

use super::broker_lab::{BrokerLab, BrokerScenario, NAME};
use super::routing::{self, Routing};
use super::shared_lab::{OSPF, frr_name};

/// The lab, with the routing daemons of its routers.
pub(super) struct TextNetwork {
    pub(super) lab: BrokerLab,
    routing: Option<Routing>,
}

/// A virtual network: its name, the letter of its nodes, its prefix, the prefix of outer addresses.
struct VirtualNetwork {
    name: &'static str,
    letter: char,
    prefix: &'static str,
    outer: &'static str,
}

impl TextNetwork {
    /// Builds it. A lab without FRR says so.
    pub(super) fn up(rec: &mut Recording<'_>) -> Result<Self> {
        let has_frr = routing::is_installed();
        if !has_frr {
            rec.say("no FRR here: nothing but tunnels has a route");
        }
        let (topology, configuration) = files(has_frr);
        let names = routers();
        let routers: Vec<&str> = names.iter().map(String::as_str).collect();
        let scenario = BrokerScenario {
            topology: &topology,
            configuration: &configuration,
            routers: &routers,
        };
        let lab = BrokerLab::of(&scenario)?;
        let routing = has_frr.then(|| Routing::start(&lab, &routers)).transpose()?;
        Ok(Self { lab, routing })
    }

    /// Takes everything down.
    pub(super) fn down(self) -> Result {
        drop(self.routing);
        self.lab.down()
    }
}

/// Returns the routers, in the order of their management links.
pub(super) fn routers() -> Vec<String> {
    let each = NETWORKS.iter().flat_map(|of| (1..=ROUTERS).map(|number| of.router(number)));
    each.collect()
}

/// Returns names of a network, and of two of its end nodes at different routers, from random bits.
pub(super) fn pair(bits: u64) -> (&'static str, [String; 2]) {
    let network = &NETWORKS[usize::from(bits & 1 == 1)];
    let (from, step) = ((bits >> 1) % HOSTS, 1 + (bits >> 32) % (EDGES - 1));
    // The end nodes of a router have consecutive numbers.
    let to = (from + step * HOSTS / EDGES) % HOSTS;
    (network.name, [from, to].map(|host| network.host(host)))
}

/// Returns the files of the testbed and of the broker.
fn files(has_frr: bool) -> (String, String) {
    let mut topology = format!("name = \"{NAME}\"\n\n[[node]]\nname = \"mg\"\n");
    let mut broker = HEAD.to_owned();
    let ospf = if has_frr { OSPF } else { "" };
    for (index, of) in NETWORKS.iter().enumerate() {
        let (name, outer) = (of.name, of.outer);
        let _ = write!(broker, "\n[[network]]\nname = \"{name}\"\nouter = \"{outer}\"\n{ospf}");
        for number in 1..=ROUTERS {
            let management = index as u64 * ROUTERS + number;
            put_router(&mut topology, &mut broker, &of.router(number), management, has_frr);
        }
        let core = [(1, 2), (2, 3), (3, 1)];
        let edges = (4..=ROUTERS).flat_map(|edge| [edge, edge + 1].map(|at| (edge, at % 3 + 1)));
        for (from, to) in core.into_iter().chain(edges) {
            of.put_link(&mut topology, &mut broker, from, to);
        }
        (0..HOSTS).for_each(|host| of.put_host(&mut topology, &mut broker, host));
    }
    (topology, broker)
}

fn put_router(topology: &mut String, broker: &mut String, name: &str, number: u64, has_frr: bool) {
    let _ = write!(
        topology,
        "\n[[node]]\nname = \"{name}\"\nsysctls = {{ \"net.ipv6.conf.all.forwarding\" = 1 }}\n\
         \n[[link]]\na = {{ at = \"mg:to-{name}\", addresses = [\"fd1f:{number}::1/64\"] }}\n\
         b = {{ at = \"{name}:mg\", addresses = [\"fd1f:{number}::2/64\"] }}\n"
    );
    let _ = write!(
        broker,
        "\n[[network.router]]\nname = \"{name}\"\nssh = \"[fd1f:{number}::2]:22\"\n\
         host_key = \"HOST_KEY\"\n"
    );
    if has_frr {
        let _ = writeln!(broker, "frr = \"{}\"", frr_name(name));
    }
}

impl VirtualNetwork {
    fn router(&self, number: u64) -> String {
        format!("{}{number}", self.letter)
    }

    fn host(&self, number: u64) -> String {
        format!("{}h{}", self.letter, number + 1)
    }

    fn put_link(&self, topology: &mut String, broker: &mut String, from: u64, to: u64) {
        let [a, b] = [from, to].map(|number| self.router(number));
        let prefix = format!("{}:{:x}", self.prefix, 0x100 + from * 16 + to);
        let _ = write!(
            topology,
            "\n[[link]]\na = {{ at = \"{a}:{b}\", addresses = [\"{prefix}::1/64\", \
             \"fe80::1/64\"] }}\nb = {{ at = \"{b}:{a}\", addresses = [\"{prefix}::2/64\", \
             \"fe80::2/64\"] }}\n"
        );
        let _ = write!(
            broker,
            "\n[[network.link]]\nname = \"{a}-{b}\"\n\
             a = {{ router = \"{a}\", device = \"{b}\", address = \"{prefix}::1\" }}\n\
             b = {{ router = \"{b}\", device = \"{a}\", address = \"{prefix}::2\" }}\n\
             rate = \"1Gbit\"\ndelay = \"1ms\"\n"
        );
    }

    fn put_host(&self, topology: &mut String, broker: &mut String, number: u64) {
        let (host, router) = (self.host(number), self.router(4 + number / (HOSTS / EDGES)));
        let prefix = format!("{}:{:x}", self.prefix, 0x1000 + number);
        let _ = write!(
            topology,
            "\n[[node]]\nname = \"{host}\"\nroutes = [\"default via {prefix}::1\"]\n\
             \n[[link]]\na = {{ at = \"{router}:{host}\", addresses = [\"{prefix}::1/64\"] }}\n\
             b = {{ at = \"{host}:eth0\", addresses = [\"{prefix}::2/64\"] }}\n"
        );
        let _ = write!(
            broker,
            "\n[[network.host]]\nname = \"{host}\"\nrouter = \"{router}\"\ndevice = \"{host}\"\n\
             address = \"{prefix}::2\"\n"
        );
    }
}

const NETWORKS: [VirtualNetwork; 2] = [
    VirtualNetwork { name: "blue", letter: 'b', prefix: "fd10:0", outer: "fd0f:b::" },
    VirtualNetwork { name: "red", letter: 'r', prefix: "fd20:0", outer: "fd0f:e::" },
];

/// Routers of a network: three of the core, and those at its edge.
const ROUTERS: u64 = 3 + EDGES;
const EDGES: u64 = 4;

/// End nodes of a network.
const HOSTS: u64 = 20;

const HEAD: &str = "version = 1

[broker]
name = \"lab\"
listen = \"[fd1f:1::1]:8443\"
certificate = \"cert.pem\"
key = \"key.pem\"
store = \"store.sqlite\"
ssh_key = \"id\"
lease = \"1s\"
router_patience = \"5s\"

[[broker.token]]
name = \"operator\"
sha256 = \"TOKEN_SHA256\"
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_testbed::Topology;

    use super::*;

    /// Goal: the testbed has the text's size, and a request is for two end nodes of one network at
    /// different routers.
    #[test]
    fn it_has_the_size_of_the_text() {
        let (topology, _) = files(true);
        let topology = Topology::parse(&topology).unwrap();
        assert_eq!((topology.nodes.len(), routers().len()), (1 + 14 + 40, 14));
        assert_eq!(topology.links.len(), 14 + 2 * (3 + 2 * 4) + 40);
        let mut ends = BTreeSet::new();
        for bits in (0..10_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let (network, [from, to]) = pair(bits);
            let number = |host: &str| (host[2..].parse::<u64>().unwrap() - 1) / (HOSTS / EDGES);
            assert_ne!(number(&from), number(&to));
            assert!([&from, &to].iter().all(|host| host.starts_with(&network[..1])));
            ends.extend([from, to]);
        }
        assert_eq!(ends.len(), 40);
    }
}
