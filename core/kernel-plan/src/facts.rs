// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts of a host that a plan depends on.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

/// The facts of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The queueing disciplines that its kernel has.
    pub qdiscs: QdiscSupport,
    /// The way in which programs are attached to devices; `None`: there is none.
    pub hooks: Option<HookKind>,
    /// Its devices, by name.
    pub devices: BTreeMap<String, BridgePortFacts>,
    /// The devices of the policy that was in force before. An obstacle there came later: it is a
    /// fault of that device, and no reason to refuse a policy.
    pub taken: BTreeSet<String>,
    /// Devices at which a step of a plan failed: the next plans leave them out.
    pub faults: BTreeMap<String, DeviceFault>,
}

/// Why a device has no tree, or not even programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFault {
    /// The kernel's answer.
    pub reason: String,
    /// True if its tree alone failed.
    pub has_programs: bool,
}

impl HostFacts {
    /// Returns the ingress discipline that somebody put on a device, if there is one.
    pub(crate) fn foreign_ingress(&self, device: &str) -> Option<&str> {
        self.devices.get(device)?.foreign_ingress.as_deref()
    }

    /// Returns true if a device has to be given a `clsact`: programs are its filters, and it has
    /// none of others.
    pub(crate) fn lacks_clsact(&self, device: &str) -> bool {
        self.hooks == Some(HookKind::Clsact) && self.foreign_ingress(device).is_none()
    }

    /// Returns the `ingress` discipline of others in whose place a `clsact` would have to be.
    pub(crate) fn ingress_in_the_way(&self, device: &str) -> Option<&str> {
        let found = self.foreign_ingress(device)?;
        let in_the_way = self.hooks == Some(HookKind::Clsact) && !found.starts_with("clsact");
        in_the_way.then_some(found)
    }

    /// Returns the reason for which frames at a device have to cross the bridge: what the bridge or
    /// its port does beside forwarding, and filters of others at its ingress.
    pub(crate) fn why_crosses(&self, device: &str) -> Option<String> {
        let found = self.devices.get(device)?;
        let ingress = || Some(format!("{} at its ingress", found.foreign_ingress.as_ref()?));
        found.must_cross.clone().or_else(ingress)
    }

    /// Returns the VLANs whose frames have a tag at a device, if there are any.
    pub(crate) fn tagged_vlans(&self, device: &str) -> Option<&str> {
        self.devices.get(device)?.tagged_vlans.as_deref()
    }

    /// Returns the reason for which a device has no tree: one of others, or a step that failed.
    pub(crate) fn tree_obstacle(&self, device: &str) -> Option<String> {
        let foreign = || self.foreign_qdisc(device).map(|qdisc| in_the_way(device, qdisc));
        self.faults.get(device).map(|fault| fault.reason.clone()).or_else(foreign)
    }

    /// Returns the step that failed at a device, without which it has no programs.
    pub(crate) fn programs_obstacle(&self, device: &str) -> Option<&str> {
        let fault = self.faults.get(device)?;
        (!fault.has_programs).then_some(fault.reason.as_str())
    }

    /// Returns the root discipline that somebody put on a device, if there is one.
    pub(crate) fn foreign_qdisc(&self, device: &str) -> Option<&str> {
        self.devices.get(device)?.foreign_qdisc.as_deref()
    }
}

/// Returns the reason of a device that has a discipline of somebody else where a tree would be.
pub(crate) fn in_the_way(device: &str, qdisc: &str) -> String {
    format!(
        "device {device} has a queueing discipline of others, {qdisc}; \
         `tc qdisc del dev {device} root` removes it"
    )
}

/// The way in which programs are attached to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Filters of a `clsact` discipline, which each device has to have.
    Clsact,
    /// Links (TCX, Linux 6.6).
    Tcx,
}

/// The queueing disciplines that a kernel has, and the device that they need for what it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscSupport {
    /// `sch_hfsc`.
    pub hfsc: bool,
    /// `sch_htb`.
    pub htb: bool,
    /// `sch_fq_codel`.
    pub fq_codel: bool,
    /// Devices of kind `ifb`.
    pub ifb: bool,
}

/// The facts of one device. A device that is made later has a larger number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgePortFacts {
    /// Its number in the kernel.
    pub number: u32,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
    /// A root discipline that somebody put there, such as `tbf 8001:`; `None` for the kernel's
    /// default and for the one of a plan.
    pub foreign_qdisc: Option<String>,
    /// True if somebody put a `noqueue` there as root discipline, which limits nothing (libvirt).
    pub given_noqueue: bool,
    /// An ingress discipline that somebody put there, such as `ingress ffff:`: its filters come
    /// after Weir's program, and may police (libvirt's `<outbound>`).
    pub foreign_ingress: Option<String>,
    /// The longest frame that it takes, bytes without FCS.
    pub frame_max: u32,
    /// The reason for which no frame may leave or come past the bridge here, such as `stp_state`:
    /// what a bridge, or its port, does with frames beside forwarding them.
    pub must_cross: Option<String>,
    /// The VLANs whose frames have a tag here, such as `10, 20-30`: its bridge keeps VLANs apart,
    /// and the device is a trunk.
    pub tagged_vlans: Option<String>,
}
