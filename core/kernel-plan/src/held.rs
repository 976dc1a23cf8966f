// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of a policy that a host's kernel does not hold, each with the reason.
//!
//! A *problem* refuses the policy: a limit or a separation of tenants would be missing. A key that
//! is *not held* is reported, and the rest is enforced.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use weir_policy::{
    Direction, ExpandedPolicy, PihForm, Policy, Port, Queue, QueueKind, SchedulerKind, Vif,
};

use crate::facts::{HostFacts, in_the_way};
use crate::terms::QdiscTree;

/// A key, and why the policy is refused for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProblem {
    /// The item and its key, such as `vif "a".filter`.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// A key that is not held, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnheldKey {
    /// The item and its key.
    pub place: String,
    /// The reason.
    pub reason: String,
}

impl KernelProblem {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }

    /// Returns why a host without any scheduler is refused; `None` if it has one.
    pub(crate) fn of_schedulers(facts: &HostFacts) -> Option<Self> {
        let has_none = !facts.qdiscs.htb && !facts.qdiscs.hfsc;
        let reason = "this kernel has neither sch_hfsc nor sch_htb";
        has_none.then(|| Self::new("node.dataplane", reason))
    }
}

impl fmt::Display for KernelProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

impl fmt::Display for UnheldKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// The keys that this data plane refuses on every host, as `ITEM.KEY`: what they ask for would be
/// missing. `docs/kernel.md` lists them.
pub const REFUSED_KEYS: [&str; 15] = [
    "port.pih",
    "port.cycle",
    "port.scheduler",
    "port.layer",
    "slice.vlan",
    "slice.pih",
    "slice.match",
    "router.xtc",
    "router.realtime",
    "vif.addresses",
    "vif.storm",
    "vif.filter",
    "vif.send.shaper",
    "vif.receive.shaper",
    "vif.mac",
];

/// Returns the keys for which the policy is refused.
pub(crate) fn problems(policy: &Policy, facts: &HostFacts) -> Vec<KernelProblem> {
    let mut list = Vec::new();
    if !facts.qdiscs.ifb {
        receive_problems(policy, &mut list);
    }
    for port in &policy.ports {
        let at = |key: &str| refused("port", &port.name, key);
        let keys = [("pih", port.pih != PihForm::Header), ("cycle", port.cycle.is_some())];
        list.extend(given(&keys, at, NOT_YET));
        if port.scheduler != SchedulerKind::Hfsc {
            let reason = "the kernel has trees of HFSC or HTB only: leave the key out";
            list.push(KernelProblem::new(at("scheduler"), reason));
        }
        if port.packet_overhead() != 0 {
            let reason = "the kernel counts layer 2 without FCS: a super-frame would have the \
                          overhead of one packet";
            list.push(KernelProblem::new(at("layer"), reason));
        }
        rule_problems(port, &mut list);
    }
    for slice in &policy.slices {
        let at = |key: &str| refused("slice", &slice.name, key);
        let keys = [
            ("vlan", slice.vlan.is_some()),
            ("pih", slice.pih.is_some()),
            ("match", !slice.five_tuples.is_empty()),
        ];
        list.extend(given(&keys, at, NOT_YET));
    }
    for router in &policy.routers {
        let at = |key: &str| refused("router", &router.name, key);
        let keys = [("xtc", router.xtc.is_some()), ("realtime", router.realtime.is_some())];
        list.extend(given(&keys, at, NOT_YET));
    }
    for vif in &policy.vifs {
        vif_problems(vif, &|key| refused("vif", &vif.name, key), &mut list);
    }
    list
}

/// Returns the place of a key of an item that is refused.
fn refused(item: &str, name: &str, key: &str) -> String {
    let is_listed = |listed: &str| listed.split_once('.') == Some((item, key));
    debug_assert!(REFUSED_KEYS.into_iter().any(is_listed), "{item}.{key} is in REFUSED_KEYS");
    format!("{item} {name:?}.{key}")
}

/// The keys of rules, which hold for each vif and slice that a rule makes.
fn rule_problems(port: &Port, list: &mut Vec<KernelProblem>) {
    for (index, rule) in port.rules.iter().enumerate() {
        let at = |key: &str| format!("port {:?}.rule {}.{key}", port.name, index + 1);
        vif_problems(&rule.vif, &at, list);
    }
}

fn vif_problems(vif: &Vif, at: &dyn Fn(&str) -> String, list: &mut Vec<KernelProblem>) {
    let smooth = |direction| vif.shaper(direction).is_some();
    let keys = [
        ("addresses", !vif.addresses.is_empty()),
        ("storm", vif.storm.is_some()),
        ("filter", !vif.filter.is_empty()),
        ("send.shaper", smooth(Direction::Send)),
        ("receive.shaper", smooth(Direction::Receive)),
    ];
    list.extend(given(&keys, at, NOT_YET));
    if vif.macs.len() > MACS_MAX {
        let count = vif.macs.len();
        let reason = format!("{count} addresses; the programs check {MACS_MAX} at most");
        list.push(KernelProblem::new(at("mac"), reason));
    }
}

/// Returns a problem for each key that is given, all for one reason.
pub(crate) fn given<'k>(
    keys: &'k [(&'k str, bool)],
    at: impl Fn(&str) -> String + 'k,
    reason: &'k str,
) -> impl Iterator<Item = KernelProblem> + 'k {
    let given = keys.iter().filter(|(_, given)| *given);
    given.map(move |(key, _)| KernelProblem::new(at(key), reason))
}

/// The guarantees of what is received, and limits of what the host itself receives, on a host that
/// has no device for a tree before its bridge.
fn receive_problems(policy: &Policy, list: &mut Vec<KernelProblem>) {
    let slices = policy.slices.iter().map(|one| (named("slice", &one.name), "", &one.receive));
    let routers = policy.routers.iter().map(|one| (named("router", &one.name), "", &one.receive));
    let vifs = policy.vifs.iter().map(|one| (named("vif", &one.name), "", &one.receive));
    let rules = policy.ports.iter().flat_map(|port| {
        port.rules.iter().enumerate().flat_map(|(index, rule)| {
            let item = format!("port {:?}.rule {}", port.name, index + 1);
            [(item.clone(), "", &rule.vif.receive), (item, "slice_", &rule.slice.receive)]
        })
    });
    let hosts = policy
        .ports
        .iter()
        .filter_map(|port| Some((named("port", &port.name), "host_", port.host_receive.as_ref()?)));
    let limits = hosts.clone().filter(|(_, _, host)| host.rate.is_some());
    let limits = limits.map(|(item, part, _)| (item, part, "rate"));
    let all = slices.chain(routers).chain(vifs).chain(rules).chain(hosts);
    let given = all.filter(|(_, _, receive)| !receive.min_rate.is_zero());
    let given = given.map(|(item, part, _)| (item, part, "min_rate")).chain(limits);
    let reason = "needs devices of kind ifb (CONFIG_IFB) that take redirected frames (Linux 6.4), \
                  which this kernel lacks";
    list.extend(given.map(|(item, part, key)| {
        KernelProblem::new(format!("{item}.{part}receive.{key}"), reason)
    }));
}

/// The kinds of a port's trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortTrees {
    /// The tree of what its vifs send; `None`: its device cannot have one.
    pub(crate) send: Option<QdiscTree>,
    /// The tree of what they receive from it, if it has one.
    pub(crate) receive: Option<QdiscTree>,
}

/// Returns the keys that trees and queues do not hold, and the devices that no vif names. `trees`
/// are those of the ports, in their order; a port that waits for its device has none.
pub(crate) fn unheld(
    expanded: &ExpandedPolicy,
    facts: &HostFacts,
    trees: &[Option<PortTrees>],
) -> Vec<UnheldKey> {
    let policy = &expanded.policy;
    let mut list = Vec::new();
    let mut say = |place: String, reason: String| list.push(UnheldKey { place, reason });
    let sending: Vec<_> = trees.iter().map(|trees| trees.as_ref()?.send).collect();
    let receiving: Vec<_> = trees.iter().map(|trees| trees.as_ref()?.receive).collect();
    share_unheld(policy, Direction::Send, &sending, &mut say);
    share_unheld(policy, Direction::Receive, &receiving, &mut say);
    for vif in &policy.vifs {
        let item = named("vif", &vif.name);
        for (key, reason) in foreign_limits(vif, facts) {
            say(format!("{item}.{key}"), reason);
        }
        if let Some(vlans) = facts.tagged_vlans(&vif.device) {
            let reason = format!(
                "device {} has VLANs {vlans} with tags on its bridge; frames that the vif tags are \
                 dropped (unexpected_tag)",
                vif.device
            );
            say(format!("{item}.device"), reason);
        }
        if vif.delay.is_some() && tree_of(vif, &sending) == Some(QdiscTree::Htb) {
            say(format!("{item}.delay"), DELAY_BY_HTB.to_string());
        }
        for (key, reason) in queue_unheld(&vif.send_queue, facts) {
            say(format!("{item}.send.queue.{key}"), reason.to_string());
        }
        let is_scheduled = tree_of(vif, &receiving).is_some();
        for (key, reason) in queue_unheld(&vif.receive_queue, facts) {
            // Without a rate or a minimum there is no queue.
            if vif.receive.rate.is_some() || is_scheduled {
                say(format!("{item}.receive.queue.{key}"), reason.to_string());
            }
        }
        let waits = tree_of(vif, &sending).is_none();
        if vif.receive.priority != 1 && !is_scheduled && !waits {
            let reason = "what vifs receive is limited, not scheduled, where none of the port has \
                          a receive.min_rate";
            say(format!("{item}.receive.priority"), reason.to_string());
        }
    }
    // A port that waits for its device has no trees yet.
    for (port, trees) in policy.ports.iter().zip(trees) {
        let Some(trees) = trees else { continue };
        list.extend(host_priority(port, Direction::Send, trees.send));
        list.extend(host_priority(port, Direction::Receive, trees.receive));
    }
    list.extend(crossing(policy, facts));
    list.extend(waiting(policy, &receiving));
    list.extend(unnamed(expanded, facts));
    list
}

/// Names the ports whose frames wait in a tree although `node.redirect` would have them pass.
fn waiting(policy: &Policy, trees: &[Option<QdiscTree>]) -> impl Iterator<Item = UnheldKey> {
    let ports = policy.ports.iter().zip(trees);
    let ports = ports.filter(|(_, tree)| policy.node.redirect && tree.is_some());
    ports.map(|(port, _)| {
        let reason = format!(
            "port {:?} schedules what it brings: its frames wait in a tree, and cross the bridge",
            port.name
        );
        UnheldKey { place: "node.redirect".to_string(), reason }
    })
}

/// Names the devices whose frames cross the bridge although `node.redirect` would have them pass.
fn crossing(policy: &Policy, facts: &HostFacts) -> impl Iterator<Item = UnheldKey> {
    let ports = policy.ports.iter().flat_map(|port| port.bridge.iter().chain([&port.device]));
    let devices = ports.chain(policy.vifs.iter().map(|vif| &vif.device));
    let devices = devices.filter(|_| policy.node.redirect);
    devices.filter_map(|device| {
        let why = facts.why_crosses(device)?;
        let reason = format!("device {device} has {why}: its frames cross the bridge");
        Some(UnheldKey { place: "node.redirect".to_string(), reason })
    })
}

/// Tells of the keys of a direction that its trees do not hold; `None`: a port has none.
fn share_unheld(
    policy: &Policy,
    direction: Direction,
    trees: &[Option<QdiscTree>],
    say: &mut impl FnMut(String, String),
) {
    let of = match direction {
        Direction::Send => "send",
        Direction::Receive => "receive",
    };
    let slices = policy.slices.iter().map(|one| (named("slice", &one.name), one.share(direction)));
    let routers =
        policy.routers.iter().map(|one| (named("router", &one.name), one.share(direction)));
    let has_hfsc = trees.contains(&Some(QdiscTree::Hfsc));
    if has_hfsc {
        let groups = slices.clone().chain(routers.clone());
        for (item, _) in groups.filter(|(_, share)| !share.min_rate.is_zero()) {
            let reason = "HFSC guarantees rates to vifs only: what is beyond theirs is shared by \
                          priority";
            say(format!("{item}.{of}.min_rate"), reason.to_string());
        }
    }
    // Each share has the trees that bound its priority. HTB bounds that of a slice alone: it
    // divides a slice's turns among its vifs in any proportion.
    let kinds = [QdiscTree::Hfsc, QdiscTree::Htb];
    let kinds: Vec<QdiscTree> =
        kinds.into_iter().filter(|tree| trees.contains(&Some(*tree))).collect();
    let if_hfsc = |is_hfsc: bool| if is_hfsc { &[QdiscTree::Hfsc][..] } else { &[] };
    let slices = slices.map(|(item, share)| (item, share, &kinds[..]));
    let routers = routers.map(|(item, share)| (item, share, if_hfsc(has_hfsc)));
    let vifs = policy.vifs.iter().map(|one| {
        let is_hfsc = tree_of(one, trees) == Some(QdiscTree::Hfsc);
        (named("vif", &one.name), one.share(direction), if_hfsc(is_hfsc))
    });
    for (item, share, bounding) in slices.chain(routers).chain(vifs) {
        for tree in bounding.iter().filter(|tree| share.priority > tree.priority_max()) {
            say(format!("{item}.{of}.priority"), counts_as(share.priority, *tree));
        }
        if share.min_pps.as_pps() > 0 {
            let reason = "a share of packets is checked against node.capacity only";
            say(format!("{item}.{of}.min_pps"), reason.to_string());
        }
    }
}

fn named(kind: &str, name: &str) -> String {
    format!("{kind} {name:?}")
}

fn tree_of(vif: &Vif, trees: &[Option<QdiscTree>]) -> Option<QdiscTree> {
    trees.get(vif.port.0 as usize).copied().flatten()
}

/// Names the disciplines of somebody else at a vif's device, each with the key that it bears upon:
/// a hypervisor's own limits, such as libvirt's `<bandwidth>` and the `rate` of Proxmox.
fn foreign_limits(vif: &Vif, facts: &HostFacts) -> impl Iterator<Item = (&'static str, String)> {
    let device = &vif.device;
    let root = facts.foreign_qdisc(device).map(|qdisc| {
        let reason = in_the_way(device, qdisc);
        match vif.receive.rate {
            Some(_) => {
                let what = "the limit is held by dropping, without a queue";
                ("receive.rate", format!("{reason}; {what}"))
            }
            None => ("receive", format!("{reason}; it may limit what the vif receives")),
        }
    });
    let ingress = facts.foreign_ingress(device).map(|qdisc| {
        let kind = qdisc.split(' ').next().unwrap_or_default();
        let reason = format!(
            "device {device} has a discipline of others at its ingress, {qdisc}, whose filters may \
             limit what the vif sends; `tc qdisc del dev {device} {kind}` removes it"
        );
        ("send", reason)
    });
    root.into_iter().chain(ingress)
}

/// Devices of the ports' bridges that are neither a port's nor a vif's.
fn unnamed(expanded: &ExpandedPolicy, facts: &HostFacts) -> impl Iterator<Item = UnheldKey> {
    let policy = &expanded.policy;
    let is_named = |device: &str| {
        policy.ports.iter().any(|port| port.device == device)
            || policy.vifs.iter().any(|vif| vif.device == device)
    };
    facts.devices.iter().filter_map(move |(device, found)| {
        let bridge = found.bridge.as_ref()?;
        let port = policy.ports.iter().find(|port| port.bridge.as_ref() == Some(bridge))?;
        let why = match expanded.untaken.get(device) {
            Some(reason) => reason,
            None if port.rules.is_empty() => "no vif names it",
            None => "no vif and no rule names it",
        };
        let reason = format!(
            "device {device} is on this bridge, but {why}: it is neither limited nor isolated"
        );
        let place = format!("port {:?}.bridge {bridge}", port.name);
        (!is_named(device)).then_some(UnheldKey { place, reason })
    })
}

fn counts_as(priority: u32, tree: QdiscTree) -> String {
    let (most, name) = (tree.priority_max(), tree.name().to_uppercase());
    format!("{priority} is treated as {most}, the highest that {name} can hold")
}

/// Reports the priority of the host's own frames, if a port's tree does not hold it. `tree` is
/// `None` if there is no tree.
pub(crate) fn host_priority(
    port: &Port,
    direction: Direction,
    tree: Option<QdiscTree>,
) -> Option<UnheldKey> {
    let priority = port.host_share(direction)?.priority;
    let reason = match tree {
        Some(tree) if priority > tree.priority_max() => counts_as(priority, tree),
        None if direction == Direction::Receive && priority != 1 => {
            "received traffic is not scheduled on this port: that takes a receive.min_rate, \
             host_receive.min_rate or host_receive.rate"
                .to_string()
        }
        _ => return None,
    };
    let place = format!("port {:?}.host_{}.priority", port.name, direction.name());
    Some(UnheldKey { place, reason })
}

pub(crate) fn queue_unheld(queue: &Queue, facts: &HostFacts) -> Vec<(&'static str, &'static str)> {
    let flows = queue.kind == QueueKind::Flows;
    let mut list = Vec::new();
    if flows && !facts.qdiscs.fq_codel {
        list.push(("kind", "\"flows\" needs sch_fq_codel, which is absent: one queue (bfifo)"));
    } else if !flows && queue.codel.is_some() {
        list.push(("aqm", "not held in one queue (bfifo)"));
    }
    if queue.l4s.is_some() {
        list.push(("l4s", "not held"));
    }
    list
}

/// The reason of a delay on a host without HFSC.
pub(crate) const DELAY_BY_HTB: &str = "not held by HTB here; HFSC (sch_hfsc) would";

const NOT_YET: &str = "not held by node.dataplane = \"kernel\" yet; \"switch\" holds it";

/// Source addresses that the programs check.
pub(crate) const MACS_MAX: usize = 8;
