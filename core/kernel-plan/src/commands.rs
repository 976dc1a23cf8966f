// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles a policy for a host that loads no programs: commands alone.
//!
//! A slice is told by its VLAN. On each port it has a device of that VLAN and a bridge of its own,
//! which joins this device and the slice's vifs: frames of one slice reach no other, whatever tags
//! its tenant writes, and none reaches the host itself. The tree at the port is that of every other
//! plan. A filter at its root finds a frame's class by VLAN, and by source address for a vif that
//! has `mac`.
//!
//! Vifs of a slice without `mac` cannot be told apart at their port. They have one class, whose
//! guarantee, limit and priority are the sums of theirs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_policy::{
    Direction, MacAddr, PihForm, Policy, PortId, SchedulerKind, Share, Slice, SliceId, Vif,
};
use weir_units::BitRate;

use crate::compile::{Compiler, owner_names};
use crate::facts::{self, BridgePortFacts, HostFacts};
use crate::held::{self, KernelProblem, UnheldKey};
use crate::object::{
    BridgeObject, FilterObject, JoinedObject, KernelObject, SealObject, VlanObject,
};
use crate::setup::KernelSetup;

/// The result of a compilation to commands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandsOnly {
    /// The objects.
    pub setup: KernelSetup,
    /// The keys that are not held, each with the reason.
    pub unheld: Vec<UnheldKey>,
    /// Ports that are left out with their vifs, or whose trees are, as long as something at the
    /// host is in their way.
    pub ports_left_out: Vec<KernelProblem>,
    /// Vifs that are left out for such a reason.
    pub vifs_left_out: Vec<KernelProblem>,
    /// Vifs whose device is missing: they are joined to their bridge when it is there.
    pub waiting: Vec<String>,
}

/// Compiles `policy` for a host that loads no programs. Numbers and schedulers stay as they are in
/// `before`.
///
/// # Errors
/// All reasons for which the policy cannot be enforced there.
pub fn compile_commands(
    policy: &Policy,
    facts: &HostFacts,
    before: &KernelSetup,
) -> Result<CommandsOnly, Vec<KernelProblem>> {
    let problems = problems(policy, facts);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (mut ports_left_out, mut vifs_left_out) = (Vec::new(), Vec::new());
    let left_out = [&mut ports_left_out, &mut vifs_left_out];
    let policy = &without_what_is_in_the_way(policy, facts, left_out);
    let mut unheld = unheld(policy, facts);
    let merged = with_shared_classes(policy, &mut unheld);
    let present: Vec<&Vif> = merged.vifs.iter().collect();
    let owners = before
        .numbers(&owner_names(&merged, &present), OWNERS_END)
        .map_err(|full| Vec::from([full]))?;
    let compiler = Compiler { policy: &merged, facts, before, present, owners: &owners };
    let mut objects = Vec::new();
    for (id, port) in merged.ports() {
        if let Some(qdisc) = facts.foreign_qdisc(&port.device) {
            let at = format!("port {:?}.device", port.name);
            ports_left_out.push(KernelProblem::new(at, facts::in_the_way(&port.device, qdisc)));
            continue;
        }
        let trees = compiler.port(id, port, &mut objects);
        unheld.extend(held::host_priority(port, Direction::Send, trees.send));
        compiler.filters(id, &mut objects);
    }
    let is_here = |vif: &&Vif| facts.devices.contains_key(&vif.device);
    let (here, waits): (Vec<&Vif>, Vec<&Vif>) = policy.vifs.iter().partition(is_here);
    let own = Compiler { policy, facts, before, present: here.clone(), owners: &owners };
    own.receivers(&mut objects);
    join(policy, facts, &here, &mut objects);
    let waiting = waits.into_iter().map(|vif| vif.name.clone()).collect();
    let setup = KernelSetup { owners, objects };
    Ok(CommandsOnly { setup, unheld, ports_left_out, vifs_left_out, waiting })
}

/// Returns the policy without the ports and vifs that this host cannot have now: so that the others
/// do not wait for them.
fn without_what_is_in_the_way(
    policy: &Policy,
    facts: &HostFacts,
    [ports_left_out, vifs_left_out]: [&mut Vec<KernelProblem>; 2],
) -> Policy {
    let mut left = policy.clone();
    let mut gone = BTreeSet::new();
    for (id, port) in policy.ports() {
        let device = &port.device;
        let reason = match facts.devices.get(device) {
            None => format!("device {device}: there is none"),
            Some(BridgePortFacts { bridge: Some(master), .. }) => format!(
                "device {device} is a port of {master}, whose frames would be among the networks'"
            ),
            Some(_) => continue,
        };
        ports_left_out.push(KernelProblem::new(format!("port {:?}.device", port.name), reason));
        gone.insert(id);
    }
    left.vifs.retain(|vif| {
        let number = number_of(facts, &policy[vif.port].device);
        let own = policy[vif.slice].vlan.map(|vlan| bridge_name(number, vlan));
        let master = facts.devices.get(&vif.device).and_then(|found| found.bridge.as_ref());
        let other = master.filter(|master| own.as_ref() != Some(master));
        if let Some(other) = other {
            let device = &vif.device;
            let reason = format!("device {device} is a port of {other}, which is not the slice's");
            let at = format!("vif {:?}.device", vif.name);
            vifs_left_out.push(KernelProblem::new(at, reason));
        }
        other.is_none() && !gone.contains(&vif.port)
    });
    // Vifs know their ports by their places.
    let kept: Vec<PortId> =
        policy.ports().map(|(id, _)| id).filter(|id| !gone.contains(id)).collect();
    left.ports = kept.iter().map(|id| policy[*id].clone()).collect();
    for vif in &mut left.vifs {
        let place = kept.iter().position(|id| *id == vif.port).unwrap_or_default();
        vif.port = PortId(u32::try_from(place).unwrap_or(u32::MAX));
    }
    left
}

/// Returns the policy with one vif in the place of all those of a slice at a port that have no
/// address.
fn with_shared_classes(policy: &Policy, unheld: &mut Vec<UnheldKey>) -> Policy {
    let mut groups: BTreeMap<(PortId, SliceId), Vec<&Vif>> = BTreeMap::new();
    for vif in policy.vifs.iter().filter(|vif| vif.macs.is_empty()) {
        groups.entry((vif.port, vif.slice)).or_default().push(vif);
    }
    let mut merged = policy.clone();
    // A tree for what a port brings would need a program.
    merged.ports.iter_mut().for_each(|port| port.host_receive = None);
    merged.slices.iter_mut().for_each(|slice| slice.receive = Share::default());
    merged.vifs.iter_mut().for_each(|vif| vif.receive = Share::default());
    for group in groups.values().filter(|group| group.len() > 1) {
        let Some((first, rest)) = group.split_first() else { continue };
        let names: BTreeSet<&str> = rest.iter().map(|vif| vif.name.as_str()).collect();
        let send = rest.iter().fold(first.send.clone(), |sum, vif| add(&sum, &vif.send));
        merged.vifs.retain(|vif| !names.contains(vif.name.as_str()));
        let kept = merged.vifs.iter_mut().find(|vif| vif.name == first.name);
        kept.into_iter().for_each(|vif| vif.send = send.clone());
        let slice = &policy[first.slice].name;
        unheld.extend(group.iter().map(|vif| UnheldKey {
            place: format!("vif {:?}.send", vif.name),
            reason: format!(
                "vifs of slice {slice:?} without mac are not told apart at port {:?} without \
                 programs: their shares are held for all of them together",
                policy[vif.port].name
            ),
        }));
    }
    merged
}

/// Returns the sum of two shares.
fn add(one: &Share, other: &Share) -> Share {
    let sum = |a: BitRate, b: BitRate| BitRate::from_bps(a.as_bps().saturating_add(b.as_bps()));
    Share {
        min_rate: sum(one.min_rate, other.min_rate),
        rate: one.rate.zip(other.rate).map(|(one, other)| sum(one, other)),
        priority: one.priority.saturating_add(other.priority),
        burst: one.burst + other.burst,
        ..one.clone()
    }
}

impl Compiler<'_> {
    /// Adds the filters of a port's tree.
    fn filters(&self, port: PortId, objects: &mut Vec<KernelObject>) {
        for vif in self.present.iter().filter(|vif| vif.port == port) {
            let Some(vlan) = self.policy[vif.slice].vlan else { continue };
            let (device, minor) = (&self.policy[port].device, self.vif(vif));
            let filter = |mac| {
                let device = device.clone();
                KernelObject::Filter(FilterObject { device, vlan, mac, minor })
            };
            if vif.macs.is_empty() {
                objects.push(filter(None));
            }
            objects.extend(vif.macs.iter().map(|mac| filter(Some(mac.0))));
        }
    }
}

/// Returns the number of a port's device. It is in the names of devices that belong to the port,
/// since such names are short.
fn number_of(facts: &HostFacts, device: &str) -> u32 {
    facts.devices.get(device).map_or(0, |found| found.number)
}

/// Returns the bridge of a VLAN of the port whose device has that number.
fn bridge_name(number: u32, vlan: u16) -> String {
    format!("wb{number}.{vlan}")
}

/// Adds a VLAN device and a bridge for each slice of a port, and joins the vifs that are there.
fn join(policy: &Policy, facts: &HostFacts, here: &[&Vif], objects: &mut Vec<KernelObject>) {
    for (port, config) in policy.ports() {
        let slices: BTreeSet<SliceId> =
            policy.vifs.iter().filter(|vif| vif.port == port).map(|vif| vif.slice).collect();
        for slice in slices {
            let Some(vlan) = policy[slice].vlan else { continue };
            let number = number_of(facts, &config.device);
            let (bridge, device) = (bridge_name(number, vlan), format!("wv{number}.{vlan}"));
            let joined = |device: &str| {
                let (device, bridge) = (device.to_string(), bridge.clone());
                KernelObject::Joined(JoinedObject { device, bridge })
            };
            let port_device = config.device.clone();
            objects.push(KernelObject::Bridge(BridgeObject { device: bridge.clone() }));
            objects.push(KernelObject::Seal(SealObject { device: bridge.clone() }));
            objects.push(KernelObject::Vlan(VlanObject {
                device: device.clone(),
                port: port_device,
                vlan,
            }));
            objects.push(joined(&device));
            let own = here.iter().filter(|vif| vif.port == port && vif.slice == slice);
            objects.extend(own.map(|vif| joined(&vif.device)));
        }
    }
}

/// Returns the keys for which the policy is refused: a limit or a separation would be missing.
fn problems(policy: &Policy, facts: &HostFacts) -> Vec<KernelProblem> {
    let mut list: Vec<KernelProblem> = KernelProblem::of_schedulers(facts).into_iter().collect();
    for port in &policy.ports {
        let keys = [
            ("bridge", port.bridge.is_some()),
            ("rule", !port.rules.is_empty()),
            ("pih", port.pih != PihForm::Header),
            ("cycle", port.cycle.is_some()),
            ("scheduler", port.scheduler != SchedulerKind::Hfsc),
            ("layer", port.packet_overhead() != 0),
            ("host_receive.rate", port.host_receive.as_ref().is_some_and(|one| one.rate.is_some())),
        ];
        list.extend(held::given(&keys, |key| format!("port {:?}.{key}", port.name), NOT_HELD));
    }
    for slice in &policy.slices {
        let Slice { name, vlan, pih, five_tuples, send, receive, phase: _ } = slice;
        let at = |key: &str| format!("slice {name:?}.{key}");
        if vlan.is_none() {
            let reason = "missing: without programs a slice is told by its VLAN";
            list.push(KernelProblem::new(at("vlan"), reason));
        }
        let keys = [
            ("pih", pih.is_some()),
            ("match", !five_tuples.is_empty()),
            ("send.max_pps", send.max_pps.is_some()),
            ("receive.max_pps", receive.max_pps.is_some()),
            ("receive.rate", receive.rate.is_some()),
        ];
        list.extend(held::given(&keys, at, NOT_HELD));
    }
    for router in &policy.routers {
        let at = format!("router {:?}", router.name);
        list.push(KernelProblem::new(at, "not told from others of its slice without programs"));
    }
    for vif in &policy.vifs {
        let keys = [
            ("addresses", !vif.addresses.is_empty()),
            ("storm", vif.storm.is_some()),
            ("filter", !vif.filter.is_empty()),
            ("send.shaper", vif.shaper(Direction::Send).is_some()),
            ("receive.shaper", vif.shaper(Direction::Receive).is_some()),
            ("send.max_pps", vif.send.max_pps.is_some()),
            ("receive.max_pps", vif.receive.max_pps.is_some()),
        ];
        list.extend(held::given(&keys, |key| format!("vif {:?}.{key}", vif.name), NOT_HELD));
        if vif.macs.len() > held::MACS_MAX {
            let reason = format!("{} addresses, at most {}", vif.macs.len(), held::MACS_MAX);
            list.push(KernelProblem::new(format!("vif {:?}.mac", vif.name), reason));
        }
        if vif.macs.iter().any(|mac| mac.0.ends_with(&[0; 4])) {
            let reason = "an address that ends in four zero bytes: not held without programs";
            list.push(KernelProblem::new(format!("vif {:?}.mac", vif.name), reason));
        }
        if policy.ports.iter().any(|port| port.device == vif.device) {
            let reason = format!("device {} is that of a port", vif.device);
            list.push(KernelProblem::new(format!("vif {:?}.device", vif.name), reason));
        }
    }
    list.extend(alike(policy));
    list
}

/// Names the vifs of which an address cannot be told from another of its slice: the kernel knows a
/// filter by four bytes.
fn alike(policy: &Policy) -> impl Iterator<Item = KernelProblem> {
    let mut seen = BTreeMap::new();
    policy.vifs.iter().filter_map(move |vif| {
        let tail = |mac: &MacAddr| (vif.port, vif.slice, [2, 3, 4, 5].map(|at| mac.0[at]));
        let mut tails = vif.macs.iter().map(tail);
        let other = tails.find_map(|tail| seen.insert(tail, &vif.name))?;
        let reason = format!(
            "one of its addresses ends as one of vif {other:?} does: not told apart without \
             programs"
        );
        Some(KernelProblem::new(format!("vif {:?}.mac", vif.name), reason))
    })
}

/// Returns the keys that are not held.
fn unheld(policy: &Policy, facts: &HostFacts) -> Vec<UnheldKey> {
    let mut list = Vec::new();
    let mut say = |place: String, reason: &str| {
        list.push(UnheldKey { place, reason: reason.to_string() });
    };
    for port in policy.ports.iter().filter(|port| port.host_receive.is_some()) {
        say(format!("port {:?}.host_receive", port.name), NOT_SCHEDULED);
    }
    for slice in &policy.slices {
        if slice.send.rate.is_some() && policy.ports.len() > 1 {
            let reason = "held at each port on its own without programs";
            say(format!("slice {:?}.send.rate", slice.name), reason);
        }
        if !slice.receive.min_rate.is_zero() {
            say(format!("slice {:?}.receive.min_rate", slice.name), NOT_SCHEDULED);
        }
    }
    for vif in &policy.vifs {
        if !vif.receive.min_rate.is_zero() {
            say(format!("vif {:?}.receive.min_rate", vif.name), NOT_SCHEDULED);
        }
        if vif.delay.is_some() && !facts.qdiscs.hfsc {
            say(format!("vif {:?}.delay", vif.name), held::DELAY_BY_HTB);
        }
        for (key, reason) in held::queue_unheld(&vif.send_queue, facts) {
            say(format!("vif {:?}.send.queue.{key}", vif.name), reason);
        }
        if !vif.macs.is_empty() {
            let reason = "frames from other addresses are not dropped without programs: they have \
                          the class of what no vif sent";
            say(format!("vif {:?}.mac", vif.name), reason);
        }
    }
    list
}

const NOT_HELD: &str = "not held without programs";

const NOT_SCHEDULED: &str = "received traffic is not scheduled without programs: its sender must \
                             limit it";

/// Above the last number of a slice or vif: handles of queues begin beyond.
const OWNERS_END: u16 = 0x1000;
