// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A star that is up and the forwarder in its middle, for traffic and for commands beside it.

use std::path::PathBuf;
use std::time::Duration;

use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};
use weir_platform::{StateDir, Undo};
use weir_policy::{Dataplane, Policy};
use weir_testbed::{Lab, Topology};
use weir_units::{BitRate, ByteCount};

use crate::node_process::NodeProcess;
use crate::run_folder::RunFolder;
use crate::star::{StarTopology, UPLINK};
use crate::{ExperimentError, Result, clock};

/// The forwarder in the middle of the star.
#[derive(Clone, Debug)]
pub enum Forwarder {
    /// The kernel's bridge and a FIFO at the link's rate.
    Bridge,
    /// A bridge, and a token bucket of this rate and size at the device of each tenant that has one
    /// here.
    Limited(Vec<Option<(BitRate, ByteCount)>>),
    /// Weir, with this policy; below it a bridge, if the policy's data plane is the kernel's.
    Weir(Box<Policy>),
}

impl From<Policy> for Forwarder {
    fn from(policy: Policy) -> Self {
        Self::Weir(Box::new(policy))
    }
}

/// A lab that is up. It is taken down when this value is dropped.
#[derive(Debug)]
pub struct Testbed {
    star: StarTopology,
    // Fields are dropped in this order: the node needs its namespace, both need the folder.
    node: Option<NodeProcess>,
    lab: Lab,
    place: RunFolder,
}

impl Testbed {
    /// Builds the lab, with nothing in its middle. First undoes the leftovers of an earlier run of
    /// the same lab that was killed.
    pub fn up(star: &StarTopology) -> Result<Self> {
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let place = RunFolder::take(&star.name, &StateDir::from_env())?;
        let lab = build_lab(&star.topology(), &place)?;
        Ok(Self { star: star.clone(), node: None, lab, place })
    }

    /// Puts a bridge or Weir in the middle, which is empty. A node ends with the thread that put it
    /// there.
    pub fn put(&mut self, middle: &Forwarder) -> Result {
        match middle {
            Forwarder::Bridge => make_bridge(&self.star),
            Forwarder::Limited(buckets) => {
                make_bridge(&self.star)?;
                limit(&self.star, buckets)
            }
            Forwarder::Weir(policy) => {
                if policy.node.dataplane == Dataplane::Kernel {
                    make_bridge(&self.star)?;
                    // The lab's own disciplines would be in the way.
                    let tenants = self.star.tenants.iter().map(String::as_str);
                    let lines = tenants
                        .chain([UPLINK])
                        .map(|device| format!("qdisc del dev {device} root"));
                    self.ask("sw", Command::batch("tc", lines))?;
                }
                self.start_node(policy)
            }
        }
    }

    /// Starts a node on what is in the middle already, such as a bridge. It ends with the thread
    /// that started it.
    pub fn start_node(&mut self, policy: &Policy) -> Result {
        let namespace = self.lab.namespace("sw")?;
        self.node = Some(NodeProcess::start(namespace, policy, &self.place)?);
        Ok(())
    }

    /// Ends the node, if there is one, and waits until it has handed everything back.
    pub fn stop_node(&mut self) -> Result {
        self.node.take().map_or(Ok(()), NodeProcess::stop)
    }

    /// Takes everything down.
    pub fn down(mut self) -> Result {
        let stopped = self.stop_node();
        self.lab.down()?;
        stopped
    }

    /// Returns the path of a file that is removed with the testbed.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.folder().join(name)
    }

    /// Returns the star that is up.
    pub fn star(&self) -> &StarTopology {
        &self.star
    }

    /// Returns a folder for files of this run. It is root's own, and is removed with the testbed.
    pub fn folder(&self) -> &std::path::Path {
        self.place.folder()
    }

    /// Records that `undo` is to be done when this value is dropped.
    pub fn answer_for(&mut self, what: &str, undo: Undo) -> Result {
        self.place.answer_for(what, undo)
    }

    /// Returns the node in the middle.
    pub fn node(&self) -> Option<&NodeProcess> {
        self.node.as_ref()
    }

    /// Returns the node in the middle, where one must be.
    pub fn running(&self) -> Result<&NodeProcess> {
        self.node().ok_or_else(|| ExperimentError::Node("no node in the middle".to_owned()))
    }

    /// Opens the namespace of a node of the star.
    pub fn namespace(&self, node: &str) -> Result<Namespace> {
        Ok(self.lab.namespace(node)?)
    }

    /// Runs a command at a node of the star and returns its output.
    pub fn ask(&self, node: &str, command: Command) -> Result<String> {
        Ok(Host::default().run(&command.in_namespace(&self.star.namespace(node)))?)
    }
}

/// Builds the lab of a topology, whose state is kept in `place`.
pub fn build_lab(topology: &str, place: &RunFolder) -> Result<Lab> {
    let topology = Topology::parse(topology)
        .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
    Ok(Lab::up(topology, place.state())?)
}

/// Puts token buckets on the tenants' side of their links, where they hold a sender back as the
/// ring of a virtual machine's interface does.
fn limit(star: &StarTopology, buckets: &[Option<(BitRate, ByteCount)>]) -> Result {
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

/// Makes a bridge over the tenants' links and the uplink, as a host without Weir has it.
fn make_bridge(star: &StarTopology) -> Result {
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
    wait_until_forwarding(&star.namespace("sw"), star.tenants.len() + 1)
}

/// Waits until that many ports of a namespace's bridges forward, which they do once the kernel has
/// noticed their carriers. On a busy machine that takes seconds; all frames until then are lost.
pub fn wait_until_forwarding(namespace: &str, ports: usize) -> Result {
    let mut forwarding = 0;
    let command = Command::line("bridge link show").in_namespace(namespace);
    let all = clock::wait_for(PATIENCE, clock::SIGNAL_POLL, || {
        forwarding = Host::default().run(&command)?.matches("state forwarding").count();
        Ok((forwarding >= ports).then_some(()))
    })?;
    let what = || format!("{forwarding} of the bridge's {ports} ports forward");
    all.ok_or_else(|| ExperimentError::Node(what()))
}

/// The longest wait for a bridge's ports to forward.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of a virtual interface's ring: 256 frames.
const RING_BYTES: u64 = 256 * 1514;
