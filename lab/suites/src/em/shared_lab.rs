// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two virtual networks over two hosts with a Weir node each, virtual routers as their guests, and
//! a broker beside them. One of the nodes is asked over its Unix socket, the other over TLS.
//!
//! On one physical link (`lab/scenarios/em/shared-network.toml`) a node begins with a port and
//! nothing on it: slices and vifs are the broker's, which configures the routers too. To be policed
//! (`policed-network.toml`) the nodes have all of it in their own files.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use weir_client::Client;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::weir_program::RunningProgram;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, BrokerScenario, make_certificate};

/// The lab with its nodes.
pub(super) struct SharedLab {
    pub(super) lab: BrokerLab,
    /// Begins the names of the nodes: what a node keeps of a run is not for those of another lab.
    prefix: &'static str,
    nodes: Vec<RunningProgram>,
}

impl SharedLab {
    /// Builds the network, and starts the nodes and SSH servers. [`BrokerLab::broker`] starts the
    /// broker.
    pub(super) fn up() -> Result<Self> {
        let scenario = BrokerScenario {
            topology: include_str!("../../../scenarios/em/shared-network.toml"),
            configuration: include_str!("../../../scenarios/em/shared-broker.toml"),
            routers: &ROUTERS,
        };
        let policy = include_str!("../../../scenarios/em/shared-node.toml");
        Self::of(&scenario, "em", |_| policy.to_owned())
    }

    /// Builds the network with hosts that have no Weir, on a link of a tenth of the rate. None if
    /// this kernel has no 8021q or no flower.
    pub(super) fn on_linux_hosts() -> Result<Option<Self>> {
        let management = "\n[[link]]\na = { at = \"mg:to-n1\", addresses = [\"fd1f:8::1/64\", \
             \"fe80::1/64\"] }\nb = { at = \"n1:mg\", addresses = [\"fd1f:8::2/64\", \
             \"fe80::2/64\"] }\n";
        let topology =
            include_str!("../../../scenarios/em/shared-network.toml").to_owned() + management;
        let mut file = include_str!("../../../scenarios/em/shared-broker.toml")
            .replace("router_patience = \"1s\"", "router_patience = \"30s\"\ncheck = \"2s\"")
            .replace("0Mbit", "Mbit");
        for (interface, address) in [
            ("api = \"n1/state/node-em-n1.sock\"\n", "fd1f:8::2"),
            (
                "api = \"https://[fd1f:9::2]:8443\"\nca = \"n2/cert.pem\"\n\
                 token_file = \"n2/token\"\n",
                "fd1f:9::2",
            ),
        ] {
            let shell = format!("ssh = \"[{address}]:22\"\nhost_key = \"HOST_KEY\"\n");
            file = file.replace(interface, &shell);
        }
        let routers = &ROUTERS;
        let scenario = BrokerScenario { topology: &topology, configuration: &file, routers };
        let mut lab = BrokerLab::of(&scenario)?;
        for node in NODES {
            // The queue that every device of a lab has: it would be in the broker's way.
            lab.run(node, Command::line("tc qdisc del dev wire root"))?;
        }
        if lab.run("n1", Command::new("sh", ["-ec", PROBE])).is_err() {
            lab.down()?;
            return Ok(None);
        }
        for (node, number, vifs) in [("n1", 8, ["b1", "r1"]), (REMOTE, 9, ["b2", "r2"])] {
            lab.start_server(node, number)?;
            for vif in vifs {
                // Then a veth takes what an XDP program sends.
                lab.run(node, Command::line(&format!("ethtool -K {vif} gro on")))?;
            }
        }
        Ok(Some(Self { lab, prefix: "em", nodes: Vec::new() }))
    }

    /// Builds the network with routers that run FRR, and whose routes to end nodes are OSPFv3's.
    pub(super) fn with_routing() -> Result<Self> {
        let mut file = include_str!("../../../scenarios/em/shared-broker.toml").to_owned();
        for (network, prefix) in [("blue", "fd0f:b::"), ("red", "fd0f:e::")] {
            let outer = format!("outer = \"{prefix}\"\n");
            file = file.replace(&outer, &(outer.clone() + OSPF));
            for number in ["1", "2"] {
                let name = format!("{}{number}", &network[..1]);
                let router = format!("[[network.router]]\nname = \"{name}\"\n");
                let frr = format!("frr = \"{}\"\n", frr_name(&name));
                file = file.replace(&router, &(router.clone() + &frr));
            }
        }
        // Only what routers know of themselves.
        let topology = include_str!("../../../scenarios/em/shared-network.toml");
        let is_static = |line: &&str| line.starts_with("routes") && line.contains("/64 via");
        let topology: Vec<&str> = topology.lines().filter(|line| !is_static(line)).collect();
        let (topology, routers) = (topology.join("\n"), &ROUTERS);
        let scenario = BrokerScenario { topology: &topology, configuration: &file, routers };
        let policy = include_str!("../../../scenarios/em/shared-node.toml");
        Self::of(&scenario, "em", |_| policy.to_owned())
    }

    /// Builds the network whose nodes are policed, as [`Self::up`] does.
    pub(super) fn policed() -> Result<Self> {
        let scenario = BrokerScenario {
            topology: include_str!("../../../scenarios/em/policed-network.toml"),
            configuration: include_str!("../../../scenarios/em/policed-broker.toml"),
            routers: &[],
        };
        Self::of(&scenario, "em-policed", |node| {
            let (number, capacity) = if node == REMOTE { ("2", "1kpps") } else { ("1", "20kpps") };
            let policy = include_str!("../../../scenarios/em/policed-node.toml");
            policy.replace("NUMBER", number).replace("CAPACITY", capacity)
        })
    }

    fn of(
        scenario: &BrokerScenario<'_>,
        prefix: &'static str,
        policy: impl Fn(&str) -> String,
    ) -> Result<Self> {
        let mut shared = Self { lab: BrokerLab::of(scenario)?, prefix, nodes: Vec::new() };
        for node in NODES {
            shared.start(node, policy(node).replace("NODE", node))?;
        }
        Ok(shared)
    }

    /// Returns a client of a node, over its Unix socket.
    pub(super) fn node(&self, name: &str) -> Client {
        Client::new(&self.socket(name))
    }

    fn socket(&self, node: &str) -> PathBuf {
        self.lab.file(&format!("{node}/state/node-{}-{node}.sock", self.prefix))
    }

    /// Takes everything down.
    pub(super) fn down(self) -> Result {
        for node in self.nodes {
            node.terminate();
            node.end_within(ENDED_WITHIN)?;
        }
        self.lab.down()
    }

    fn start(&mut self, node: &str, mut policy: String) -> Result {
        let program = self.lab.program_at(node)?;
        if node == REMOTE {
            self.make_remote(&mut policy)?;
        }
        self.lab.write(&format!("{node}/node.toml"), &policy)?;
        let mut running = program.start(&["node", "run", "--config", "node.toml"])?;
        let client = self.node(node);
        let answers = clock::wait_for(STARTED_WITHIN, POLL, || {
            let answers = client.text("/v1/document").is_ok();
            Ok((answers || !running.is_alive()).then_some(answers))
        })?;
        if answers != Some(true) {
            let ended = running.end_within(Duration::ZERO)?;
            return Err(ExperimentError::Node(format!("{node} did not start: {}", ended.said)));
        }
        self.nodes.push(running);
        Ok(())
    }

    /// Adds an interface over TLS with a token to a node's policy, and writes its files.
    fn make_remote(&self, policy: &mut String) -> Result {
        let write = |name: &str, text: &str| self.lab.write(&format!("{REMOTE}/{name}"), text);
        make_certificate(REMOTE_ADDRESS, write)?;
        let (token, digest) =
            weir_api::token::new().map_err(|error| ExperimentError::io("token", error))?;
        write("token", &token)?;
        let folder = self.lab.file(REMOTE);
        let folder = fs::canonicalize(&folder).unwrap_or(folder);
        let folder = folder.display();
        let _written = write!(
            policy,
            "\n[api]\nlisten = \"[{REMOTE_ADDRESS}]:8443\"\ncertificate = \"{folder}/cert.pem\"\n\
             key = \"{folder}/key.pem\"\n\n[[api.token]]\nname = \"broker\"\n\
             role = \"administrator\"\nsha256 = \"{digest}\"\n"
        );
        Ok(())
    }
}

/// The name of a router's FRR among those of this machine.
pub(super) fn frr_name(router: &str) -> String {
    format!("em-{router}")
}

/// The routers, in the order of their management links.
pub(super) const ROUTERS: [&str; 4] = ["b1", "b2", "r1", "r2"];

/// OSPFv3 of a network that is quick to notice what is lost.
pub(super) const OSPF: &str = "ospf6 = { hello = \"1s\", dead = \"4s\" }\n";

/// The nodes.
const NODES: [&str; 2] = ["n1", REMOTE];

/// The node that is asked over TLS, and its address.
const REMOTE: &str = "n2";
const REMOTE_ADDRESS: &str = "fd1f:9::2";

const PROBE: &str = "ip link add link wire name probe type vlan id 4000
tc qdisc add dev wire root handle 1: htb
tc filter add dev wire parent 1: protocol 802.1Q flower vlan_id 4000 classid 1:1
tc qdisc del dev wire root
ip link del probe";

const STARTED_WITHIN: Duration = Duration::from_secs(20);

const ENDED_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(10);
