// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The topology of a lab, as checked types: nodes are namespaces, links are veth pairs, bridges are
//! the kernel's. It is read from a TOML file such as `lab/scenarios/demo.toml`.
//!
//! ```
//! let topology = weir_testbed::Topology::parse(
//!     r#"
//!     name = "two"
//!     [[node]]
//!     name = "left"
//!     [[node]]
//!     name = "right"
//!     [[link]]
//!     a = { at = "left:eth0", addresses = ["10.0.0.1/24"], rate = "10Mbit" }
//!     b = { at = "right:eth0", addresses = ["10.0.0.2/24"] }
//!     delay = "5ms"
//!     "#,
//! )
//! .unwrap();
//! assert_eq!(topology.namespace(topology.node("left").unwrap()), "two-left");
//! ```

use std::fmt;
use std::net::IpAddr;

use weir_policy::MacAddr;
use weir_units::{BitRate, ByteCount, Nanos};

/// A network of namespaces on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Names the lab: 1 to 24 letters, digits and '-'. Namespaces are called `NAME-NODE`.
    pub name: String,
    /// The nodes, each a namespace.
    pub nodes: Vec<TopologyNode>,
    /// The links, each a veth pair.
    pub links: Vec<TopologyLink>,
    /// The kernel's bridges.
    pub bridges: Vec<Bridge>,
}

/// A node: one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyNode {
    /// Unique in the lab: 1 to 24 letters, digits and '-'.
    pub name: String,
    /// Kernel variables below `net.`, and their values.
    pub sysctls: Vec<(String, String)>,
    /// Routes, each as `ip route replace` takes it.
    pub routes: Vec<String>,
}

/// A link between two nodes, or of a node with itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyLink {
    /// Its ends, `a` and `b`.
    pub ends: [End; 2],
    /// The largest packet in bytes at layer 3, 68 to 65535.
    pub mtu: u32,
    /// Transmit and receive queues of each end, 1 to 64.
    pub queues: u32,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Name of the device, 1 to 15 bytes.
    pub device: String,
    /// Its address; `None`: the kernel draws a random one.
    pub mac: Option<MacAddr>,
    /// Its addresses, with prefix lengths.
    pub addresses: Vec<Cidr>,
    /// Fixed neighbours, so that no addresses need to be resolved on the link.
    pub neighbours: Vec<(IpAddr, MacAddr)>,
    /// The rate at which this end may send, at layer 2 without FCS; `None`: no limit.
    pub rate: Option<BitRate>,
    /// The bytes that may exceed the rate at once; `None`: [`default_burst`].
    pub burst: Option<ByteCount>,
    /// The packets that wait at this end before one is dropped, 1 to 100 000.
    pub queue: u32,
    /// The delay of a frame that this end sends.
    pub delay: Nanos,
    /// True if the device defers checksums and segmentation (offloads), as is the kernel's default.
    pub offloads: bool,
}

/// A bridge of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Index of the node it is in.
    pub node: usize,
    /// Name of the device, 1 to 15 bytes.
    pub name: String,
    /// Devices of that node that are its ports.
    pub members: Vec<String>,
}

impl Topology {
    /// Gives the topology another name, so that several can be up at once.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns the namespace of a node.
    pub fn namespace(&self, node: &TopologyNode) -> String {
        format!("{}-{}", self.name, node.name)
    }

    /// Returns the node of that name.
    pub fn node(&self, name: &str) -> Option<&TopologyNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the ends that are in the node of this index, each with its link.
    pub fn ends_of(&self, node: usize) -> impl Iterator<Item = (&TopologyLink, &End)> {
        let ends = self.links.iter().flat_map(|link| link.ends.iter().map(move |end| (link, end)));
        ends.filter(move |(_, end)| end.node == node)
    }

    /// Returns true if the node has an IPv6 address. Without one, IPv6 is off in it.
    pub fn speaks_ipv6(&self, node: usize) -> bool {
        self.ends_of(node).any(|(_, end)| end.addresses.iter().any(|a| a.address.is_ipv6()))
    }
}

impl End {
    /// Returns the burst at a rate: as given, or [`default_burst`].
    pub fn burst_at(&self, rate: BitRate, mtu: u32) -> ByteCount {
        self.burst.unwrap_or_else(|| default_burst(rate, mtu))
    }
}

/// Returns the larger of two frames and of 2 ms at the rate. A link loses rate when a timer is late
/// by more than its burst. On a busy machine that is once in a thousand times, by up to 3 ms.
pub fn default_burst(rate: BitRate, mtu: u32) -> ByteCount {
    let frames = ByteCount::new(2 * (u64::from(mtu) + HEADER_BYTES));
    frames.max(rate.bytes_in_floor(Nanos::from_millis(2)))
}

/// An IP address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network part: up to 32 for IPv4, up to 128 for IPv6.
    pub prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The bytes of an Ethernet header: two addresses and a type.
pub const HEADER_BYTES: u64 = 14;
