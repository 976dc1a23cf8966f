// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small network for tests: one virtual network, and an end node at each node. Tests of the
//! crate's public interface use it, too.

use core::net::Ipv6Addr;

use weir_network::{
    AdmissionAnswer, ArcId, ArcShare, ByDirection, ConnectionId, ConnectionRequest,
    ConnectionState, EndNode, EndNodeId, FlowSelector, Ipv6Prefix, LinkArc, LinkId, NetworkId,
    NetworkLimits, NetworkNode, NetworkState, NetworkTopology, NodeId, RateBasis, RequestedRate,
    TimeWindow, TransportProtocol, TunnelAccounting, VirtualNetwork,
};
use weir_units::{BitRate, Nanos};

pub(crate) const NETWORK: NetworkId = NetworkId(0);

/// A network of these links, each with a capacity and, by its number, a cost. The arcs of link `n`
/// are `2 n` and `2 n + 1`.
pub(crate) fn network(
    links: &[(u32, u32, u64)],
    cost: impl Fn(u32) -> u32,
    limits: NetworkLimits,
) -> NetworkState {
    let mut arcs = Vec::new();
    for (number, &(a, b, capacity)) in (0..).zip(links) {
        for (from, to) in [(a, b), (b, a)] {
            arcs.push(LinkArc {
                link: LinkId(number),
                from: NodeId(from),
                to: NodeId(to),
                capacity: BitRate::from_bps(capacity),
                room: BitRate::ZERO,
                delay: Nanos::new(1),
                cost: cost(number),
                affinity: 0,
                is_up: true,
            });
        }
    }
    let nodes = links.iter().map(|(a, b, _)| *a.max(b)).max().unwrap_or(0) + 1;
    let node = |number: u32| NetworkNode { name: format!("n{number}"), is_up: true };
    let shares = (0..).zip(&arcs).map(|(arc, known)| ArcShare {
        arc: ArcId(arc),
        rate: known.capacity,
        untunnelled: BitRate::ZERO,
    });
    let prefix = Ipv6Prefix { address: Ipv6Addr::UNSPECIFIED, length: 64 };
    let network = VirtualNetwork {
        id: NETWORK,
        name: "n".to_owned(),
        vlan: 1,
        outer: prefix,
        shares: shares.collect(),
        connections: usize::MAX,
    };
    let topology = NetworkTopology { nodes: (0..nodes).map(node).collect(), arcs };
    let accounting = TunnelAccounting { limiter_error_ppm: 0 };
    let mut state = NetworkState::new(topology, accounting, limits).unwrap();
    state.add_network(network).unwrap();
    for number in 0..nodes {
        let end_node = EndNode {
            id: EndNodeId(number),
            name: String::new(),
            network: NETWORK,
            gateway: NodeId(number),
            addresses: vec![address(number)],
        };
        state.add_end_node(end_node).unwrap();
    }
    state
}

fn address(node: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(node) + 1)
}

/// A request for a rate forward, told from others by its port.
pub(crate) fn request(port: u16, ends: [u32; 2], rate: u64) -> ConnectionRequest {
    let rate = RequestedRate(BitRate::from_bps(rate));
    ConnectionRequest {
        network: NETWORK,
        source: EndNodeId(ends[0]),
        destination: EndNodeId(ends[1]),
        selector: FlowSelector {
            source: address(ends[0]),
            destination: address(ends[1]),
            protocol: Some(TransportProtocol::Udp),
            source_port: None,
            destination_port: Some(port),
        },
        rate: ByDirection { forward: rate, ..ByDirection::default() },
        basis: RateBasis::Outer,
        limits: ByDirection::default(),
        window: TimeWindow::ALWAYS,
        priority: 0,
    }
}

/// Makes an active connection, if the request is admitted.
pub(crate) fn admit(state: &mut NetworkState, id: u64, request: ConnectionRequest) -> bool {
    let AdmissionAnswer::Admitted(flows) = state.admit(&request) else { return false };
    state.reserve(ConnectionId(id), request, flows, ConnectionState::Active).unwrap();
    true
}

pub(crate) fn set_link(state: &mut NetworkState, link: u32, is_up: bool) {
    for arc in [link * 2, link * 2 + 1] {
        state.set_arc_up(ArcId(arc), is_up);
    }
}
