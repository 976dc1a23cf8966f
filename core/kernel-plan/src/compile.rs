// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles a policy to the objects of a kernel.
//!
//! Each port has a tree: the link, below it a class for frames that no vif sent, one for each slice
//! with a vif there, below these routers and vifs. A slice, router or vif has one number
//! everywhere: its class at each port, its buckets, its counters. A port has a second such tree of
//! what it brings, if a vif or the host is guaranteed any of it. A vif that may not receive more
//! than a rate has a small tree at its own device. Rules are turned into the vifs that they make of
//! this host's devices first.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_policy::{BridgeDevice, Policy, Port, PortId, Queue, RouterId, Share, SliceId, Vif};
use weir_units::ByteCount;

use crate::bucket::BucketTerms;
use crate::facts::{self, BridgePortFacts, HostFacts};
use crate::faults::faults;
use crate::held::{self, KernelProblem, UnheldKey};
use crate::inbound::inbound_device;
use crate::object::{
    BucketObject, BucketUnit, ClsactObject, ExitObject, Hook, KernelObject, MemberObject,
    ProgramObject, UplinkObject,
};
use crate::setup::{KernelSetup, OWNER_FIRST, OWNERS_MAX};
use crate::text::OTHERS_CLASS;

/// The result of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledPolicy {
    /// The policy in force: with the vifs that its rules make.
    pub policy: Policy,
    /// The objects.
    pub setup: KernelSetup,
    /// The keys that are not held, each with the reason.
    pub unheld: Vec<UnheldKey>,
    /// Vifs whose device is missing or not a port of the bridge: they have no part in the setup.
    pub waiting: Vec<String>,
    /// The reasons for which ports wait, by their devices, which are missing or no ports of the
    /// bridge. They have no tree; their vifs are limited and isolated.
    pub ports_waiting: BTreeMap<String, KernelProblem>,
    /// Devices that went wrong since they were taken, each with the reason. They lack a tree, or
    /// all; everything else is enforced.
    pub faults: Vec<KernelProblem>,
    /// Vifs by rule that have no part in the setup either: their numbers are those of vifs that go
    /// with it. The next compilation has them.
    pub postponed: Vec<String>,
}

/// Compiles `policy` for a host. Numbers and schedulers stay as they are in `before`.
///
/// # Errors
/// All reasons for which the policy cannot be enforced here.
pub fn compile(
    policy: &Policy,
    facts: &HostFacts,
    before: &KernelSetup,
) -> Result<CompiledPolicy, Vec<KernelProblem>> {
    let mut problems = held::problems(policy, facts);
    host_problems(policy, facts, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let expanded = policy.with_devices(&bridge_devices(facts));
    let written = policy.vifs.len();
    let policy = &expanded.policy;
    let (here, waits): (Vec<&Vif>, Vec<&Vif>) =
        policy.vifs.iter().partition(|vif| can_be_held(policy, facts, vif));
    let waiting = waits.into_iter().map(|vif| vif.name.clone()).collect();
    let by_rule: BTreeSet<&str> =
        policy.vifs.iter().skip(written).map(|vif| vif.name.as_str()).collect();
    let Numbered { owners, present, postponed } = number(policy, here, before, &by_rule)?;
    let compiler = Compiler { policy, facts, before, present, owners: &owners };
    let mut objects = Vec::new();
    let mut trees = Vec::new();
    for (id, port) in policy.ports() {
        trees.push(is_port_here(facts, port).then(|| compiler.port(id, port, &mut objects)));
    }
    let mut unheld = held::unheld(&expanded, facts, &trees);
    // A new one that the policy names was refused above; others must not stop the rest.
    unheld.extend(ingress_in_the_way(policy, facts).map(|(_, KernelProblem { place, reason })| {
        UnheldKey {
            place,
            reason: format!("{reason}; until then it is neither limited nor isolated"),
        }
    }));
    let ports = policy.ports.iter().filter(|port| why_waits(facts, port).is_none());
    let faults = faults(policy, facts, ports);
    compiler.receivers(&mut objects);
    compiler.buckets(&mut objects);
    compiler.members(&mut objects);
    let why = |port: &Port| Some((port.device.clone(), why_waits(facts, port)?));
    let ports_waiting = policy.ports.iter().filter_map(why).collect();
    let setup = KernelSetup { owners, objects };
    let policy = expanded.policy;
    Ok(CompiledPolicy { policy, setup, unheld, waiting, ports_waiting, faults, postponed })
}

/// Returns the devices that are ports of a bridge, the oldest first.
fn bridge_devices(facts: &HostFacts) -> Vec<BridgeDevice<'_>> {
    let all = facts.devices.iter();
    let mut devices: Vec<(u32, BridgeDevice<'_>)> = all
        .filter_map(|(name, found)| {
            let bridge = found.bridge.as_deref()?;
            Some((found.number, BridgeDevice { name, bridge }))
        })
        .collect();
    devices.sort_by_key(|(number, device)| (*number, device.name));
    devices.into_iter().map(|(_, device)| device).collect()
}

/// Vifs with their numbers.
struct Numbered<'p> {
    owners: BTreeMap<String, u16>,
    present: Vec<&'p Vif>,
    postponed: Vec<String>,
}

/// Numbers all vifs that are `here`, their routers and slices. If numbers run out only because
/// owners that this change removes still hold theirs, new vifs by rule are postponed to the next
/// compilation; otherwise a change of many guests at once would be refused every time.
fn number<'p>(
    policy: &Policy,
    mut here: Vec<&'p Vif>,
    before: &KernelSetup,
    by_rule: &BTreeSet<&str>,
) -> Result<Numbered<'p>, Vec<KernelProblem>> {
    let names = owner_names(policy, &here);
    let problem = match before.numbers(&names, OWNERS_MAX) {
        Ok(owners) => return Ok(Numbered { owners, present: here, postponed: Vec::new() }),
        Err(problem) => Vec::from([problem]),
    };
    if before.owners.keys().all(|owner| names.contains(owner)) {
        return Err(problem);
    }
    let is_new = |vif: &&Vif| {
        by_rule.contains(vif.name.as_str()) && !before.owners.contains_key(&vif_name(policy, vif))
    };
    let postponed = here.iter().copied().filter(is_new).map(|vif| vif.name.clone()).collect();
    here.retain(|vif| !is_new(vif));
    let owners = before.numbers(&owner_names(policy, &here), OWNERS_MAX);
    owners.map(|owners| Numbered { owners, present: here, postponed }).map_err(|_| problem)
}

/// Adds the reasons that lie in the host.
fn host_problems(policy: &Policy, facts: &HostFacts, problems: &mut Vec<KernelProblem>) {
    if facts.hooks.is_none() {
        let reason = "this kernel has no programs for devices as Weir needs them (Linux 6.1)";
        problems.push(KernelProblem::new("node.dataplane", reason));
    }
    problems.extend(KernelProblem::of_schedulers(facts));
    let (most, room) = (policy.owners_at_most(), usize::from(OWNERS_MAX - OWNER_FIRST));
    if policy.has_rules() && most > room {
        let reason = format!(
            "the rules may make {most} slices, routers and vifs with those written, at most \
             {room} fit: lower devices_max"
        );
        problems.push(KernelProblem::new("port.rule", reason));
    }
    let here = policy.ports.iter().filter(|port| why_waits(facts, port).is_none());
    for port in here.filter(|port| !facts.taken.contains(&port.device)) {
        if let Some(qdisc) = facts.foreign_qdisc(&port.device) {
            let reason = facts::in_the_way(&port.device, qdisc);
            problems.push(KernelProblem::new(format!("port {:?}.device", port.name), reason));
        }
    }
    let new = ingress_in_the_way(policy, facts);
    let new = new.filter(|(device, _)| !facts.taken.contains(*device));
    problems.extend(new.map(|(_, problem)| problem));
}

/// Tells whether a port's device is on its bridge and can have programs.
fn is_port_here(facts: &HostFacts, port: &Port) -> bool {
    why_waits(facts, port).is_none() && can_have_programs(facts, &port.device)
}

fn can_have_programs(facts: &HostFacts, device: &str) -> bool {
    facts.ingress_in_the_way(device).is_none() && facts.programs_obstacle(device).is_none()
}

/// Tells why a port waits: when a host starts, and when a card is changed, its device is not there
/// yet. None if the port's device is a port of its bridge.
fn why_waits(facts: &HostFacts, port: &Port) -> Option<KernelProblem> {
    let device = &port.device;
    let bridge = port.bridge.as_deref().unwrap_or_default();
    let reason = match facts.devices.get(device) {
        None => format!("device {device}: there is none"),
        Some(found) if found.bridge == port.bridge => return None,
        Some(BridgePortFacts { bridge: Some(other), .. }) => {
            format!("device {device} is a port of {other}, not {bridge}")
        }
        Some(_) => format!("device {device} is no port of bridge {bridge}"),
    };
    Some(KernelProblem::new(format!("port {:?}.device", port.name), reason))
}

/// Names the ports and vifs whose devices have an `ingress` of others in the place of a `clsact`.
fn ingress_in_the_way<'p>(
    policy: &'p Policy,
    facts: &'p HostFacts,
) -> impl Iterator<Item = (&'p String, KernelProblem)> {
    let ports = policy.ports.iter().filter(|port| why_waits(facts, port).is_none());
    let ports = ports.map(|port| (format!("port {:?}.device", port.name), &port.device));
    let vifs = policy.vifs.iter().filter(|vif| is_here(policy, facts, vif));
    let vifs = vifs.map(|vif| (format!("vif {:?}.device", vif.name), &vif.device));
    ports.chain(vifs).filter_map(|(place, device)| {
        let qdisc = facts.ingress_in_the_way(device)?;
        let reason = format!(
            "device {device} has an ingress discipline of others, {qdisc}, in the place of the \
             clsact that this kernel needs for programs; `tc qdisc del dev {device} ingress` \
             removes it"
        );
        Some((device, KernelProblem::new(place, reason)))
    })
}

/// Tells whether a vif's device is there and can have programs.
fn can_be_held(policy: &Policy, facts: &HostFacts, vif: &Vif) -> bool {
    is_here(policy, facts, vif) && can_have_programs(facts, &vif.device)
}

/// Tells whether known unicast of a port's vifs may leave past its bridge.
fn may_pass(policy: &Policy, facts: &HostFacts, port: &Port) -> bool {
    let mut places = [Some(&port.device), port.bridge.as_ref()].into_iter().flatten();
    policy.node.redirect && places.all(|place| facts.why_crosses(place).is_none())
}

fn is_here(policy: &Policy, facts: &HostFacts, vif: &Vif) -> bool {
    let bridge = &policy[vif.port].bridge;
    facts.devices.get(&vif.device).is_some_and(|device| device.bridge == *bridge)
}

/// Returns the names of all owners: what is placed elsewhere has another name, and with it another
/// number.
pub(crate) fn owner_names(policy: &Policy, present: &[&Vif]) -> Vec<String> {
    let slices = policy.slices().filter(|(id, _)| present.iter().any(|vif| vif.slice == *id));
    let routers =
        policy.routers().filter(|(id, _)| present.iter().any(|vif| vif.router == Some(*id)));
    let mut names: Vec<String> = slices.map(|(id, _)| slice_name(policy, id)).collect();
    names.extend(routers.map(|(id, _)| router_name(policy, id)));
    names.extend(present.iter().map(|vif| vif_name(policy, vif)));
    names
}

fn slice_name(policy: &Policy, slice: SliceId) -> String {
    format!("slice {}", policy[slice].name)
}

fn router_name(policy: &Policy, router: RouterId) -> String {
    let router = &policy[router];
    format!("router {} in {}", router.name, policy[router.slice].name)
}

fn vif_name(policy: &Policy, vif: &Vif) -> String {
    let place = match vif.router {
        Some(router) => router_name(policy, router),
        None => slice_name(policy, vif.slice),
    };
    format!("vif {} on {} of {place}", vif.name, policy[vif.port].name)
}

pub(crate) struct Compiler<'p> {
    pub(crate) policy: &'p Policy,
    pub(crate) facts: &'p HostFacts,
    pub(crate) before: &'p KernelSetup,
    pub(crate) present: Vec<&'p Vif>,
    pub(crate) owners: &'p BTreeMap<String, u16>,
}

impl Compiler<'_> {
    fn number(&self, name: &str) -> u16 {
        let number = self.owners.get(name).copied();
        debug_assert!(number.is_some(), "every owner was given a number");
        number.unwrap_or(OTHERS_CLASS)
    }

    pub(crate) fn slice(&self, slice: SliceId) -> u16 {
        self.number(&slice_name(self.policy, slice))
    }

    pub(crate) fn router(&self, router: RouterId) -> u16 {
        self.number(&router_name(self.policy, router))
    }

    pub(crate) fn vif(&self, vif: &Vif) -> u16 {
        self.number(&vif_name(self.policy, vif))
    }

    /// Returns the ports whose devices are there and can have programs.
    fn ports_here(&self) -> impl Iterator<Item = (PortId, &Port)> {
        self.policy.ports().filter(|(_, port)| is_port_here(self.facts, port))
    }

    /// Returns the devices whose frames may leave past the bridge.
    fn exits(&self) -> impl Iterator<Item = ExitObject> + '_ {
        let ports = self.ports_here().map(|(_, port)| port);
        let ports = ports.filter(|port| may_pass(self.policy, self.facts, port));
        ports.flat_map(|port| {
            let exit = |device: &String, to: &String| ExitObject {
                device: device.clone(),
                to: to.clone(),
                frame_max: self.facts.devices.get(device).map_or(0, |found| found.frame_max),
            };
            let own = port.bridge.as_ref().map(|bridge| exit(&port.device, bridge));
            let vifs = self.present.iter().filter(|vif| self.policy[vif.port].name == port.name);
            let vifs = vifs.filter(|vif| self.facts.why_crosses(&vif.device).is_none());
            own.into_iter().chain(vifs.map(move |vif| exit(&vif.device, &port.device)))
        })
    }

    fn buckets(&self, objects: &mut Vec<KernelObject>) {
        let mut add = |owner: u16, shares: [&Share; 2], members: &mut dyn Iterator<Item = &Vif>| {
            let mut queued = [QueueSum::default(); 2];
            for vif in members {
                for (sum, queue) in queued.iter_mut().zip([&vif.send_queue, &vif.receive_queue]) {
                    sum.add(queue);
                }
            }
            objects.extend(buckets_of(owner, shares, queued).map(KernelObject::Bucket));
        };
        for (id, slice) in self.policy.slices() {
            let mut members = self.members_of(|vif| vif.slice == id).peekable();
            if members.peek().is_some() {
                add(self.slice(id), [&slice.send, &slice.receive], &mut members);
            }
        }
        for (id, router) in self.policy.routers() {
            let mut members = self.members_of(|vif| vif.router == Some(id)).peekable();
            if members.peek().is_some() {
                add(self.router(id), [&router.send, &router.receive], &mut members);
            }
        }
        for vif in &self.present {
            let shares = [&vif.send, &vif.receive];
            add(self.vif(vif), shares, &mut core::iter::once(*vif));
        }
    }

    fn members_of(&self, is_one: impl Fn(&Vif) -> bool) -> impl Iterator<Item = &Vif> {
        self.present.iter().copied().filter(move |vif| is_one(vif))
    }

    fn members(&self, objects: &mut Vec<KernelObject>) {
        for (id, port) in self.ports_here() {
            let (device, bridge) = (port.device.clone(), port.bridge.clone().unwrap_or_default());
            let through = inbound_device(self.policy, self.facts, id, port);
            objects.push(KernelObject::Uplink(UplinkObject { device, bridge, through }));
        }
        for vif in &self.present {
            let (device, owner) = (vif.device.clone(), self.vif(vif));
            let slice = self.slice(vif.slice);
            let router = vif.router.map_or(0, |router| self.router(router));
            let macs = vif.macs.iter().map(|mac| mac.0).collect();
            let bridge = self.policy[vif.port].bridge.clone().unwrap_or_default();
            let (limits, macs_max) = ([owner, router, slice], vif.macs_max);
            let member = MemberObject { device, owner, slice, bridge, macs, macs_max, limits };
            objects.push(KernelObject::Member(member));
        }
        objects.extend(self.exits().map(KernelObject::Exit));
        let vifs = self.present.iter().map(|vif| &vif.device);
        let devices = vifs.chain(self.ports_here().map(|(_, port)| &port.device));
        let lacking = devices.filter(|device| self.facts.lacks_clsact(device));
        let clsact = |device: &String| ClsactObject { device: device.clone() };
        objects.extend(lacking.map(clsact).map(KernelObject::Clsact));
        for vif in &self.present {
            for hook in Hook::OF_VIF {
                let device = vif.device.clone();
                objects.push(KernelObject::Program(ProgramObject { device, hook }));
            }
        }
        for (_, port) in self.ports_here() {
            for hook in Hook::OF_PORT {
                let device = port.device.clone();
                objects.push(KernelObject::Program(ProgramObject { device, hook }));
            }
        }
    }
}

/// The bounds of several queues together.
#[derive(Clone, Copy, Debug, Default)]
struct QueueSum {
    packets: u64,
    bytes: u64,
}

impl QueueSum {
    fn add(&mut self, queue: &Queue) {
        self.packets = self.packets.saturating_add(queue.packets.into());
        self.bytes = self.bytes.saturating_add(queue.bytes.get());
    }
}

/// Returns the buckets of one owner; `sent` and `received` are what its queues hold by direction.
///
/// Trees hold a vif to its rates, and a router or slice to what it sends. A bucket drops, before
/// any queue, what could not leave in time: it is as deep as burst and queues together. So is a
/// bucket of packets, since TCP collapses where a few super-frames are more than a bucket.
fn buckets_of(
    owner: u16,
    [send, receive]: [&Share; 2],
    [sent, received]: [QueueSum; 2],
) -> impl Iterator<Item = BucketObject> {
    let packets = |share: &Share, queued: QueueSum| {
        let depth = share.packets_at_once().saturating_add(queued.packets);
        share.max_pps.map(|rate| BucketTerms::of_packets(rate, depth))
    };
    let bits = |share: &Share, queued: QueueSum| {
        let queued = ByteCount::new(queued.bytes.max(SUPER_FRAMES_BYTES));
        share.rate.map(|rate| BucketTerms::of_bits(rate, share.burst, queued))
    };
    let terms = [
        (BucketUnit::SendPackets, packets(send, sent)),
        (BucketUnit::SendBits, bits(send, sent)),
        (BucketUnit::ReceivePackets, packets(receive, received)),
        (BucketUnit::ReceiveBits, bits(receive, received)),
    ];
    terms
        .into_iter()
        .filter_map(move |(unit, terms)| terms.map(|terms| BucketObject { owner, unit, terms }))
}

/// Two of the longest super-frames that a guest sends.
pub(crate) const SUPER_FRAMES_BYTES: u64 = 2 << 16;
