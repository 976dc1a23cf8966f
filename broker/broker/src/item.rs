// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Items: what a router is to have for the connections through it, with its devices and addresses.
//!
//! The plan of a connection says what is to be so on a node, without a dialect. Here it becomes
//! items: an entry at the tunnel's first router, a relay at each router between, an exit at the
//! last. An item is a whole value: putting it twice is putting it once. Two paths of one tunnel
//! have different outer addresses, so both can be in place while the traffic moves from one to the
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use weir_network::{
    FlowSelector, NodeInstruction, NodeIntent, TunnelEntry, TunnelFarEnd, TunnelTransit,
};

use crate::config::Encapsulation;
use crate::directory::{KnownRouter, NetworkDirectory};
use crate::tunnel_numbers::EntryNumber;

/// Items by key.
pub(crate) type Items = BTreeMap<String, NodeItem>;

/// A change of the item with a key.
pub(crate) type ItemChange = (String, ItemEdit);

/// A change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemEdit {
    Put(NodeItem),
    Remove,
    /// Remove the entry if it sends to this outer address. The key of an entry is that of all its
    /// paths, so a late removal could take the entry of a path that was put since.
    RemovePath(Ipv6Addr),
}

impl ItemEdit {
    /// Applies the change to items.
    pub(crate) fn apply(&self, key: &str, items: &mut Items) {
        match self {
            Self::Put(item) => drop(items.insert(key.to_owned(), item.clone())),
            Self::RemovePath(outer) if has_other_path(items.get(key), *outer) => {}
            Self::Remove | Self::RemovePath(_) => drop(items.remove(key)),
        }
    }

    /// Returns true if a node that has this item, or none, needs the change no more.
    pub(crate) fn is_met(&self, actual: Option<&NodeItem>) -> bool {
        match self {
            Self::Put(item) => actual == Some(item),
            Self::Remove => actual.is_none(),
            Self::RemovePath(outer) => actual.is_none() || has_other_path(actual, *outer),
        }
    }
}

fn has_other_path(item: Option<&NodeItem>, outer: Ipv6Addr) -> bool {
    matches!(item, Some(NodeItem::Entry(entry)) if entry.path.outer != outer)
}

/// One item of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeItem {
    Entry(EntryItem),
    Relay(RelayItem),
    Exit(ExitItem),
    Link(LinkItem),
    Guard(GuardItem),
    Steering(SteeringItem),
    /// A foreign object has its place and is kept; the text says how to remove it.
    Foreign(String),
    /// Something is there under that key, but it is incomplete or was changed by somebody else.
    Broken,
    /// A part of ours that no other item has.
    Unused,
}

/// Steering, limiter and encapsulation of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryItem {
    pub(crate) tunnel: u16,
    /// Its packets; none if nothing steers them any more.
    pub(crate) flow: Option<TunnelFlow>,
    pub(crate) path: EntryPath,
    /// Rate of the token bucket in bytes a second, with the tunnel's header.
    pub(crate) rate_bytes: u64,
    /// Milliseconds for which packets are held before and after this path takes the place of a
    /// longer one, until that has run empty; then 0.
    pub(crate) hold_ms: u16,
}

/// The packets of a tunnel, as they come to its first router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TunnelFlow {
    /// Device towards the sender.
    pub(crate) access: String,
    pub(crate) selector: FlowSelector,
}

/// Steering of packets to the tunnels that enter at a router. The driver computes it from the
/// entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SteeringItem {
    /// False if a part is missing that all tunnels need.
    pub(crate) is_whole: bool,
    /// Groups of tunnels whose rules packets can find.
    pub(crate) groups: BTreeSet<u16>,
    /// Packets by tunnel; none if it is not whole.
    pub(crate) flows: BTreeMap<u16, TunnelFlow>,
}

/// The path of an entry's packets. The next hop is unspecified if the kernel took its route away
/// with the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryPath {
    /// The end node behind the tunnel.
    pub(crate) destination: Ipv6Addr,
    pub(crate) outer: Ipv6Addr,
    /// Source of the packets, if a device of `ip6tnl` makes them; none with segment routing, which
    /// finds one itself.
    pub(crate) source: Option<Ipv6Addr>,
    pub(crate) next_hop: Ipv6Addr,
    pub(crate) next_device: String,
}

/// A fixed route of an outer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayItem {
    pub(crate) outer: Ipv6Addr,
    pub(crate) next_hop: Ipv6Addr,
    pub(crate) device: String,
}

/// The end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExitItem {
    pub(crate) outer: Ipv6Addr,
    /// Device of the route of segment routing; none if the exit is a device of `ip6tnl`.
    pub(crate) device: Option<String>,
}

/// Classes of a link: tunnels, routing, and everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkItem {
    pub(crate) device: String,
    /// Rate of the link and the part for tunnels, bytes a second.
    pub(crate) rate_bytes: u64,
    pub(crate) tunnels_bytes: u64,
    /// First 64 bits of the outer addresses.
    pub(crate) pool: Ipv6Addr,
    /// Address of the router at its other end.
    pub(crate) neighbour: Ipv6Addr,
}

impl EntryItem {
    /// Returns true if this entry can become another one in place. A device of `ip6tnl` keeps the
    /// addresses with which it was made, and has its name from one of them.
    pub(crate) fn can_become(&self, other: &Self) -> bool {
        let keeps_flow = self.flow.is_none() || self.flow == other.flow;
        let has_device = self.path.source.is_some() && other.path.source.is_some();
        let keeps_name = has_device && self.path.outer == other.path.outer;
        self.tunnel == other.tunnel
            && keeps_flow
            && self.path.destination == other.path.destination
            && !(keeps_name && self.path.source != other.path.source)
    }
}

/// A rule that lets nothing from a device into a network's pool of outer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardItem {
    pub(crate) device: String,
    /// First 64 bits of the outer addresses.
    pub(crate) pool: Ipv6Addr,
}

impl NodeItem {
    /// Returns true if this item takes the place of `actual`. A foreign object is not replaced.
    pub(crate) fn replaces(&self, actual: Option<&Self>) -> bool {
        actual != Some(self) && !matches!(actual, Some(Self::Foreign(_)))
    }

    /// Returns the key of the item; none for those whose key is known to who found them.
    pub(crate) fn key(&self) -> Option<String> {
        match self {
            Self::Entry(entry) => Some(entry_key(entry.tunnel)),
            Self::Relay(RelayItem { outer, .. }) | Self::Exit(ExitItem { outer, .. }) => {
                Some(outer_key(*outer))
            }
            Self::Link(link) => Some(format!("link/{}", link.device)),
            Self::Guard(guard) => Some(guard_key(&guard.device, guard.pool)),
            Self::Steering(_) | Self::Broken | Self::Unused | Self::Foreign(_) => None,
        }
    }
}

/// Returns the key of a tunnel's entry.
pub(crate) fn entry_key(tunnel: u16) -> String {
    format!("entry/{tunnel}")
}

/// Returns the key of an outer address's route.
pub(crate) fn outer_key(outer: Ipv6Addr) -> String {
    format!("outer/{outer}")
}

/// Returns the key of the guard of a pool at a device.
pub(crate) fn guard_key(device: &str, pool: Ipv6Addr) -> String {
    format!("guard/{device}/{pool}")
}

/// Returns true if a key is that of a route of an outer address.
pub(crate) fn is_route(key: &str) -> bool {
    key.starts_with("outer/")
}

/// Returns the outer address of a tunnel: pool, router of the entry, number there, generation.
pub(crate) fn outer_address(pool: Ipv6Addr, entry: EntryNumber, generation: u32) -> Ipv6Addr {
    let [a, b, c, d, ..] = pool.segments();
    // No router is 0: that is for tunnels with numbers of the whole store.
    let router = if entry.is_store_wide { 0 } else { entry.node.0.saturating_add(1) };
    let [.., high, low] = Ipv6Addr::from_bits(u128::from(router)).segments();
    // Neighbouring generations differ, and no more than two are there at once.
    let generation = u16::try_from(generation & 0xffff).unwrap_or_default();
    Ipv6Addr::new(a, b, c, d, high, low, entry.number, generation)
}

/// Returns the number of the tunnel that has this outer address, at its entry.
fn tunnel_of(outer: Ipv6Addr) -> u16 {
    outer.segments()[6]
}

impl NetworkDirectory {
    /// Returns the router of an intent and the changes of its items.
    ///
    /// # Errors
    /// A router, link or end node is no longer configured.
    pub(crate) fn changes(
        &self,
        intent: &NodeIntent,
    ) -> Result<(String, Vec<ItemChange>), NotConfigured> {
        let router = self.router(intent.node).ok_or(NotConfigured("router"))?;
        let changes = intent.commands.iter().map(|command| self.change(command, router));
        Ok((router.name.clone(), changes.collect::<Result<_, _>>()?))
    }

    fn change(
        &self,
        command: &NodeInstruction,
        router: &KnownRouter,
    ) -> Result<ItemChange, NotConfigured> {
        let put = |item: NodeItem| (item.key().unwrap_or_default(), ItemEdit::Put(item));
        Ok(match command {
            NodeInstruction::AddFarEnd(TunnelFarEnd { outer, .. }) => {
                let device = match router.encapsulation {
                    Encapsulation::SegmentRouting => Some(router.device.clone()),
                    Encapsulation::Ip6tnl => None,
                };
                put(NodeItem::Exit(ExitItem { outer: *outer, device }))
            }
            NodeInstruction::AddTransit(TunnelTransit { outer, next, .. }) => {
                let arc = self.arc(*next).ok_or(NotConfigured("link"))?;
                let (next_hop, device) = (arc.next_hop, arc.device.clone());
                put(NodeItem::Relay(RelayItem { outer: *outer, next_hop, device }))
            }
            NodeInstruction::AddEntry(entry) => put(NodeItem::Entry(self.entry(entry, router)?)),
            NodeInstruction::ChangeEntry { to, hold, .. } => {
                let hold_ms = u16::try_from(hold.div_ceil(1_000_000)).unwrap_or(u16::MAX);
                let entry = self.entry(to, router)?;
                put(NodeItem::Entry(EntryItem { hold_ms, ..entry }))
            }
            NodeInstruction::RemoveFarEnd(TunnelFarEnd { outer, .. })
            | NodeInstruction::RemoveTransit(TunnelTransit { outer, .. }) => {
                (outer_key(*outer), ItemEdit::Remove)
            }
            NodeInstruction::RemoveEntry(entry) => {
                let outer = entry.target.outer;
                (entry_key(tunnel_of(outer)), ItemEdit::RemovePath(outer))
            }
        })
    }

    fn entry(&self, entry: &TunnelEntry, router: &KnownRouter) -> Result<EntryItem, NotConfigured> {
        let TunnelEntry { network, selector, limit, target, .. } = *entry;
        let sender = self.host_at(network, selector.source);
        let sender = sender.ok_or(NotConfigured("end node"))?;
        let next = target.next.and_then(|next| self.arc(next)).ok_or(NotConfigured("link"))?;
        let source = match router.encapsulation {
            Encapsulation::SegmentRouting => None,
            Encapsulation::Ip6tnl => Some(next.address),
        };
        let path = EntryPath {
            destination: selector.destination,
            outer: target.outer,
            source,
            next_hop: next.next_hop,
            next_device: next.device.clone(),
        };
        Ok(EntryItem {
            tunnel: tunnel_of(target.outer),
            flow: Some(TunnelFlow { access: sender.device.clone(), selector }),
            path,
            rate_bytes: limit.as_bps().div_ceil(8),
            hold_ms: 0,
        })
    }
}

/// Routing protocol that marks routes and rules of ours.
pub(crate) const PROTOCOL: u32 = 87;

/// Tells that the configuration no longer has something that a connection passes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a {0} that it passes is no longer configured")]
pub(crate) struct NotConfigured(&'static str);

#[cfg(test)]
mod tests {
    use weir_network::FlowSelector;

    use super::*;

    fn entry(outer: &str) -> NodeItem {
        let outer: Ipv6Addr = outer.parse().unwrap();
        let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let (protocol, source_port, destination_port) = (None, None, None);
        let selector =
            FlowSelector { source, destination, protocol, source_port, destination_port };
        NodeItem::Entry(EntryItem {
            tunnel: tunnel_of(outer),
            flow: Some(TunnelFlow { access: "x".to_owned(), selector }),
            path: EntryPath {
                destination,
                outer,
                source: None,
                next_hop: outer,
                next_device: "y".to_owned(),
            },
            rate_bytes: 1,
            hold_ms: 0,
        })
    }

    /// Goal: the removal of a path's entry that comes late leaves the entry of the connection's
    /// next path, and is done then; its own it removes.
    #[test]
    fn a_late_removal_leaves_the_entry_of_another_path() {
        let removal = ItemEdit::RemovePath("fd0f::1:7:1".parse().unwrap());
        let (key, mut items) = (entry_key(7), Items::new());
        ItemEdit::Put(entry("fd0f::1:7:2")).apply(&key, &mut items);
        removal.apply(&key, &mut items);
        assert_eq!(items.get(&key), Some(&entry("fd0f::1:7:2")));
        assert!(removal.is_met(items.get(&key)) && removal.is_met(None));
        assert!(!removal.is_met(Some(&NodeItem::Broken)));
        ItemEdit::Put(entry("fd0f::1:7:1")).apply(&key, &mut items);
        assert!(!removal.is_met(items.get(&key)));
        removal.apply(&key, &mut items);
        assert!(items.is_empty());
    }
}
