// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random networks.

use std::net::Ipv6Addr;

use weir_experiment::prelude::*;
use weir_network::{
    ArcShare, ByDirection, ConnectionRequest, EndNode, EndNodeId, FlowSelector, Ipv6Prefix,
    LinkArc, LinkId, NetworkId, NetworkNode, NetworkTopology, NodeId, RateBasis, TimeWindow,
    TransportProtocol, VirtualNetwork,
};
use weir_sim::Seed;

/// Draws from a range, as 32 bits.
pub(super) fn between(draw: &mut Seed, least: u32, most: u32) -> u32 {
    u32::try_from(draw.between(u64::from(least), u64::from(most))).unwrap_or(most)
}

/// One drawn link's ends, and its delay and capacity.
#[derive(Clone, Copy)]
pub(super) struct DrawnLink {
    pub(super) ends: [u32; 2],
    pub(super) delay: Nanos,
    pub(super) capacity: BitRate,
}

/// A topology of links, each with a cost of 1 to `cost_max`, and with 1 % of its capacity as room.
pub(super) fn topology(
    draw: &mut Seed,
    nodes: u32,
    cost_max: u32,
    links: &[DrawnLink],
) -> NetworkTopology {
    let node = |number| NetworkNode { name: format!("n{number}"), is_up: true };
    let mut arcs = Vec::with_capacity(links.len() * 2);
    for (number, link) in (0..).zip(links) {
        let [a, b] = link.ends;
        let affinity = u32::from(draw.one_in(8));
        for [from, to] in [[a, b], [b, a]] {
            arcs.push(LinkArc {
                link: LinkId(number),
                from: NodeId(from),
                to: NodeId(to),
                capacity: link.capacity,
                room: BitRate::from_bps(link.capacity.as_bps() / 100),
                delay: link.delay,
                cost: between(draw, 1, cost_max),
                affinity,
                is_up: true,
            });
        }
    }
    NetworkTopology { nodes: (0..nodes).map(node).collect(), arcs }
}

/// Draws a connected network: a random tree, and random links beside.
pub(super) fn scattered(draw: &mut Seed, nodes: u32, links: u32, cost_max: u32) -> NetworkTopology {
    let mut drawn = Vec::new();
    for number in 1..=links {
        let (a, b) = if number < nodes {
            (number, between(draw, 0, number - 1))
        } else {
            let a = between(draw, 0, nodes - 1);
            (a, (a + between(draw, 1, nodes - 1)) % nodes)
        };
        drawn.push(DrawnLink {
            ends: [a, b],
            delay: Nanos::new(draw.between(1, 10)),
            capacity: BitRate::from_mbps(draw.between(50, 1000)),
        });
    }
    topology(draw, nodes, cost_max, &drawn)
}

/// Draws a network of regions: a square grid, with as many links again between nodes that are at
/// most four rows and columns apart. Delay is 5 µs a unit of distance, for 1 km of fibre.
pub(super) fn regional(draw: &mut Seed, side: u32, links: usize) -> NetworkTopology {
    let mut drawn = Vec::new();
    let mut link = |draw: &mut Seed, ends: [[u32; 2]; 2]| {
        let [x, y] = [0, 1].map(|axis| ends[0][axis].abs_diff(ends[1][axis]));
        let distance = f64::from(x * x + y * y).sqrt();
        let stretch = float(draw.between(100, 140)) / 100.0;
        drawn.push(DrawnLink {
            ends: ends.map(|[x, y]| y * side + x),
            delay: Nanos::from_micros(1).max(scaled(5_000.0 * distance * stretch)),
            capacity: BitRate::from_mbps([1_000, 10_000, 40_000][usize::from(draw.one_in(4))]),
        });
        drawn.len() < links
    };
    for place in 0..side * side {
        let [x, y] = [place % side, place / side];
        if x + 1 < side {
            link(draw, [[x, y], [x + 1, y]]);
        }
        if y + 1 < side {
            link(draw, [[x, y], [x, y + 1]]);
        }
    }
    loop {
        let [x, y] = [(); 2].map(|()| between(draw, 0, side - 1));
        let far =
            |draw: &mut Seed, at: u32| between(draw, at.saturating_sub(4), (at + 4).min(side - 1));
        let other = [far(draw, x), far(draw, y)];
        if other != [x, y] && !link(draw, [[x, y], other]) {
            break;
        }
    }
    topology(draw, side * side, 100, &drawn)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below 2^53")]
fn scaled(nanos: f64) -> Nanos {
    Nanos::new(nanos.max(0.0) as u64)
}

/// Draws a network of short ways: a ring, and links between any two nodes.
pub(super) fn random(draw: &mut Seed, nodes: u32, links: u32) -> NetworkTopology {
    let drawn = (0..links).map(|number| {
        let a = number % nodes;
        let b = if number < nodes { (a + 1) % nodes } else { between(draw, 0, nodes - 1) };
        DrawnLink {
            ends: [a, if a == b { (a + 1) % nodes } else { b }],
            delay: Nanos::from_micros(draw.between(5, 5_000)),
            capacity: BitRate::from_mbps(10_000),
        }
    });
    let drawn: Vec<_> = drawn.collect();
    topology(draw, nodes, 100, &drawn)
}

/// A virtual network of a number, which is also its VLAN.
pub(super) fn virtual_network(number: u16, shares: Vec<ArcShare>) -> VirtualNetwork {
    let prefix = |bits: u16, length| Ipv6Prefix {
        address: Ipv6Addr::new(0xfd00, number, bits, 0, 0, 0, 0, 0),
        length,
    };
    VirtualNetwork {
        id: NetworkId(u32::from(number)),
        name: format!("v{number}"),
        vlan: number,
        outer: prefix(1, 64),
        shares,
        connections: usize::MAX,
    }
}

/// An end node with one address, which follows from its number.
pub(super) fn end_node(number: u32, network: NetworkId, gateway: NodeId) -> EndNode {
    EndNode {
        id: EndNodeId(number),
        name: format!("e{number}"),
        network,
        gateway,
        addresses: vec![address_of(number)],
    }
}

fn address_of(end_node: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits((0xfd01_u128 << 112) | u128::from(end_node))
}

/// A request without rates and limits, told from others by its ports.
pub(super) fn plain_request(
    network: NetworkId,
    [source, destination]: [u32; 2],
    number: u64,
) -> ConnectionRequest {
    ConnectionRequest {
        network,
        source: EndNodeId(source),
        destination: EndNodeId(destination),
        selector: FlowSelector {
            source: address_of(source),
            destination: address_of(destination),
            protocol: Some(TransportProtocol::Udp),
            source_port: u16::try_from(number % 60_000).ok(),
            destination_port: Some(5_000),
        },
        rate: ByDirection::default(),
        basis: RateBasis::Outer,
        limits: ByDirection::default(),
        window: TimeWindow::ALWAYS,
        priority: 0,
    }
}
