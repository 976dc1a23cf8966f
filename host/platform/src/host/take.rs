// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device becomes Weir's: all its frames, as they are on the wire, none of the host's own.

use serde_json::Value;

use super::Change;
use crate::error::HostError;
use crate::inspect::{self, LinkView};
use crate::purpose::ChangePurpose;
use crate::run::{Command, Platform, RunError, json};
use crate::undo::Undo;

/// How a device is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The device.
    pub device: String,
    /// The namespace it is in, by name; none: that of this process. With a name, `weir clean`
    /// finds the way back from anywhere.
    pub namespace: Option<String>,
    /// The largest packet in bytes at layer 3 that a frame of the pool carries.
    pub mtu_max: u32,
    /// Packets of a queue in front of the device where it has none: a veth without one drops
    /// what its peer has no room for after the sender was told that it is sent.
    pub queue: u32,
    /// Whether its frames for other stations are wanted: on a port, not on a vif.
    pub promiscuous: bool,
    /// Whether the host's addresses on it move away ([`super::host_vif`]). If not, a device that
    /// has any is refused: the host would lose them.
    pub addresses_move: bool,
}

/// What has to be changed so that the device is Weir's. Reads only.
///
/// # Errors
/// There is no such device; its packets are too large; it is the port of a bridge; it has
/// addresses that would be lost; a command failed.
pub fn take_device(on: &dyn Platform, take: &Take) -> Result<Vec<Change>, HostError> {
    let link = inspect::link_in(on, take.namespace.as_deref(), &take.device)?;
    check(take, &link)?;
    let mut changes = Vec::new();
    if !take.addresses_move {
        changes.extend(without_ipv6(on, take)?);
    }
    changes.extend(without_offloads(on, take)?);
    if link.qdisc.as_deref() == Some("noqueue") {
        changes.push(with_queue(take));
    }
    if take.promiscuous {
        changes.push(set(take, "hear frames for all stations", "promisc on", "promisc off"));
    }
    if !link.has("UP") {
        changes.push(set(take, "up", "up", "down"));
        if link.qdisc.as_deref() == Some("noop") && link.is("veth") {
            // The kernel chooses a queueing discipline when a device first comes up; a veth gets
            // none at all.
            changes.push(with_queue(take));
        }
    }
    Ok(changes)
}

fn check(take: &Take, link: &LinkView) -> Result<(), HostError> {
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

/// The host says nothing on the device: no router solicitations, no multicast reports.
fn without_ipv6(on: &dyn Platform, take: &Take) -> Result<Option<Change>, HostError> {
    // With slashes, since a device's name may hold dots.
    let key = format!("net/ipv6/conf/{}/disable_ipv6", take.device);
    let read = command(take, "sysctl", &["-n", &key]);
    let now = match on.run(&read) {
        Ok(now) => now,
        // A kernel without IPv6.
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if now.trim() != "0" {
        return Ok(None);
    }
    Ok(Some(Change {
        purpose: ChangePurpose::device(&take.device),
        what: format!("{}: no IPv6 of the host's own", take.device),
        run: vec![command(take, "sysctl", &["-q", "-w", &format!("{key}=1")])],
        undo: Undo::run(command(take, "sysctl", &["-q", "-e", "-w", &format!("{key}=0")])),
    }))
}

/// Frames come as they were on the wire: not merged, and with their VLAN tag in place.
fn without_offloads(on: &dyn Platform, take: &Take) -> Result<Option<Change>, HostError> {
    let features: Result<Vec<Value>, RunError> =
        json(on, &command(take, "ethtool", &["--json", "-k", &take.device]));
    // A device that knows no offloads (some virtual ones) has none to turn off.
    let Some(features) = features.ok().and_then(|mut list| list.pop()) else { return Ok(None) };
    let changeable = |(name, _): &&(&str, &str)| {
        features[*name]["active"] == Value::Bool(true)
            && features[*name]["fixed"] != Value::Bool(true)
    };
    let names: Vec<&str> = OFFLOADS.iter().filter(changeable).map(|(_, short)| *short).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let switched = |to: &'static str| {
        let mut args = vec!["-K", take.device.as_str()];
        args.extend(names.iter().flat_map(|name| [*name, to]));
        command(take, "ethtool", &args)
    };
    Ok(Some(Change {
        purpose: ChangePurpose::device(&take.device),
        what: format!("{}: frames as they are on the wire ({} off)", take.device, names.join(", ")),
        run: vec![switched("off")],
        undo: Undo::run(switched("on")),
    }))
}

fn with_queue(take: &Take) -> Change {
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

fn set(take: &Take, what: &str, to: &str, back: &str) -> Change {
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

fn command(take: &Take, program: &str, args: &[&str]) -> Command {
    Command::new(program, args).maybe_in_namespace(take.namespace.as_deref())
}

/// As `ethtool --json -k` names them, and as `ethtool -K` takes them.
const OFFLOADS: &[(&str, &str)] = &[
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
    ("rx-vlan-offload", "rxvlan"),
    ("tx-vlan-offload", "txvlan"),
];

/// Of the queue in front of a device: tells ours from another that somebody put in its place.
const HANDLE: &str = "7e1f:";
