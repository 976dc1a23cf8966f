// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two virtual networks on one physical link: hosts with a Weir node each, virtual routers as their
//! guests, and a broker that configures all of them (`lab/scenarios/em/shared-network.toml`).
//!
//! A node begins with a port and nothing on it: slices and vifs are the broker's. One of the nodes
//! is asked over its Unix socket, the other over TLS.

use std::fmt::Write as _;
use std::fs;

use weir_client::Client;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::weir_program::RunningProgram;

use super::broker_lab::{BrokerLab, BrokerScenario};

/// The lab with its nodes.
pub(super) struct SharedLab {
    pub(super) lab: BrokerLab,
    nodes: Vec<RunningProgram>,
}

impl SharedLab {
    /// Builds the network, and starts the nodes and SSH servers. [`BrokerLab::broker`] starts the
    /// broker.
    pub(super) fn up() -> Result<Self> {
        let lab = BrokerLab::of(&BrokerScenario {
            topology: include_str!("../../../scenarios/em/shared-network.toml"),
            configuration: include_str!("../../../scenarios/em/shared-broker.toml"),
            routers: &["b1", "b2", "r1", "r2"],
        })?;
        let mut shared = Self { lab, nodes: Vec::new() };
        for node in NODES {
            shared.start(node)?;
        }
        Ok(shared)
    }

    /// Returns a client of node n1.
    pub(super) fn node(&self) -> Client {
        Client::new(&self.lab.file("n1/state/node-em-n1.sock"))
    }

    /// Takes everything down.
    pub(super) fn down(self) -> Result {
        for node in self.nodes {
            node.terminate();
            node.end_within(ENDED_WITHIN)?;
        }
        self.lab.down()
    }

    fn start(&mut self, node: &str) -> Result {
        let program = self.lab.program_at(node)?;
        let mut policy = POLICY.replace("NODE", node);
        if node == REMOTE {
            self.make_remote(&mut policy)?;
        }
        self.lab.write(&format!("{node}/node.toml"), &policy)?;
        let mut running = program.start(&["node", "run", "--config", "node.toml"])?;
        let socket = self.lab.file(&format!("{node}/state/node-em-{node}.sock"));
        let answers = clock::wait_for(STARTED_WITHIN, POLL, || {
            let answers = Client::new(&socket).text("/v1/document").is_ok();
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
        let failed = |error: rcgen::Error| ExperimentError::Node(format!("certificate: {error}"));
        let own = rcgen::generate_simple_self_signed([REMOTE_ADDRESS.to_owned()]);
        let own = own.map_err(failed)?;
        let (token, digest) =
            weir_api::token::new().map_err(|error| ExperimentError::io("token", error))?;
        for (name, text) in [
            ("cert.pem", own.cert.pem()),
            ("key.pem", own.signing_key.serialize_pem()),
            ("token", token),
        ] {
            self.lab.write(&format!("{REMOTE}/{name}"), &text)?;
        }
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

/// The nodes.
const NODES: [&str; 2] = ["n1", REMOTE];

/// The node that is asked over TLS, and its address.
const REMOTE: &str = "n2";
const REMOTE_ADDRESS: &str = "fd1f:9::2";

const POLICY: &str = include_str!("../../../scenarios/em/shared-node.toml");

const STARTED_WITHIN: Duration = Duration::from_secs(20);

const ENDED_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(10);
