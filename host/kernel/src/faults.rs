// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a data plane in force at which steps failed. Plans leave such a device out for a
//! while, or until another device has its name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weir_kernel_plan::{DeviceFault, PlanAction, PlanStep};
use weir_policy::Policy;
use weir_ports::device_number;

use crate::steps::device_of;

/// The time for which a device is left out.
const RETRY: Duration = Duration::from_secs(5);

/// The devices at which steps failed.
#[derive(Debug, Default)]
pub(crate) struct DeviceFaults {
    list: BTreeMap<String, FoundFault>,
    /// True if the steps of each device run apart from those of others, to find the one that fails.
    pub(crate) apart: bool,
}

#[derive(Debug)]
struct FoundFault {
    number: Option<u32>,
    fault: DeviceFault,
    found: Instant,
}

impl DeviceFaults {
    /// Returns the faults of devices that are still the same ones.
    pub(crate) fn at(&self, numbers: &BTreeMap<String, u32>) -> BTreeMap<String, DeviceFault> {
        let same = self.list.iter().filter(|(device, found)| {
            // A device that a plan itself makes had no number once the plan was undone.
            found.number.is_none_or(|number| numbers.get(*device) == Some(&number))
        });
        same.map(|(device, found)| (device.clone(), found.fault.clone())).collect()
    }

    /// Returns true if the steps only remove objects at devices that are left out. Their failure
    /// must not stop the plan, since the objects may be somebody else's by now. Objects that stay
    /// are reported as being in the way.
    pub(crate) fn may_stay(&self, group: &[PlanStep]) -> bool {
        group.iter().all(|step| {
            let device = step.object().and_then(device_of);
            step.action() == PlanAction::Remove
                && device.is_some_and(|device| self.list.contains_key(device))
        })
    }

    /// Forgets the faults of devices that are to be tried again.
    pub(crate) fn forget_old(&mut self) {
        self.list.retain(|_, fault| fault.found.elapsed() < RETRY);
    }

    /// Adds a fault. Returns false if it is known, and nothing more of the device can be left out.
    pub(crate) fn add(&mut self, device: String, fault: DeviceFault) -> bool {
        let known = self.list.get(&device).is_some_and(|known| {
            known.number == device_number(&device)
                && (!known.fault.has_programs || fault.has_programs)
        });
        if !known {
            let (number, found) = (device_number(&device), Instant::now());
            self.list.insert(device, FoundFault { number, fault, found });
        }
        !known
    }
}

/// Returns the devices that a policy names.
pub(crate) fn devices_of(policy: &Policy) -> BTreeSet<String> {
    let ports = policy.ports.iter().map(|port| port.device.clone());
    ports.chain(policy.vifs.iter().map(|vif| vif.device.clone())).collect()
}
