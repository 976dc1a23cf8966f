// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's own vif: its stack behind Weir like any tenant, so that SSH survives when the only
//! NIC becomes a port.
//!
//! A veth pair is made; its host's end takes over the NIC's MAC address, addresses, routes and
//! neighbours; its other end is Weir's. Addresses with a lifetime (DHCP, router announcements)
//! keep the state they have; whoever renews them must be told of the new device.

use serde::Deserialize;

use super::Change;
use crate::error::HostError;
use crate::inspect::{self, LinkView};
use crate::purpose::ChangePurpose;
use crate::run::{Command, Platform, json};
use crate::undo::Undo;

/// The host's vif, to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVif {
    /// The NIC whose addresses move.
    pub nic: String,
    /// The new device that carries the host's addresses.
    pub host_device: String,
    /// The other end, which Weir takes as the vif's device.
    pub weir_device: String,
    /// The name of the namespace of all three; `None`: that of this process.
    pub namespace: Option<String>,
}

/// Plans how the host's stack moves behind a vif. Reads only.
///
/// The NIC is without an address only for the time that two batches of `ip` take; the caller then
/// has to take `nic` and `weir_device` and to forward at once.
///
/// # Errors
/// There is no such NIC; one of the new devices is there already; a route cannot be moved; a
/// command failed.
pub fn host_vif(on: &dyn Platform, vif: &HostVif) -> Result<Change, HostError> {
    let namespace = vif.namespace.as_deref();
    let links = inspect::links(on, namespace)?;
    let find = |name: &str| links.iter().find(|link| link.ifname == name);
    for device in [&vif.host_device, &vif.weir_device] {
        if find(device).is_some() {
            return Err(HostError::Refused(format!("device {device}: there is one already")));
        }
        if !(1..=DEVICE_LEN_MAX).contains(&device.len()) {
            return Err(HostError::Refused(format!(
                "device {device:?}: a name is 1 to {DEVICE_LEN_MAX} bytes"
            )));
        }
    }
    let nic = find(&vif.nic)
        .ok_or_else(|| HostError::Refused(format!("device {}: there is none", vif.nic)))?;
    let moved = Moved {
        addresses: addresses(nic),
        routes: [routes(on, vif, "-4")?, routes(on, vif, "-6")?],
        neighbours: neighbours(on, vif)?,
    };
    Ok(Change {
        purpose: ChangePurpose::HostVif {
            nic: vif.nic.clone(),
            host_device: vif.host_device.clone(),
        },
        what: format!("{}: the host's addresses move to {}", vif.nic, vif.host_device),
        run: moved.to_vif(vif, nic),
        undo: Undo::Run(moved.back(vif)),
    })
}

/// The objects that move, each as `ip` takes it, without the device.
struct Moved {
    addresses: Vec<String>,
    /// The routes of IPv4, and of IPv6.
    routes: [Vec<String>; 2],
    /// With the state that it is given.
    neighbours: Vec<(String, &'static str)>,
}

impl Moved {
    fn to_vif(&self, vif: &HostVif, nic: &LinkView) -> Vec<Command> {
        let HostVif { nic: from, host_device: to, weir_device: other, .. } = vif;
        let mac = nic.address.as_deref().map(|mac| format!(" address {mac}")).unwrap_or_default();
        let mtu = nic.mtu;
        let mut lines = vec![
            format!("link add name {to} mtu {mtu}{mac} type veth peer name {other} mtu {mtu}"),
            format!("link set dev {other} up"),
            format!("link set dev {to} up"),
            format!("addr flush dev {from}"),
        ];
        lines.extend(
            self.addresses.iter().map(|address| format!("addr replace {address} dev {to}")),
        );
        lines.extend(self.routes[0].iter().map(|route| format!("route replace {route} dev {to}")));
        lines.extend(self.neighbours_at(to));
        let mut lines6 = vec![format!("route flush dev {from}")];
        lines6.extend(self.routes[1].iter().map(|route| format!("route replace {route} dev {to}")));
        let mut commands = vec![Command::batch("ip", lines)];
        if !self.routes[1].is_empty() {
            commands.push(ip6_batch(Command::batch("ip", lines6)));
        }
        in_namespace(commands, vif)
    }

    /// Returns the commands of the undo. Each line may fail alone, since an object that was never
    /// moved is still there.
    fn back(&self, vif: &HostVif) -> Vec<Command> {
        let HostVif { nic: to, host_device: from, .. } = vif;
        let mut lines = vec![format!("link del dev {from}")];
        lines.extend(
            self.addresses.iter().map(|address| format!("addr replace {address} dev {to}")),
        );
        lines.extend(self.routes[0].iter().map(|route| format!("route replace {route} dev {to}")));
        lines.extend(self.neighbours_at(to));
        let lines6 = self.routes[1].iter().map(|route| format!("route replace {route} dev {to}"));
        let mut commands = vec![Command::batch_force("ip", lines)];
        if !self.routes[1].is_empty() {
            commands.push(ip6_batch(Command::batch_force("ip", lines6)));
        }
        in_namespace(commands, vif)
    }

    fn neighbours_at(&self, device: &str) -> impl Iterator<Item = String> {
        self.neighbours.iter().map(move |(neighbour, state)| {
            format!("neigh replace {neighbour} dev {device} nud {state}")
        })
    }
}

fn in_namespace(commands: Vec<Command>, vif: &HostVif) -> Vec<Command> {
    let place = vif.namespace.as_deref();
    commands.into_iter().map(|command| command.maybe_in_namespace(place)).collect()
}

/// Adds the family, which lines with the destination `default` do not show.
fn ip6_batch(batch: Command) -> Command {
    batch.with_option("-6")
}

fn addresses(nic: &LinkView) -> Vec<String> {
    let mut texts = Vec::new();
    for address in &nic.addr_info {
        let mut text = match &address.address {
            Some(peer) => format!("{} peer {peer}/{}", address.local, address.prefixlen),
            None => format!("{}/{}", address.local, address.prefixlen),
        };
        if let Some(broadcast) = &address.broadcast {
            text += &format!(" broadcast {broadcast}");
        }
        text += &format!(" scope {}", address.scope);
        if address.family == "inet6" {
            // Duplicate address detection is not needed: it was done at the NIC.
            text += " nodad";
        }
        texts.push(text);
    }
    texts
}

/// Returns the routes through the NIC that do not come with its addresses.
fn routes(on: &dyn Platform, vif: &HostVif, family: &str) -> Result<Vec<String>, HostError> {
    let show = Command::new("ip", [family, "route", "show", "table", "all", "dev", &vif.nic]);
    let text = match on.run(&show.maybe_in_namespace(vif.namespace.as_deref())) {
        Ok(text) => text,
        Err(error) if error.is_gone() => String::new(),
        Err(error) => return Err(error.into()),
    };
    let mut routes = Vec::new();
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if line.starts_with(char::is_whitespace) {
            return Err(HostError::Refused(format!(
                "device {}: a route with several next hops cannot be moved: {}",
                vif.nic,
                line.trim()
            )));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let made_by_kernel = words.windows(2).any(|pair| pair == ["proto", "kernel"]);
        let special = matches!(words[0], "local" | "broadcast" | "multicast" | "anycast");
        if made_by_kernel || special {
            continue;
        }
        routes.push(settable(&words));
    }
    // Direct routes come first, since the gateways of the others are reached through them.
    routes.sort_by_key(|route| route.contains(" via "));
    Ok(routes)
}

/// Returns a printed route without the words that `ip` prints but does not accept.
fn settable(words: &[&str]) -> String {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "linkdown" | "dead" | "offload" | "trap" | "rt_offload" => {}
            "expires" | "error" => {
                words.next();
            }
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

#[derive(Deserialize)]
struct NeighbourView {
    dst: String,
    #[serde(default)]
    lladdr: Option<String>,
    #[serde(default)]
    state: Vec<String>,
}

/// Returns the neighbours with a known address. Fixed ones stay fixed; the others become stale, so
/// that they are used until they prove wrong and no connection waits for an answer.
fn neighbours(on: &dyn Platform, vif: &HostVif) -> Result<Vec<(String, &'static str)>, HostError> {
    let show = Command::new("ip", ["-j", "neigh", "show", "dev", &vif.nic]);
    let views: Vec<NeighbourView> = json(on, &show.maybe_in_namespace(vif.namespace.as_deref()))?;
    let known = views.iter().filter_map(|view| {
        let mac = view.lladdr.as_ref()?;
        let is = |state: &str| view.state.iter().any(|name| name == state);
        let state = if is("PERMANENT") { "permanent" } else { "stale" };
        (!is("FAILED") && !is("NOARP")).then(|| (format!("{} lladdr {mac}", view.dst), state))
    });
    Ok(known.take(NEIGHBOURS_MAX).collect())
}

/// IFNAMSIZ without its zero.
const DEVICE_LEN_MAX: usize = 15;

/// The number that the kernel keeps before it throws any away (`gc_thresh3`); the rest is learned
/// anew.
const NEIGHBOURS_MAX: usize = 1024;
