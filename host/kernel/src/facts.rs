// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the facts of the host that a plan depends on, and which objects of a setup are really
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use serde_json::{Map, Value};
use weir_kernel_plan::{
    BridgePortFacts, CompiledPolicy, ExitObject, HANDLE, HookKind, HostFacts, KernelObject,
    KernelSetup, ProgramObject, QdiscSupport, UplinkObject,
};
use weir_platform::inspect::{self, LinkView, QdiscView};
use weir_platform::kernel_offers::{OfferedQdisc, has_link, has_qdisc};
use weir_platform::run::{Command, Platform, json};
use weir_policy::{MacAddr, Port};
use weir_units::Nanos;

use crate::addresses::{AddressOnBridge, EtherAddress, HeardAddress};
use crate::error::KernelPlaneError;
use crate::tables::TablesView;

/// The devices and disciplines of this network namespace.
#[derive(Clone, Debug)]
pub(crate) struct HostView {
    /// The facts for a plan.
    pub(crate) facts: HostFacts,
    /// The numbers of the devices, by name.
    pub(crate) numbers: BTreeMap<String, u32>,
    /// Their addresses.
    addresses: BTreeMap<String, EtherAddress>,
    qdiscs: Vec<QdiscView>,
    /// Classes of Weir's trees, by device.
    classes: BTreeSet<(String, u16)>,
}

/// Reads the host. `record` lists what this node made: a tree or a `clsact` that is not in it is
/// somebody else's, such as another node's.
///
/// # Errors
/// A command failed.
pub(crate) fn read_facts(
    on: &dyn Platform,
    support: KernelSupport,
    record: &KernelSetup,
) -> Result<HostView, KernelPlaneError> {
    let (trees, filtered) = own_devices(record);
    let links = inspect::links(on, None)?;
    let qdiscs = inspect::qdiscs(on, None)?;
    let KernelSupport { qdiscs: known, hooks } = support;
    let mut facts = HostFacts { qdiscs: known, hooks, ..HostFacts::default() };
    // Without such a bridge, no device is a trunk.
    let vlans: Vec<DeviceVlans> = match links.iter().any(filters_vlans) {
        true => json(on, &Command::line("bridge -compressvlans -j vlan show"))?,
        false => Vec::new(),
    };
    for link in &links {
        let root = qdiscs.iter().find(|qdisc| qdisc.dev == link.ifname && qdisc.root);
        let own = trees.contains(&link.ifname);
        let given_noqueue = root.is_some_and(|qdisc| !is_default(qdisc) && is_noqueue(qdisc));
        let is_known =
            |qdisc: &QdiscView| is_default(qdisc) || is_noqueue(qdisc) || own && is_tree(qdisc);
        let foreign = root.filter(|qdisc| !is_known(qdisc));
        let foreign_qdisc = foreign.map(|qdisc| {
            let whose = if is_tree(qdisc) { " (of another node of Weir)" } else { "" };
            format!("{} {}{whose}", qdisc.kind, qdisc.handle)
        });
        let (number, bridge) = (link.ifindex, bridge_of(&links, link));
        let ingress = qdiscs.iter().find(|qdisc| qdisc.dev == link.ifname && is_ingress(qdisc));
        let is_own = |qdisc: &&QdiscView| is_clsact(qdisc) && filtered.contains(&link.ifname);
        let ingress = ingress.filter(|qdisc| !is_own(qdisc));
        let foreign_ingress = ingress.map(|qdisc| format!("{} {}", qdisc.kind, qdisc.handle));
        let device = BridgePortFacts {
            number,
            bridge,
            foreign_qdisc,
            given_noqueue,
            foreign_ingress,
            frame_max: link.mtu.saturating_add(ETHER_HEADER),
            must_cross: must_cross(link),
            tagged_vlans: tagged_vlans(&links, link, &vlans),
        };
        facts.devices.insert(link.ifname.clone(), device);
    }
    let mut classes = BTreeSet::new();
    for device in &trees {
        let ours = qdiscs.iter().any(|qdisc| qdisc.dev == *device && qdisc.root && is_tree(qdisc));
        if ours {
            // Old versions of tc print classes as text only.
            let text = on.run(&Command::new("tc", ["class", "show", "dev", device.as_str()]))?;
            classes.extend(text.lines().filter_map(class_of).map(|minor| (device.clone(), minor)));
        }
    }
    let address = |link: &LinkView| {
        let mac = link.address.as_ref()?.parse::<MacAddr>().ok()?;
        Some((link.ifname.clone(), mac.0))
    };
    let addresses = links.iter().filter_map(address).collect();
    let numbers = links.into_iter().map(|link| (link.ifname, link.ifindex)).collect();
    Ok(HostView { facts, numbers, addresses, qdiscs, classes })
}

/// The disciplines that a kernel has, and how it attaches programs to devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelSupport {
    pub(crate) qdiscs: QdiscSupport,
    pub(crate) hooks: Option<HookKind>,
}

impl KernelSupport {
    /// Asks this kernel, without making any discipline.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn read() -> Result<Self, KernelPlaneError> {
        let qdiscs = QdiscSupport {
            hfsc: has_qdisc(OfferedQdisc::Hfsc)?,
            htb: has_qdisc(OfferedQdisc::Htb)?,
            fq_codel: has_qdisc(OfferedQdisc::FqCodel)?,
            // Before 6.4 a frame that a program redirects is dropped there (59e498a3289f).
            ifb: release() >= (6, 4) && has_link("ifb")?,
        };
        Ok(Self { qdiscs, hooks: hooks() })
    }
}

/// Returns the recorded devices with a tree, and those with a `clsact`.
fn own_devices(record: &KernelSetup) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut trees, mut filtered) = (BTreeSet::new(), BTreeSet::new());
    for object in &record.objects {
        match object {
            KernelObject::Root(root) => trees.insert(root.device.clone()),
            KernelObject::Clsact(clsact) => filtered.insert(clsact.device.clone()),
            _ => continue,
        };
    }
    (trees, filtered)
}

impl HostView {
    /// Returns the part of `setup` that the host has.
    pub(crate) fn present(&self, setup: &KernelSetup, tables: &dyn TablesView) -> KernelSetup {
        let has = |object: &&KernelObject| match object {
            KernelObject::Inbound(inbound) => self.numbers.contains_key(&inbound.device),
            KernelObject::Root(root) => self.has_tree(&root.device),
            KernelObject::Class(class) => {
                self.classes.contains(&(class.device.clone(), class.minor))
            }
            KernelObject::Leaf(leaf) => {
                let parent = format!("{HANDLE:x}:{:x}", leaf.minor);
                let below = |qdisc: &QdiscView| {
                    qdisc.parent.as_ref() == Some(&parent) && qdisc.handle != "0:"
                };
                self.has_qdisc(&leaf.device, below)
            }
            KernelObject::Bucket(_) => tables.is_filled(),
            // Its device and its bridge must still be the same ones.
            KernelObject::Member(member) => {
                let numbers = self.pair(&member.device, &member.bridge);
                numbers.is_some_and(|numbers| tables.has_member(numbers, member))
            }
            // So must the device at which its frames wait.
            KernelObject::Uplink(UplinkObject { device, bridge, through }) => {
                let through = match through {
                    Some(name) => self.numbers.get(name).copied(),
                    None => Some(0),
                };
                let numbers = self.pair(device, bridge).zip(through);
                numbers.is_some_and(|(numbers, through)| tables.has_uplink(numbers, through))
            }
            // A plan sets its other values, but the device that it leads to must be the same one.
            KernelObject::Exit(ExitObject { device, to, .. }) => {
                let numbers = [device, to].map(|name| self.numbers.get(name).copied());
                matches!(numbers, [Some(number), Some(to)] if tables.has_exit(number, to))
            }
            KernelObject::Clsact(clsact) => self.has_clsact(&clsact.device),
            KernelObject::Program(ProgramObject { device, hook }) => {
                let number = self.numbers.get(device);
                number.is_some_and(|number| tables.has_link(*number, *hook))
            }
            // These objects are only in plans of commands alone (`compile_commands`), which this
            // plane never makes.
            KernelObject::Filter(_)
            | KernelObject::Bridge(_)
            | KernelObject::Seal(_)
            | KernelObject::Vlan(_)
            | KernelObject::Joined(_) => false,
        };
        let objects = setup.objects.iter().filter(has).cloned().collect();
        KernelSetup { owners: setup.owners.clone(), objects }
    }

    /// Returns the numbers of a device and of its bridge, if both are there.
    fn pair(&self, device: &str, bridge: &str) -> Option<(u32, u32)> {
        Some((*self.numbers.get(device)?, *self.numbers.get(bridge)?))
    }

    /// Returns the number of a port's bridge, and the host's own addresses there: those of the
    /// bridge and of the port.
    pub(crate) fn own_addresses(&self, port: &Port) -> Option<(u32, Vec<EtherAddress>)> {
        let bridge = port.bridge.as_ref()?;
        let number = self.numbers.get(bridge)?;
        let devices = [bridge, &port.device].into_iter();
        let addresses = devices.filter_map(|device| self.addresses.get(device).copied());
        Some((*number, addresses.collect()))
    }

    /// Returns the addresses that the policy gives to vifs that wait for their devices, each with
    /// the number of its bridge.
    pub(crate) fn reserved(&self, compiled: &CompiledPolicy) -> Vec<AddressOnBridge> {
        let policy = &compiled.policy;
        let mut list = Vec::new();
        for vif in policy.vifs.iter().filter(|vif| compiled.waiting.contains(&vif.name)) {
            let bridge = policy[vif.port].bridge.as_ref();
            let number = bridge.and_then(|bridge| self.numbers.get(bridge));
            list.extend(
                number.into_iter().flat_map(|number| vif.macs.iter().map(|mac| (*number, mac.0))),
            );
        }
        list
    }

    /// True if a tree of Weir is at a device.
    pub(crate) fn has_tree(&self, device: &str) -> bool {
        self.has_qdisc(device, |qdisc| qdisc.root && is_tree(qdisc))
    }

    /// True if a device has a place for filters at both hooks.
    pub(crate) fn has_clsact(&self, device: &str) -> bool {
        self.has_qdisc(device, is_clsact)
    }

    fn has_qdisc(&self, device: &str, wanted: impl Fn(&QdiscView) -> bool) -> bool {
        self.qdiscs.iter().any(|qdisc| qdisc.dev == device && wanted(qdisc))
    }
}

/// The VLANs of a device, as `bridge vlan` prints them.
#[derive(Debug, Deserialize)]
struct DeviceVlans {
    ifname: String,
    #[serde(default)]
    vlans: Vec<DeviceVlan>,
}

/// A VLAN, or a range.
#[derive(Debug, Deserialize)]
struct DeviceVlan {
    vlan: u16,
    #[serde(rename = "vlanEnd")]
    last: Option<u16>,
    #[serde(default)]
    flags: Vec<String>,
}

/// Returns the bridge that a device is a port of. A bond, a VRF and an Open vSwitch have members,
/// too, and are none.
fn bridge_of(links: &[LinkView], link: &LinkView) -> Option<String> {
    let master = link.master.as_ref()?;
    let found = links.iter().find(|other| other.ifname == *master)?;
    let kind = found.linkinfo.as_ref()?.info_kind.as_deref();
    (kind == Some("bridge")).then(|| master.clone())
}

/// Returns true for a bridge that keeps VLANs apart.
fn filters_vlans(link: &LinkView) -> bool {
    let info = link.linkinfo.as_ref();
    let value = info.and_then(|info| info.info_data.get("vlan_filtering"));
    value.and_then(Value::as_u64).is_some_and(|number| number != 0)
}

/// Lists the VLANs whose frames have a tag at a device, if its bridge keeps VLANs apart.
fn tagged_vlans(links: &[LinkView], link: &LinkView, all: &[DeviceVlans]) -> Option<String> {
    let is_master = |other: &&LinkView| Some(&other.ifname) == link.master.as_ref();
    links.iter().find(is_master).filter(|bridge| filters_vlans(bridge))?;
    let own = all.iter().find(|device| device.ifname == link.ifname)?;
    let tagged = own.vlans.iter().filter(|vlan| vlan.flags.iter().all(|flag| flag != UNTAGGED));
    let names: Vec<String> = tagged
        .map(|vlan| match vlan.last {
            Some(last) => format!("{}-{last}", vlan.vlan),
            None => vlan.vlan.to_string(),
        })
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Reads the addresses that a bridge has learned at its port, and for how long each was silent.
///
/// # Errors
/// A command failed.
pub(crate) fn addresses_beyond(
    on: &dyn Platform,
    port: &str,
) -> Result<Vec<HeardAddress>, KernelPlaneError> {
    let line = format!("bridge -s -j fdb show brport {port}");
    let known: Vec<BridgeEntry> = match json(on, &Command::line(&line)) {
        // The port has gone meanwhile, and the plan will fail at it.
        Err(_) if weir_ports::device_number(port).is_none() => Vec::new(),
        known => known?,
    };
    Ok(learned_of(&known))
}

fn learned_of(known: &[BridgeEntry]) -> Vec<HeardAddress> {
    let learned = known.iter().filter(|entry| entry.state != "permanent");
    let silences = learned.filter_map(|entry| {
        // The time of an entry that an operator or a routing daemon made means no silence.
        let is_made = entry.state == "static" || entry.flags.iter().any(|flag| flag == MADE);
        let silence = if is_made { 0 } else { entry.updated };
        Some((entry.mac.parse::<MacAddr>().ok()?.0, Nanos::from_secs(silence)))
    });
    silences.collect()
}

/// The flag of entries that a routing daemon made, of EVPN for example.
const MADE: &str = "extern_learn";

/// An entry of a bridge's table.
#[derive(Debug, Deserialize)]
struct BridgeEntry {
    mac: String,
    /// `permanent` for the port's own addresses and for groups; empty for learned ones, or `stale`.
    #[serde(default)]
    state: String,
    #[serde(default)]
    flags: Vec<String>,
    /// Seconds since the last frame from it.
    #[serde(default)]
    updated: u64,
}

/// Returns the name of something that a bridge or its port does with frames besides forwarding
/// them, for which they must cross it.
fn must_cross(link: &LinkView) -> Option<String> {
    let info = link.linkinfo.as_ref()?;
    let is_set = |value: &Value| match value {
        Value::Bool(is_set) => *is_set,
        value => value.as_u64().is_some_and(|number| number != 0),
    };
    let set = |values: &Map<String, Value>, names: &[&str]| {
        let found = names.iter().find(|name| values.get(**name).is_some_and(is_set));
        found.map(|name| (*name).to_owned())
    };
    if link.master.is_some() {
        return set(&info.info_slave_data, &AT_PORT);
    }
    if info.info_kind.as_deref() != Some("bridge") {
        return None;
    }
    let calls = NETFILTER.iter().find(|name| {
        let value = fs::read_to_string(format!("/proc/sys/net/bridge/{name}"));
        value.is_ok_and(|value| value.trim() != "0")
    });
    set(&info.info_data, &AT_BRIDGE).or_else(|| calls.map(|name| (*name).to_owned()))
}

const ETHER_HEADER: u32 = 14;
/// Word of `bridge vlan` for a VLAN whose frames leave without a tag.
const UNTAGGED: &str = "Egress Untagged";

/// Settings of a bridge that would not apply to frames that bypass it, as `ip -d link` calls them.
const AT_BRIDGE: [&str; 5] =
    ["vlan_filtering", "stp_state", "nf_call_iptables", "nf_call_ip6tables", "nf_call_arptables"];
/// Such settings of a bridge's port.
const AT_PORT: [&str; 5] =
    ["isolated", "locked", "vlan_tunnel", "neigh_suppress", "proxy_arp_wifi"];
/// Filters of `br_netfilter` for the bridges of this namespace.
const NETFILTER: [&str; 3] =
    ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"];

/// Returns true for a default of the kernel, which has no handle of its own.
fn is_default(qdisc: &QdiscView) -> bool {
    qdisc.handle == "0:"
}

/// Returns true for `noqueue`, which limits nothing, whoever put it there.
fn is_noqueue(qdisc: &QdiscView) -> bool {
    qdisc.kind == "noqueue"
}

/// Returns true for a discipline that holds filters at the device's ingress.
fn is_ingress(qdisc: &QdiscView) -> bool {
    qdisc.kind == "ingress" || is_clsact(qdisc)
}

/// Returns true for a discipline that holds filters at both hooks of the device.
fn is_clsact(qdisc: &QdiscView) -> bool {
    qdisc.kind == "clsact"
}

/// Returns true if the handle is that of a tree of Weir, of this node or of another.
fn is_tree(qdisc: &QdiscView) -> bool {
    qdisc.handle == format!("{HANDLE:x}:")
}

/// Reads the number of a class from a line such as `class htb 7e10:11 parent 7e10:10 …`.
fn class_of(line: &str) -> Option<u16> {
    let handle = line.strip_prefix("class ")?.split_whitespace().nth(1)?;
    let minor = handle.strip_prefix(&format!("{HANDLE:x}:"))?;
    u16::from_str_radix(minor, 16).ok()
}

/// Returns how this kernel attaches programs: by TCX since Linux 6.6, by `clsact` since 6.1, the
/// oldest kernel whose verifier is known to accept them; `None` before.
pub(crate) fn hooks() -> Option<HookKind> {
    match release() {
        found if found >= (6, 6) => Some(HookKind::Tcx),
        found if found >= (6, 1) => Some(HookKind::Clsact),
        _ => None,
    }
}

/// The release of this kernel.
fn release() -> (u32, u32) {
    version(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Goal: a bridge that filters, or a port that is isolated, keeps its frames; a plain one not.
    #[test]
    fn what_a_bridge_does_beside_forwarding_is_named() {
        let said = |info: &str, master: &str| -> Option<String> {
            let text =
                format!(r#"{{"ifindex":3,"ifname":"x","mtu":1500{master},"linkinfo":{info}}}"#);
            must_cross(&serde_json::from_str(&text).unwrap())
        };
        let bridge = |values: &str| {
            said(&format!(r#"{{"info_kind":"bridge","info_data":{{{values}}}}}"#), "")
        };
        assert_eq!(
            bridge(r#""stp_state":0,"vlan_filtering":1"#).as_deref(),
            Some("vlan_filtering")
        );
        let port = |values: &str| {
            let info = format!(r#"{{"info_slave_kind":"bridge","info_slave_data":{{{values}}}}}"#);
            said(&info, r#","master":"br0""#)
        };
        assert_eq!(port(r#""isolated":true,"hairpin":false"#).as_deref(), Some("isolated"));
        assert_eq!(port(r#""isolated":false,"state":"forwarding""#), None);
        assert_eq!(said(r#"{"info_kind":"veth"}"#, ""), None);
    }

    /// Goal: the members of a bond are no ports of a bridge, whatever a policy calls one.
    #[test]
    fn a_bond_is_no_bridge() {
        let links: Vec<LinkView> = serde_json::from_str(
            r#"[{"ifindex":2,"ifname":"br0","mtu":1500,"linkinfo":{"info_kind":"bridge"}},
            {"ifindex":3,"ifname":"bond0","mtu":1500,"master":"br0",
            "linkinfo":{"info_kind":"bond"}},
            {"ifindex":4,"ifname":"eth0","mtu":1500,"master":"bond0"},
            {"ifindex":5,"ifname":"eth1","mtu":1500}]"#,
        )
        .unwrap();
        let bridges = links.iter().map(|link| bridge_of(&links, link));
        let bridges: Vec<_> = bridges.collect();
        assert_eq!(bridges, [None, Some("br0".to_owned()), None, None]);
    }

    /// Goal: a device is a trunk where its bridge keeps VLANs apart and tags some of them there.
    #[test]
    fn tagged_vlans_are_read_where_a_bridge_filters_them() {
        let read = |filtering: u8| {
            let links: Vec<LinkView> = serde_json::from_str(&format!(
                r#"[{{"ifindex":2,"ifname":"br0","mtu":1500,"linkinfo":{{"info_kind":"bridge",
                "info_data":{{"vlan_filtering":{filtering}}}}}}},
                {{"ifindex":3,"ifname":"tap1","mtu":1500,"master":"br0"}},
                {{"ifindex":4,"ifname":"tap2","mtu":1500,"master":"br0"}}]"#
            ))
            .unwrap();
            let vlans: Vec<DeviceVlans> = serde_json::from_str(
                r#"[{"ifname":"tap1","vlans":[{"vlan":1,"flags":["PVID","Egress Untagged"]},
                {"vlan":10},{"vlan":20,"vlanEnd":30}]},
                {"ifname":"tap2","vlans":[{"vlan":1,"flags":["PVID","Egress Untagged"]}]}]"#,
            )
            .unwrap();
            [1, 2].map(|at| tagged_vlans(&links, &links[at], &vlans))
        };
        assert_eq!(read(1), [Some("10, 20-30".to_owned()), None]);
        assert_eq!(read(0), [None, None]);
    }

    /// Goal: addresses beyond a port are those that the bridge learned, not its own, each as old as
    /// the bridge has it.
    #[test]
    fn what_a_bridge_learned_is_beyond_its_port() {
        let known: Vec<BridgeEntry> = serde_json::from_str(
            r#"[{"mac":"02:00:00:00:ff:01","used":3,"updated":250,"master":"br0","state":""},
            {"mac":"02:00:00:00:ff:02","used":9,"updated":900,"flags":[],"state":"static"},
            {"mac":"02:00:00:00:ff:03","updated":400,"flags":[],"state":"stale"},
            {"mac":"02:00:00:00:ff:04","updated":900,"flags":["extern_learn"],"state":""},
            {"mac":"02:00:00:00:ff:05","flags":[],"state":""},
            {"mac":"02:00:00:00:00:01","flags":[],"master":"br0","state":"permanent"},
            {"mac":"33:33:00:00:00:01","flags":["self"],"state":"permanent"}]"#,
        )
        .unwrap();
        let address = |last| [2, 0, 0, 0, 0xff, last];
        let silences = [250, 0, 400, 0, 0].map(Nanos::from_secs);
        let silences: Vec<HeardAddress> = (1..).map(address).zip(silences).collect();
        assert_eq!(learned_of(&known), silences);
    }

    #[test]
    fn versions_and_classes_are_read() {
        assert_eq!(version("6.18.44-generic\n"), (6, 18));
        assert_eq!(version("5.10-rc1"), (5, 10));
        assert_eq!(version(""), (0, 0));
        let line = "class htb 7e10:11 parent 7e10:10 leaf 1011: prio 0 rate 8Kbit ceil 240Mbit";
        assert_eq!(class_of(line), Some(0x11));
        assert_eq!(class_of("class htb 1:11 root rate 8Kbit"), None);
    }
}
