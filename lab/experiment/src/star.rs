// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab of most experiments: a switch node with a link to each tenant and one to the wire.
//!
//! ```text
//!   t0 ── eth0──t0 ┐
//!   t1 ── eth0──t1 ┼ sw ── up0 ── eth0 ── wire
//!   …              ┘   rate
//! ```
//!
//! Only `up0` has a rate. A kernel bridge in `sw` has it from the lab's queueing discipline; Weir
//! sends past that discipline and has the rate from its policy.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

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
    /// Packets that wait at `up0` where the kernel queues them (the bridge's FIFO).
    pub queue: u32,
    /// True if the tenants' devices keep the kernel's default offloads.
    pub offloads: bool,
    /// Receive and transmit queues of each device.
    pub queues: u32,
    /// Nobody's address is known beforehand: nodes ask for it. They speak IPv6 too.
    pub resolves: bool,
    /// The switch node's host has an address of its own, on the uplink.
    pub host: bool,
    /// Time that a frame takes to the wire and back, half each way, without queues.
    pub round_trip: Nanos,
    /// More nodes and links, as a topology has them.
    pub more: &'static str,
}

impl StarTopology {
    /// A star of tenants `t0`, `t1`, …, each a namespace of its own.
    pub fn new(name: &str, tenants: usize, rate: BitRate) -> Self {
        let tenants = (0..tenants).map(|index| format!("t{index}")).collect();
        let (name, queue) = (name.to_owned(), FIFO_PACKETS);
        let (resolves, host, round_trip) = (false, false, Nanos::ZERO);
        let (offloads, queues, more) = (true, 1, "");
        Self { name, tenants, rate, queue, offloads, queues, resolves, host, round_trip, more }
    }

    /// The topology as a lab reads it.
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

    /// Addresses of an end of a link, as the lab reads them.
    fn end(&self, ip: Ipv4Addr, mac: Mac) -> String {
        let ipv6 = match self.resolves {
            true => format!(", \"{}/64\"", Self::ipv6(ip)),
            false => String::new(),
        };
        format!("mac = \"{mac}\", addresses = [\"{ip}/16\"{ipv6}]")
    }

    /// Fixed neighbours of an end, if the nodes do not ask for them.
    fn neighbours(&self, known: &[(Ipv4Addr, Mac)]) -> String {
        if self.resolves {
            return String::new();
        }
        let known: Vec<String> =
            known.iter().map(|(ip, mac)| format!("\"{ip}\" = \"{mac}\"")).collect();
        format!(", neighbours = {{ {} }}", known.join(", "))
    }

    /// A policy for the switch node: one slice and one vif for each tenant, with its MAC address,
    /// no guarantees yet. Tenant k is vif k.
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::new(&self.name);
        let port = policy.add_port(Port::new(UPLINK, self.rate));
        for (index, tenant) in self.tenants.iter().enumerate() {
            self.add_tenant(&mut policy, port, index, tenant);
        }
        let needed = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
        policy.node.frames = policy.node.frames.max(needed);
        policy
    }

    fn add_tenant(&self, policy: &mut Policy, port: PortId, index: usize, name: &str) -> VifId {
        let slice = policy.add_slice(Slice::new(name));
        let mut vif = Vif::new(name, slice, port);
        vif.macs = vec![MacAddr(Self::mac(index).0)];
        // A sender on a shared processor pauses for a few milliseconds now and then; the queue
        // must last that long for the tenant to count as backlogged.
        vif.send_queue.packets = QUEUE_PACKETS;
        vif.send_queue.bytes = ByteCount::new(u64::from(QUEUE_PACKETS) * 1536);
        policy.add_vif(vif)
    }

    /// The namespace of a node.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Address of tenant `index`.
    pub fn address(index: usize) -> Ipv4Addr {
        let [high, low] = host_number(index);
        Ipv4Addr::new(198, 18, high, low)
    }

    /// Ethernet address of tenant `index`.
    pub fn mac(index: usize) -> Mac {
        let [high, low] = host_number(index);
        Mac([0x02, 0, 0, 1, high, low])
    }

    /// The IPv6 address of whoever has this IPv4 address, in a network for measurements (RFC 5180).
    pub fn ipv6(ip: Ipv4Addr) -> Ipv6Addr {
        let [_, _, high, low] = ip.octets();
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]))
    }

    /// Addresses of the wire's end.
    pub const fn wire() -> (Ipv4Addr, Mac) {
        (Self::wire_address(), Self::wire_mac())
    }

    /// Addresses of the switch node's host.
    pub const fn host() -> (Ipv4Addr, Mac) {
        (Ipv4Addr::new(198, 18, 0, 2), Mac([0x02, 0, 0, 0, 0, 2]))
    }

    /// Address of the wire's end.
    pub const fn wire_address() -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, 1)
    }

    /// Ethernet address of the wire's end.
    pub const fn wire_mac() -> Mac {
        Mac([0x02, 0, 0, 0, 0, 1])
    }
}

/// The tenants' place in 198.18.0.0/16, which is set aside for measurements (RFC 2544): from 10 on.
fn host_number(index: usize) -> [u8; 2] {
    u16::try_from(index).unwrap_or(u16::MAX).saturating_add(10).to_be_bytes()
}

/// The device of the switch node that leads to the wire.
pub const UPLINK: &str = "up0";

/// Namespaces cost 10 ms each to make; more tenants than this are tested in memory.
pub const TENANTS_MAX: usize = 256;

/// The transmit queue of a Linux device (`txqueuelen`) is 1000 packets.
const FIFO_PACKETS: u32 = 1000;

/// 12 ms at 1 Gb/s and 1500 bytes.
const QUEUE_PACKETS: u32 = 1024;
