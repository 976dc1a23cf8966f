// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab of most experiments: a switch node with a link to each tenant and one to the wire.
//!
//! ```text
//!   t0 ── eth0──t0 ┐
//!   t1 ── eth0──t1 ┼ sw ── up0 ── eth0 ── wire
//!   …              ┘   rate
//! ```
//!
//! Only `up0` has a rate. For a kernel bridge in `sw`, the lab's queueing discipline sets it. Weir
//! bypasses that discipline and takes the rate from its policy.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_platform::run::Command;
use weir_policy::{MacAddr, Policy, Port, PortId, Slice, Vif, VifId};
use weir_traffic::Mac;
use weir_units::{BitRate, ByteCount, Nanos};

/// The parameters of a star: a switch in the middle, tenants and a wire around it.
#[derive(Clone, Debug)]
pub struct StarTopology {
    /// The lab's name; namespaces are called `NAME-NODE`.
    pub name: String,
    /// Tenants by name, at most [`TENANTS_MAX`].
    pub tenants: Vec<String>,
    /// The rate of `up0`.
    pub rate: BitRate,
    /// Most packets that wait at `up0` in the kernel's queue (the bridge's FIFO).
    pub queue: u32,
    /// True if the tenants' devices keep the kernel's default offloads.
    pub offloads: bool,
    /// Receive and transmit queues of each device.
    pub queues: u32,
    /// True if nodes resolve each other's addresses (ARP, ND) instead of knowing them, and speak
    /// IPv6 too.
    pub resolves: bool,
    /// True if the switch node's host has an address of its own, on the uplink.
    pub host: bool,
    /// The round-trip time of a frame to the wire without queues, half of it each way.
    pub round_trip: Nanos,
    /// Further nodes and links, in the form of a topology file.
    pub more: &'static str,
}

impl StarTopology {
    /// Makes a star of tenants `t0`, `t1`, …, each a namespace of its own.
    pub fn new(name: &str, tenants: usize, rate: BitRate) -> Self {
        let tenants = (0..tenants).map(|index| format!("t{index}")).collect();
        let (name, queue) = (name.to_owned(), FIFO_PACKETS);
        let (resolves, host, round_trip) = (false, false, Nanos::ZERO);
        let (offloads, queues, more) = (true, 1, "");
        Self { name, tenants, rate, queue, offloads, queues, resolves, host, round_trip, more }
    }

    /// Returns the text of the topology, for a lab to read.
    pub fn topology(&self) -> String {
        let Self { name, rate, queue, offloads, queues, .. } = self;
        let mut text = format!("name = \"{name}\"\n");
        let mut links = String::new();
        let mut nodes = vec!["sw", "wire"];
        nodes.extend(self.tenants.iter().map(String::as_str));
        for node in nodes {
            let _ = writeln!(text, "[[node]]\nname = \"{node}\"");
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            let own = self.end(Self::address(index), Self::mac(index));
            let neighbours = self.neighbours(&[Self::wire()]);
            let _ = write!(
                links,
                "[[link]]\nqueues = {queues}\n\
                 a = {{ at = \"{tenant}:eth0\", {own}, offloads = {offloads}{neighbours} }}\n\
                 b = {{ at = \"sw:{tenant}\" }}\n"
            );
        }
        let tenants = 0..self.tenants.len();
        let mut others: Vec<_> = tenants.map(|k| (Self::address(k), Self::mac(k))).collect();
        others.extend(self.host.then(Self::host));
        let wire = self.end(Self::wire_address(), Self::wire_mac());
        let others = self.neighbours(&others);
        let host = match self.host {
            true => {
                let own = self.end(Self::host().0, Self::host().1);
                format!(", {own}{}", self.neighbours(&[Self::wire()]))
            }
            false => String::new(),
        };
        let delay = match self.round_trip.as_nanos() / 2 {
            0 => String::new(),
            half => format!("delay = \"{}\"\n", Nanos::new(half)),
        };
        let _ = write!(
            links,
            "[[link]]\nqueues = {queues}\n{delay}\
             a = {{ at = \"sw:{UPLINK}\", rate = \"{rate}\", queue = {queue}{host} }}\n\
             b = {{ at = \"wire:eth0\", {wire}, offloads = {offloads}{others} }}\n"
        );
        text + &links + self.more
    }

    /// Returns the addresses of an end of a link, in the form of a topology file.
    fn end(&self, ip: Ipv4Addr, mac: Mac) -> String {
        let ipv6 = match self.resolves {
            true => format!(", \"{}/64\"", Self::ipv6(ip)),
            false => String::new(),
        };
        format!("mac = \"{mac}\", addresses = [\"{ip}/16\"{ipv6}]")
    }

    /// Returns the fixed neighbours of an end; empty if the nodes resolve addresses.
    fn neighbours(&self, known: &[(Ipv4Addr, Mac)]) -> String {
        if self.resolves {
            return String::new();
        }
        let known: Vec<String> =
            known.iter().map(|(ip, mac)| format!("\"{ip}\" = \"{mac}\"")).collect();
        format!(", neighbours = {{ {} }}", known.join(", "))
    }

    /// Makes a policy for the switch node: one slice and one vif for each tenant, with its MAC
    /// address and no guarantee yet. Tenant k is vif k.
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::new(&self.name);
        let port = policy.add_port(Port::new(UPLINK, self.rate));
        for (index, tenant) in self.tenants.iter().enumerate() {
            self.add_tenant(&mut policy, port, index, tenant);
        }
        provide_frames(&mut policy);
        policy
    }

    fn add_tenant(&self, policy: &mut Policy, port: PortId, index: usize, name: &str) -> VifId {
        let slice = policy.add_slice(Slice::new(name));
        let mut vif = Vif::new(name, slice, port);
        vif.macs = vec![MacAddr(Self::mac(index).0)];
        // A sender on a shared processor pauses for a few milliseconds now and then. A queue that
        // lasts longer than a pause keeps the tenant backlogged.
        vif.send_queue.packets = QUEUE_PACKETS;
        vif.send_queue.bytes = ByteCount::new(u64::from(QUEUE_PACKETS) * 1536);
        policy.add_vif(vif)
    }

    /// Returns the namespace of a node.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Returns the IPv4 address of tenant `index`.
    pub fn address(index: usize) -> Ipv4Addr {
        let [high, low] = host_number(index);
        Ipv4Addr::new(198, 18, high, low)
    }

    /// Returns the Ethernet address of tenant `index`.
    pub fn mac(index: usize) -> Mac {
        let [high, low] = host_number(index);
        Mac([0x02, 0, 0, 1, high, low])
    }

    /// Returns the IPv6 address of the node with this IPv4 address, in a network that is set aside
    /// for measurements (RFC 5180).
    pub fn ipv6(ip: Ipv4Addr) -> Ipv6Addr {
        let [_, _, high, low] = ip.octets();
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]))
    }

    /// Returns the IPv4 and the Ethernet address of the wire's end.
    pub const fn wire() -> (Ipv4Addr, Mac) {
        (Self::wire_address(), Self::wire_mac())
    }

    /// Returns the IPv4 and the Ethernet address of the switch node's host.
    pub const fn host() -> (Ipv4Addr, Mac) {
        (Ipv4Addr::new(198, 18, 0, 2), Mac([0x02, 0, 0, 0, 0, 2]))
    }

    /// Returns the command that sets the congestion control of a tenant's TCP towards the wire,
    /// whatever the host's default is.
    #[must_use]
    pub fn congestion_control(name: &str) -> Command {
        Command::line(&format!("ip route replace {} dev eth0 congctl {name}", Self::wire().0))
    }

    /// Returns the IPv4 address of the wire's end.
    pub const fn wire_address() -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, 1)
    }

    /// Returns the Ethernet address of the wire's end.
    pub const fn wire_mac() -> Mac {
        Mac([0x02, 0, 0, 0, 0, 1])
    }
}

/// Raises the number of frames of a policy's node to the most that its queues and devices may hold.
pub fn provide_frames(policy: &mut Policy) {
    let needed = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    policy.node.frames = policy.node.frames.max(needed);
}

/// Returns the last two bytes of a tenant's address, from 10 on. The network 198.18.0.0/15 is set
/// aside for measurements (RFC 2544).
fn host_number(index: usize) -> [u8; 2] {
    u16::try_from(index).unwrap_or(u16::MAX).saturating_add(10).to_be_bytes()
}

/// The device of the switch node that leads to the wire.
pub const UPLINK: &str = "up0";

/// The most tenants on the wire: a namespace takes 10 ms to make. More are tested in memory.
pub const TENANTS_MAX: usize = 256;

/// The transmit queue of a Linux device (`txqueuelen`), in packets.
const FIFO_PACKETS: u32 = 1000;

/// The queue of a tenant's vif, in packets: 12 ms at 1 Gb/s and 1500 bytes.
const QUEUE_PACKETS: u32 = 1024;
