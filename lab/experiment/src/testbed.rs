// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A star that is up, and what stands in its middle: what a run flows over, and what may be done
//! beside its traffic.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir_platform::StateDir;
use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};
use weir_testbed::{Lab, Topology};
use weir_units::{BitRate, ByteCount};

use crate::ExperimentError;
use crate::node_process::NodeProcess;
use crate::run_folder::RunFolder;
use crate::star::{StarTopology, UPLINK};
use crate::traffic_run::Forwarder;

/// A lab that is up. It is gone with this value, whatever happened.
#[derive(Debug)]
pub struct Testbed {
    star: StarTopology,
    // In the order in which they go: the node needs its namespace, both need the folder.
    node: Option<NodeProcess>,
    lab: Lab,
    place: RunFolder,
}

impl Testbed {
    /// Builds the lab, with nothing in its middle. What an earlier run of the same lab left when
    /// it was killed is undone first.
    pub fn up(star: &StarTopology) -> Result<Self, ExperimentError> {
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let place = RunFolder::take(&star.name, &StateDir::from_env())?;
        let topology = Topology::parse(&star.topology())
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, place.state())?;
        Ok(Self { star: star.clone(), node: None, lab, place })
    }

    /// Puts a bridge or Weir in the middle, which is empty. Call it from a thread that lives as
    /// long as the node should.
    pub fn put(&mut self, middle: &Forwarder) -> Result<(), ExperimentError> {
        match middle {
            Forwarder::Bridge => make_bridge(&self.star),
            Forwarder::Limited(buckets) => {
                make_bridge(&self.star)?;
                limit(&self.star, buckets)
            }
            Forwarder::Weir(policy) => {
                let namespace = self.lab.namespace("sw")?;
                self.node = Some(NodeProcess::start(namespace, policy, &self.place)?);
                Ok(())
            }
        }
    }

    /// Ends the node, if there is one, and waits until it has handed everything back.
    pub fn stop_node(&mut self) -> Result<(), ExperimentError> {
        self.node.take().map_or(Ok(()), NodeProcess::stop)
    }

    /// Takes everything down.
    pub fn down(mut self) -> Result<(), ExperimentError> {
        let stopped = self.stop_node();
        self.lab.down()?;
        stopped
    }

    /// The path of a file that goes with the rig.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.folder().join(name)
    }

    /// The star that is up.
    pub fn star(&self) -> &StarTopology {
        &self.star
    }

    /// A folder for files of this run, root's own, which is gone with it.
    pub fn folder(&self) -> &std::path::Path {
        self.place.folder()
    }

    /// The node in the middle.
    pub fn node(&self) -> Option<&NodeProcess> {
        self.node.as_ref()
    }

    /// The namespace of a node of the star.
    pub fn namespace(&self, node: &str) -> Result<Namespace, ExperimentError> {
        Ok(self.lab.namespace(node)?)
    }

    /// Runs a command at a node of the star and returns its output.
    pub fn ask(&self, node: &str, command: Command) -> Result<String, ExperimentError> {
        Ok(Host::default().run(&command.in_namespace(&self.star.namespace(node)))?)
    }
}

/// Token buckets on the tenants' side of their links, where they hold a sender back as the ring of
/// a virtual machine's interface does.
fn limit(
    star: &StarTopology,
    buckets: &[Option<(BitRate, ByteCount)>],
) -> Result<(), ExperimentError> {
    for (tenant, bucket) in star.tenants.iter().zip(buckets) {
        let Some((rate, burst)) = bucket else { continue };
        let line = format!(
            "tc qdisc replace dev eth0 root tbf rate {}bit burst {} limit {RING_BYTES}",
            rate.as_bps(),
            burst.get(),
        );
        Host::default().run(&Command::line(&line).in_namespace(&star.namespace(tenant)))?;
    }
    Ok(())
}

/// A bridge over the tenants' links and the uplink, as a host without Weir has it.
fn make_bridge(star: &StarTopology) -> Result<(), ExperimentError> {
    let mut lines = vec!["link add br0 type bridge".to_owned()];
    lines.extend(star.tenants.iter().map(|tenant| format!("link set {tenant} master br0")));
    lines.push(format!("link set {UPLINK} master br0"));
    lines.push("link set br0 up".to_owned());
    let command = Command::batch("ip", lines).in_namespace(&star.namespace("sw"));
    Host::default().run(&command)?;
    for device in star.tenants.iter().map(String::as_str).chain([UPLINK]) {
        // A veth takes frames of an XDP generator only with an XDP program or GRO at its peer.
        let command = Command::new("ethtool", ["-K", device, "gro", "on"]);
        Host::default().run(&command.in_namespace(&star.namespace("sw")))?;
    }
    wait_until_forwarding(star)
}

/// A port forwards when the kernel has told the bridge of its carrier; on a busy machine that takes
/// seconds, in which everything that is sent is lost.
fn wait_until_forwarding(star: &StarTopology) -> Result<(), ExperimentError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let command = Command::line("bridge link show").in_namespace(&star.namespace("sw"));
        let said = Host::default().run(&command)?;
        let forwarding = said.matches("state forwarding").count();
        if forwarding > star.tenants.len() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let ports = star.tenants.len() + 1;
            let what = format!("{forwarding} of the bridge's {ports} ports forward");
            return Err(ExperimentError::Node(what));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// For a bridge's ports to forward.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ring of a virtual interface: 256 frames.
const RING_BYTES: u64 = 256 * 1514;
