// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules that make vifs of the devices on a bridge, and the policy with these vifs in it.
//!
//! On a host whose guests come and go, a hypervisor names their devices by rule, and nobody writes
//! a `[[vif]]` for each. A rule of a port says which devices belong to which slice: `match =
//! "tap{vm}i{n}"`, `slice = "vm-{vm}"`. Given the devices that a bridge has, the rules make a
//! policy in which each is a vif as if it had been written out ([`Policy::with_devices`]). The
//! parts that enforce a policy know nothing of rules.
//!
//! **Promises hold whatever comes.** A rule takes at most `devices_max` devices, and its guarantees
//! are checked as if it had that many, each in a slice of its own (`Policy::at_most`). So a guest
//! that starts never takes a guarantee away from another. Where more devices come, those that the
//! host has had longest stay.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::device_pattern::{WordValues, is_name_byte};
use crate::format::quoted;
use crate::model::{Policy, Port, Slice, SliceId, Vif, VifRule};

/// A device on a bridge of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeDevice<'h> {
    /// Its name.
    pub name: &'h str,
    /// Its bridge.
    pub bridge: &'h str,
}

/// A policy with the vifs that its rules make of a host's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedPolicy {
    /// The policy: vifs and slices by rule follow those that are written.
    pub policy: Policy,
    /// Devices that a rule matches and does not take, each with the reason.
    pub untaken: BTreeMap<String, String>,
}

impl VifRule {
    fn words_of<'d>(&self, device: &'d str) -> Option<WordValues<'_, 'd>> {
        match &self.pattern {
            Some(pattern) => pattern.words_of(device),
            None => Some(Vec::new()),
        }
    }
}

impl Policy {
    /// Returns true if a port has a rule.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.ports.iter().any(|port| !port.rules.is_empty())
    }

    /// Returns the policy in which the `devices` that rules take are vifs, named like the devices.
    /// `devices` are in the order in which the host got them: where a rule has its most, the first
    /// are taken.
    #[must_use]
    pub fn with_devices(&self, devices: &[BridgeDevice<'_>]) -> ExpandedPolicy {
        let mut expansion = Expansion::of(self);
        for port in &self.ports {
            for (number, rule) in port.rules.iter().enumerate() {
                expansion.take(port, number, rule, devices);
            }
        }
        let Expansion { policy, mut untaken, taken, .. } = expansion;
        untaken.retain(|device, _| !taken.contains(device.as_str()));
        ExpandedPolicy { policy, untaken }
    }

    /// Returns the policy with as many vifs as its rules take at most, each in a slice of its own
    /// unless the rule names one.
    pub(crate) fn at_most(&self) -> Self {
        let mut policy = self.clone();
        for rule in self.ports.iter().flat_map(|port| &port.rules) {
            for _ in 0..rule.devices_max {
                let slice = match rule.vif.slice {
                    VifRule::NO_SLICE => policy.add_slice(rule.slice.clone()),
                    written => written,
                };
                policy.add_vif(Vif { slice, ..rule.vif.clone() });
            }
        }
        policy
    }

    /// Returns the number of slices, routers and vifs that there may be with the policy's rules.
    #[must_use]
    pub fn owners_at_most(&self) -> usize {
        let written = self.slices.len() + self.routers.len() + self.vifs.len();
        let rules = self.ports.iter().flat_map(|port| &port.rules);
        let by_rule = rules.map(|rule| {
            let each = if rule.vif.slice == VifRule::NO_SLICE { 2 } else { 1 };
            each * rule.devices_max as usize
        });
        written + by_rule.sum::<usize>()
    }
}

/// A policy under expansion.
struct Expansion<'p> {
    policy: Policy,
    /// All slices, by name.
    slices: BTreeMap<String, SliceId>,
    /// Names of written vifs.
    names: BTreeSet<&'p str>,
    /// Devices of ports and vifs.
    taken: BTreeSet<String>,
    untaken: BTreeMap<String, String>,
}

impl<'p> Expansion<'p> {
    fn of(policy: &'p Policy) -> Self {
        let slices = policy.slices().map(|(id, slice)| (slice.name.clone(), id)).collect();
        let names = policy.vifs.iter().map(|vif| vif.name.as_str()).collect();
        let ports = policy.ports.iter().map(|port| port.device.clone());
        let vifs = policy.vifs.iter().map(|vif| vif.device.clone());
        let taken = ports.chain(vifs).collect();
        Self { policy: policy.clone(), slices, names, taken, untaken: BTreeMap::new() }
    }

    /// Takes the devices of one rule.
    fn take(&mut self, port: &Port, number: usize, rule: &VifRule, devices: &[BridgeDevice<'_>]) {
        let mut count = 0;
        for device in devices {
            let name = device.name;
            if port.bridge.as_deref() != Some(device.bridge) || self.taken.contains(name) {
                continue;
            }
            let Some(words) = rule.words_of(name) else { continue };
            let reason = if !name.bytes().all(is_name_byte) {
                "its name is no name of a vif".to_string()
            } else if self.names.contains(name) {
                format!("vif {} has its name and another device", quoted(name))
            } else if count == rule.devices_max {
                format!("rule {} of the port has its {count} devices", number + 1)
            } else {
                count += 1;
                self.add(rule, name, &words);
                continue;
            };
            self.untaken.insert(name.to_string(), reason);
        }
    }

    fn add(&mut self, rule: &VifRule, device: &str, words: &WordValues<'_, '_>) {
        let name = rule.slice_name.name(words);
        let slice = match self.slices.get(&name) {
            Some(slice) => *slice,
            None => {
                let slice = Slice { name: name.clone(), ..rule.slice.clone() };
                let id = self.policy.add_slice(slice);
                self.slices.insert(name, id);
                id
            }
        };
        let (name, device) = (device.to_string(), device.to_string());
        self.taken.insert(name.clone());
        self.policy.add_vif(Vif { name, device, slice, ..rule.vif.clone() });
    }
}
