// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes a device from the host: Weir then sees all its frames as they are on the wire, and the
//! host sends none of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Change;
use crate::error::HostError;
use crate::inspect::{self, LinkView};
use crate::purpose::ChangePurpose;
use crate::run::{Command, Platform, RunError, json};
use crate::undo::Undo;

/// A device to take, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeRequest {
    /// The device.
    pub device: String,
    /// The name of its namespace; `None`: that of this process. With the name, `weir clean` can
    /// undo the changes from any namespace.
    pub namespace: Option<String>,
    /// The largest packet in bytes at layer 3 that a frame of the pool carries.
    pub mtu_max: u32,
    /// Packets that a queue before the device holds, if it has no queue of its own. Without one a
    /// veth tells the sender that a packet is sent, and then drops it if its peer has no room.
    pub queue: u32,
    /// True if its frames for other stations are wanted: on a port, not on a vif.
    pub promiscuous: bool,
    /// True if the host's addresses on it are moved ([`super::host_vif`]). Otherwise a device with
    /// addresses is refused: the host would lose them.
    pub addresses_move: bool,
}

/// Plans the changes that take a device. Reads only.
///
/// # Errors
/// There is no such device; its packets are too large; it is the port of a bridge; it has
/// addresses that would be lost; a command failed.
pub fn take_device(on: &dyn Platform, take: &TakeRequest) -> Result<Vec<Change>, HostError> {
    let mut problems = Vec::new();
    let changes = take_devices(on, std::slice::from_ref(take), &mut problems)?;
    problems.into_iter().next().map_or(Ok(changes), Err)
}

/// Plans the changes that take devices of one namespace. Reads only, by a few commands for many
/// devices. A step is planned for all devices before the next one, so that [`super::apply`] runs it
/// as one command. A device that cannot be taken is left out, and the reason added to `problems`.
///
/// # Errors
/// A command failed.
pub fn take_devices(
    on: &dyn Platform,
    takes: &[TakeRequest],
    problems: &mut Vec<HostError>,
) -> Result<Vec<Change>, HostError> {
    let mut taken = Vec::with_capacity(takes.len());
    for (take, link) in takes.iter().zip(links(on, takes)?) {
        let missing = || HostError::Refused(format!("device {}: there is none", take.device));
        match link.ok_or_else(missing).and_then(|link| check(take, &link).map(|()| link)) {
            Ok(link) => taken.push((take, link)),
            Err(problem) => problems.push(problem),
        }
    }
    let own: Vec<&TakeRequest> =
        taken.iter().map(|(take, _)| *take).filter(|take| !take.addresses_move).collect();
    let mut changes = without_ipv6(on, &own)?;
    let all: Vec<&TakeRequest> = taken.iter().map(|(take, _)| *take).collect();
    changes.extend(without_offloads(on, &all));
    let qdisc = |link: &LinkView, name: &str| link.qdisc.as_deref() == Some(name);
    let noqueue = taken.iter().filter(|(_, link)| qdisc(link, "noqueue"));
    changes.extend(noqueue.map(|(take, _)| with_queue(take)));
    let promiscuous = taken.iter().filter(|(take, _)| take.promiscuous);
    changes.extend(
        promiscuous.map(|(take, _)| {
            set(take, "hear frames for all stations", "promisc on", "promisc off")
        }),
    );
    let down: Vec<_> = taken.iter().filter(|(_, link)| !link.has("UP")).collect();
    changes.extend(down.iter().map(|(take, _)| set(take, "up", "up", "down")));
    // The kernel chooses a queueing discipline when a device first comes up; a veth gets none at
    // all.
    let bare = down.iter().filter(|(_, link)| qdisc(link, "noop") && link.is("veth"));
    changes.extend(bare.map(|(take, _)| with_queue(take)));
    Ok(changes)
}

/// Returns the links of the devices, in their order; `None` for a device that does not exist.
fn links(on: &dyn Platform, takes: &[TakeRequest]) -> Result<Vec<Option<LinkView>>, HostError> {
    let [first, ..] = takes else { return Ok(Vec::new()) };
    debug_assert!(
        takes.iter().all(|take| take.namespace == first.namespace),
        "one dump shows one namespace"
    );
    let namespace = first.namespace.as_deref();
    if takes.len() == 1 {
        return Ok(vec![inspect::find_link(on, namespace, &first.device)?]);
    }
    let links = inspect::links(on, namespace)?.into_iter();
    let mut links: BTreeMap<String, LinkView> =
        links.map(|link| (link.ifname.clone(), link)).collect();
    Ok(takes.iter().map(|take| links.remove(&take.device)).collect())
}

fn check(take: &TakeRequest, link: &LinkView) -> Result<(), HostError> {
    let device = &take.device;
    if link.mtu > take.mtu_max {
        return Err(HostError::Refused(format!(
            "device {device}: mtu {}, and a frame of the pool carries at most {}",
            link.mtu, take.mtu_max
        )));
    }
    if let Some(master) = &link.master {
        return Err(HostError::Refused(format!(
            "device {device}: it is a port of {master}; \
             `ip link set dev {device} nomaster` frees it"
        )));
    }
    let own = link.addr_info.iter().find(|address| address.scope == "global");
    match own {
        Some(address) if !take.addresses_move => Err(HostError::Refused(format!(
            "device {device}: the host would lose its address {}/{}; give the host a vif of kind \
             \"host\" there, or remove the address",
            address.local, address.prefixlen
        ))),
        _ => Ok(()),
    }
}

/// Disables IPv6 on the devices, so that the host sends no router solicitations or multicast
/// reports on them.
fn without_ipv6(on: &dyn Platform, takes: &[&TakeRequest]) -> Result<Vec<Change>, HostError> {
    let mut enabled = BTreeSet::new();
    for takes in takes.chunks(KEYS_MAX) {
        let Some(first) = takes.first() else { break };
        // With `-e` a kernel without IPv6 has none of the keys.
        let keys = takes.iter().map(|take| ipv6_key(&take.device));
        let args = ["-e".to_owned()].into_iter().chain(keys);
        let read = Command::new("sysctl", args).maybe_in_namespace(first.namespace.as_deref());
        let text = on.run(&read)?;
        enabled.extend(text.lines().filter_map(ipv6_enabled));
    }
    let change = |take: &&TakeRequest| {
        let set = |args: &[&str], value: u8| {
            let pair = format!("{}={value}", ipv6_key(&take.device));
            command(take, "sysctl", &[args, &[pair.as_str()]].concat())
        };
        Change {
            purpose: ChangePurpose::device(&take.device),
            what: format!("{}: no IPv6 of the host's own", take.device),
            run: vec![set(&["-q", "-w"], 1)],
            undo: Undo::run(set(&["-q", "-e", "-w"], 0)),
        }
    };
    Ok(takes.iter().filter(|take| enabled.contains(&take.device)).map(change).collect())
}

/// Returns the key that disables a device's IPv6. It has slashes, since a device's name may contain
/// dots.
fn ipv6_key(device: &str) -> String {
    format!("{IPV6_BEFORE}{device}{IPV6_AFTER}")
}

/// Returns the device of a line such as `net.ipv6.conf.eth0/100.disable_ipv6 = 0`, in which dots
/// and slashes have changed places; `None` if its IPv6 is disabled.
fn ipv6_enabled(line: &str) -> Option<String> {
    let (key, value) = line.split_once(" = ")?;
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let key: String = key.chars().map(swap).collect();
    let device = key.strip_prefix(IPV6_BEFORE)?.strip_suffix(IPV6_AFTER)?;
    (value.trim() == "0").then(|| device.to_owned())
}

/// Turns offloads off, so that frames arrive as they were on the wire: not merged, and with their
/// VLAN tag in place.
fn without_offloads(on: &dyn Platform, takes: &[&TakeRequest]) -> Vec<Change> {
    let all = match takes {
        [] | [_] => BTreeMap::new(),
        [first, ..] => features(on, first, "*"),
    };
    let mut changes = Vec::new();
    for take in takes {
        // Old versions of ethtool do not know `*`.
        let own = match all.get(&take.device) {
            Some(features) => Some(features.clone()),
            None => features(on, take, &take.device).remove(&take.device),
        };
        // Some virtual devices have no offloads at all.
        changes.extend(own.and_then(|features| without_offloads_of(take, &features)));
    }
    changes
}

/// Returns the features of one device, or of all (`*`), by device; empty if they cannot be read.
fn features(on: &dyn Platform, take: &TakeRequest, device: &str) -> BTreeMap<String, Value> {
    let list: Result<Vec<Value>, RunError> =
        json(on, &command(take, "ethtool", &["--json", "-k", device]));
    let name = |features: &Value| features["ifname"].as_str().map(ToOwned::to_owned);
    let named = list.unwrap_or_default().into_iter();
    named.filter_map(|features| Some((name(&features)?, features))).collect()
}

fn without_offloads_of(take: &TakeRequest, features: &Value) -> Option<Change> {
    let changeable = |(name, _): &&(&str, &str)| {
        features[*name]["active"] == Value::Bool(true)
            && features[*name]["fixed"] != Value::Bool(true)
    };
    let names: Vec<&str> = OFFLOADS.iter().filter(changeable).map(|(_, short)| *short).collect();
    if names.is_empty() {
        return None;
    }
    let switched = |to: &'static str| {
        let mut args = vec!["-K", take.device.as_str()];
        args.extend(names.iter().flat_map(|name| [*name, to]));
        command(take, "ethtool", &args)
    };
    Some(Change {
        purpose: ChangePurpose::device(&take.device),
        what: format!("{}: frames as they are on the wire ({} off)", take.device, names.join(", ")),
        run: vec![switched("off")],
        undo: Undo::run(switched("on")),
    })
}

fn with_queue(take: &TakeRequest) -> Change {
    let limit = take.queue.to_string();
    let device = take.device.as_str();
    Change {
        purpose: ChangePurpose::device(&take.device),
        what: format!("{device}: a queue, so that a full device holds the sender back"),
        run: vec![command(
            take,
            "tc",
            &[
                "qdisc", "replace", "dev", device, "root", "handle", HANDLE, "pfifo", "limit",
                &limit,
            ],
        )],
        undo: Undo::run(command(
            take,
            "tc",
            &["qdisc", "del", "dev", device, "root", "handle", HANDLE, "pfifo"],
        )),
    }
}

fn set(take: &TakeRequest, what: &str, to: &str, back: &str) -> Change {
    let line = |words: &str| {
        let command = Command::line(&format!("ip link set dev {} {words}", take.device));
        command.maybe_in_namespace(take.namespace.as_deref())
    };
    Change {
        purpose: ChangePurpose::device(&take.device),
        what: format!("{}: {what}", take.device),
        run: vec![line(to)],
        undo: Undo::run(line(back)),
    }
}

fn command(take: &TakeRequest, program: &str, args: &[&str]) -> Command {
    Command::new(program, args).maybe_in_namespace(take.namespace.as_deref())
}

/// Before and after the device in the key that disables IPv6.
const IPV6_BEFORE: &str = "net/ipv6/conf/";
const IPV6_AFTER: &str = "/disable_ipv6";

/// Keys that one command reads: their text is far below the kernel's bound on arguments.
const KEYS_MAX: usize = 1024;

/// The names in `ethtool --json -k`, and those that `ethtool -K` takes.
const OFFLOADS: &[(&str, &str)] = &[
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
    ("rx-vlan-offload", "rxvlan"),
    ("tx-vlan-offload", "txvlan"),
];

/// The handle of the queue before a device, by which it is told apart from a queue of others.
const HANDLE: &str = "7e1f:";
