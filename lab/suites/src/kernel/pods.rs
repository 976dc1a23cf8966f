// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two pods on the adopted bridge, by CNI: Debian's plug-ins `bridge` and `host-local` make their
//! interfaces, and `weir-cni`, chained behind them, makes these vifs of the running node. Each pod
//! is limited and guaranteed both ways, and nothing is left after DEL or GC.
//!
//! A pod is a namespace. The chain is run here as the specification says (*Section 3* and
//! *Section 4*): each plug-in gets the network's configuration with the result of the one before,
//! and DEL goes backwards.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::Slice;

use super::host_lines::{differences, host_lines};
use super::setting::policy;

/// Shows the part of the row, or says what this machine lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let plugins = Path::new(PLUGINS);
    if !["bridge", "host-local"].iter().all(|name| plugins.join(name).is_file()) {
        let text = format!(
            "SKIPPED the pods: no CNI plug-ins in {PLUGINS} (Debian: containernetworking-plugins)"
        );
        rec.say(&text);
        return Ok(());
    }
    rec.within("cni/", attach)
}

fn attach(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let mut star = StarTopology::new("kernel-pods", 0, LINK);
    star.resolves = true;
    star.more = "[[node]]\nname = \"pod0\"\n[[node]]\nname = \"pod1\"\n";
    let mut rig = Testbed::up(&star)?;
    let mut policy = policy(&star);
    policy.add_slice(Slice::new(NETWORK));
    rig.put(&policy.into())?;
    let network = PodNetwork::of(&rig)?;
    wait_until_up(&rig)?;
    let before = host(&rig)?;
    for operation in ["ADD", "CHECK"] {
        for pod in &PODS {
            network.chain(&rig, operation, pod)?;
        }
    }
    let vifs = rig.running()?.status()?.vifs.len();
    measure(rec, &rig)?;
    let wrong = network.errors(&rig)?;
    // The runtime lost the first pod, and never calls weir-cni with DEL.
    network.plugin(&rig, "DEL", &PODS[0], &network.bridge())?;
    network.plugin(
        &rig,
        "GC",
        &PODS[0],
        &with(
            network.weir(&PODS[0]),
            json!({
                "cni.dev/valid-attachments": [{ "containerID": PODS[1].node, "ifname": "eth0" }],
            }),
        ),
    )?;
    let after_gc = rig.running()?.status()?.vifs.len();
    // A second DEL finds nothing left and succeeds, as the specification asks.
    for _ in 0..2 {
        network.chain(&rig, "DEL", &PODS[1])?;
    }
    let left = rig.running()?.status()?.vifs.len() as u64 + differences(&before, &host(&rig)?);
    rig.stop_node()?;
    let status = network.error(&rig, "STATUS", &network.weir(&PODS[0]))?;
    rig.down()?;
    rec.at_least("pods", "pods that were vifs", vifs as u64, 2)?;
    rec.count("collected", "vifs after GC", after_gc as u64, Bound::equal(1.0))?;
    rec.none("left", "vifs, devices and disciplines left after DEL", left)?;
    rec.none("errors", "bad calls that were not answered as the specification says", wrong)?;
    rec.count("status", "code of STATUS without a node", status, Bound::equal(50.0))
}

/// Has both pods and the wire send more than they may.
fn measure(rec: &mut Recording<'_>, rig: &Testbed) -> Result {
    let star = rig.star();
    let seconds = if rec.quick { 6 } else { 12 };
    let load = Some(Rate::Bps(LOAD_BPS));
    let mut senders = Vec::new();
    let mut receivers = vec![star.sink()];
    for (number, pod) in (0..).zip(&PODS) {
        senders.push(star.udp_from(pod.node, StarTopology::wire_address(), number, 1000, load));
        senders.push(star.udp_from("wire", pod.address, TOWARDS + number, 1000, load));
        receivers.push(star.sink_at(pod.node));
    }
    let run =
        TrafficRun { senders, receivers, ..TrafficRun::new(star, Forwarder::Bridge, seconds) };
    let (outcome, ()) = run.flow(rig, |_| Ok(()))?;
    let mut all = Vec::new();
    for (number, (at, pod)) in (0..).zip((1..).zip(&PODS)) {
        let sends = (0, number, "sends", pod.min_bps, pod.egress_bps);
        let receives = (at, TOWARDS + number, "receives", pod.ingress_bps, pod.ingress_bps);
        for (receiver, stream, way, least, most) in [sends, receives] {
            let name = format!("{}/{way}", pod.node);
            let got = outcome.got(receiver, stream).into_iter().skip(2).collect();
            rec.keep(&name, Series::sampled("bit/s", 1.0, got))?;
            let text = format!("{} {way}: median second", pod.node);
            let bound = Bound::at_least(0.95 * float(least));
            rec.claim(format!("{name}/least"), text, Rule::Median, bound, &[&name])?;
            let text = format!("{} {way}: any second", pod.node);
            let bound = Bound::at_most(1.02 * float(most));
            rec.claim(format!("{name}/most"), text, Rule::Max, bound, &[&name])?;
            all.extend((way == "sends").then_some(name));
        }
    }
    let bound = Bound::at_least(0.9 * float(LINK.as_bps()));
    rec.claim("link", "the link in the least used second", Rule::LeastTotal, bound, &all)
}

/// A network of two plug-ins, and where its programs and their state are.
struct PodNetwork {
    /// The program `weir-cni`, beside `weir`.
    weir: PathBuf,
    /// The node's state folder.
    state: PathBuf,
    /// The addresses that `host-local` gave away.
    leases: PathBuf,
    node: String,
}

impl PodNetwork {
    fn of(rig: &Testbed) -> Result<Self> {
        let weir = weir_experiment::product::path()?.with_file_name("weir-cni");
        if !weir.is_file() {
            let (what, needs) = ("pods".to_owned(), format!("{} (cargo build)", weir.display()));
            return Err(ExperimentError::Missing { what, needs });
        }
        let socket = rig.running()?.socket();
        let state = socket.parent().unwrap_or(socket).to_owned();
        Ok(Self { weir, state, leases: rig.file("leases"), node: rig.star().name.clone() })
    }

    fn bridge(&self) -> Value {
        json!({
            "cniVersion": VERSION, "name": NETWORK, "type": "bridge", "bridge": "br0",
            "ipam": {
                "type": "host-local", "dataDir": self.leases,
                "ranges": [[{ "subnet": "198.18.0.0/16", "rangeStart": PODS[0].address }]],
            },
        })
    }

    fn weir(&self, pod: &ReplayedPod) -> Value {
        json!({
            "cniVersion": VERSION, "name": NETWORK, "type": "weir-cni",
            "capabilities": { "bandwidth": true }, "node": self.node, "state": self.state,
            "send": { "min_rate": format!("{}bit", pod.min_bps), "burst": "50kB" },
            "runtimeConfig": { "bandwidth": {
                // kubelet writes this burst to mean none: the network's burst holds.
                "egressRate": pod.egress_bps, "egressBurst": i32::MAX,
                "ingressRate": pod.ingress_bps, "ingressBurst": BURST_BITS,
            } },
        })
    }

    /// Runs the chain for a pod: forwards, but backwards for DEL.
    fn chain(&self, rig: &Testbed, operation: &str, pod: &ReplayedPod) -> Result {
        let results = rig.file(&format!("{}.result", pod.node));
        let mut plugins = [self.bridge(), self.weir(pod)];
        if operation == "DEL" {
            plugins.reverse();
        }
        let mut before = match operation {
            "ADD" => None,
            _ => Some(read_json(&results)?),
        };
        for plugin in plugins {
            let configuration = match &before {
                Some(result) => with(plugin, json!({ "prevResult": result })),
                None => plugin,
            };
            let said = self.plugin(rig, operation, pod, &configuration)?;
            if operation == "ADD" {
                before = Some(parsed(&said)?);
            }
        }
        if let (Some(result), "ADD") = (before, operation) {
            let text = result.to_string();
            std::fs::write(&results, text).map_err(|error| ExperimentError::io(&results, error))?;
        }
        Ok(())
    }

    /// Runs one plug-in and returns its output.
    fn plugin(
        &self,
        rig: &Testbed,
        operation: &str,
        pod: &ReplayedPod,
        configuration: &Value,
    ) -> Result<String> {
        let program = match configuration["type"].as_str() {
            Some("weir-cni") => self.weir.clone(),
            other => Path::new(PLUGINS).join(other.unwrap_or_default()),
        };
        let namespace = rig.star().namespace(pod.node);
        let words = [
            format!("CNI_COMMAND={operation}"),
            format!("CNI_CONTAINERID={}", pod.node),
            format!("CNI_NETNS=/run/netns/{namespace}"),
            "CNI_IFNAME=eth0".to_owned(),
            format!("CNI_PATH={PLUGINS}"),
            program.display().to_string(),
        ];
        rig.ask("sw", Command::new("env", words).reading(configuration.to_string()))
    }

    /// Returns the error code of a call of `weir-cni` that should fail, 0 if it does not.
    fn error(&self, rig: &Testbed, operation: &str, configuration: &Value) -> Result<u64> {
        // Otherwise its exit status would become the script's.
        let script = format!("CNI_COMMAND={operation} \"$0\" || [ $? = 1 ]");
        let namespace = rig.star().namespace(PODS[0].node);
        let words = [
            format!("CNI_CONTAINERID={}", PODS[0].node),
            format!("CNI_NETNS=/run/netns/{namespace}"),
            "CNI_IFNAME=eth0".to_owned(),
            "sh".to_owned(),
            "-c".to_owned(),
            script,
            self.weir.display().to_string(),
        ];
        let command = Command::new("env", words);
        let said = rig.ask("sw", command.reading(configuration.to_string()))?;
        let answer = if said.is_empty() { Value::Null } else { parsed(&said)? };
        let whole = answer["cniVersion"].is_string() && answer["msg"].is_string();
        Ok(answer["code"].as_u64().filter(|_| whole).unwrap_or(0))
    }

    /// Returns the number of bad calls whose answer differs from the specification's.
    fn errors(&self, rig: &Testbed) -> Result<u64> {
        let good = || {
            let result = read_json(&rig.file("pod0.result"))?;
            Ok::<_, ExperimentError>(with(self.weir(&PODS[0]), json!({ "prevResult": result })))
        };
        let cases = [
            ("ADDD", good()?, 4),
            ("ADD", with(good()?, json!({ "cniVersion": "0.2.0" })), 1),
            ("ADD", with(good()?, json!({ "recieve": {} })), 2),
            ("ADD", with(good()?, json!({ "send": { "rate": "fast" } })), 7),
            ("ADD", with(good()?, json!({ "prevResult": null })), 7),
            // The vif is there already; the slice is not.
            ("ADD", good()?, 100),
            ("ADD", with(good()?, json!({ "name": "other" })), 100),
            ("CHECK", with(good()?, json!({ "name": "other" })), 100),
            ("DEL", with(good()?, json!({ "node": "nobody" })), 11),
            ("GC", good()?, 7),
        ];
        let mut wrong = 0;
        for (operation, configuration, code) in cases {
            wrong += u64::from(self.error(rig, operation, &configuration)? != code);
        }
        Ok(wrong)
    }
}

fn with(mut configuration: Value, more: Value) -> Value {
    if let (Some(keys), Value::Object(more)) = (configuration.as_object_mut(), more) {
        keys.extend(more);
    }
    configuration
}

fn parsed(text: &str) -> Result<Value> {
    let bad = |error| ExperimentError::Node(format!("a plug-in said: {text}: {error}"));
    serde_json::from_str(text).map_err(bad)
}

fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|error| ExperimentError::io(path, error))?;
    parsed(&text)
}

/// Waits until the bridge is up for good.
fn wait_until_up(rig: &Testbed) -> Result {
    let up = clock::wait_for(PATIENCE, POLL, || {
        let bridge = rig.ask("sw", Command::line("ip -br link show br0"))?;
        Ok(bridge.contains(" UP ").then_some(()))
    })?;
    up.ok_or_else(|| ExperimentError::Node("br0 does not come up".to_owned()))
}

/// Returns disciplines, classes, devices and members of the bridge.
fn host(rig: &Testbed) -> Result<Vec<String>> {
    host_lines(
        rig,
        &["tc qdisc show", "tc class show dev up0", "ip -br link show", "bridge link show"],
    )
}

/// A pod: its namespace and the name of its container, and what it may use.
struct ReplayedPod {
    node: &'static str,
    /// The address that `host-local` gives the pod: addresses are given away in order.
    address: Ipv4Addr,
    min_bps: u64,
    egress_bps: u64,
    ingress_bps: u64,
}

const PODS: [ReplayedPod; 2] = [
    ReplayedPod {
        node: "pod0",
        address: Ipv4Addr::new(198, 18, 0, 10),
        min_bps: 20_000_000,
        egress_bps: 22_000_000,
        ingress_bps: 15_000_000,
    },
    ReplayedPod {
        node: "pod1",
        address: Ipv4Addr::new(198, 18, 0, 11),
        min_bps: 5_000_000,
        egress_bps: 30_000_000,
        ingress_bps: 10_000_000,
    },
];

/// The folder of Debian's plug-ins.
const PLUGINS: &str = "/usr/lib/cni";
const VERSION: &str = "1.0.0";
/// The network, and the slice of its pods.
const NETWORK: &str = "pods";
const LINK: BitRate = BitRate::from_mbps(30);
const LOAD_BPS: u64 = 40_000_000;
const BURST_BITS: u64 = 400_000;
/// Streams to pods are numbered from here.
const TOWARDS: u16 = 100;
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
