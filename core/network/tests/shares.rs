// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares that change while connections run: no link is promised more than it has, and no share
//! less than its connections are promised.
#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;

use proptest::prelude::*;
use weir_network::{
    AdmissionAnswer, ArcId, ArcShare, ByDirection, ConnectionId, ConnectionRequest,
    ConnectionState, EndNode, EndNodeId, FlowSelector, Ipv6Prefix, LinkArc, LinkId, NetworkError,
    NetworkId, NetworkLimits, NetworkNode, NetworkState, NetworkTopology, NodeId, RateBasis,
    RequestedRate, TimeWindow, TransportProtocol, TunnelAccounting, VirtualNetwork,
};
use weir_units::{BitRate, Nanos};

const ARC: ArcId = ArcId(0);

fn share(rate: u64) -> ArcShare {
    // A tenth is for what is in no tunnel.
    let [rate, untunnelled] = [rate, rate / 10].map(BitRate::from_bps);
    ArcShare { arc: ARC, rate, untunnelled }
}

/// Two nodes and an arc of 1000 bit/s, of which networks 0 and 1 have these shares.
fn network(shares: [u64; 2]) -> NetworkState {
    let node = |name: &str| NetworkNode { name: name.to_owned(), is_up: true };
    let arc = LinkArc {
        link: LinkId(0),
        from: NodeId(0),
        to: NodeId(1),
        capacity: BitRate::from_bps(1000),
        room: BitRate::ZERO,
        delay: Nanos::new(1),
        cost: 1,
        affinity: 0,
        is_up: true,
    };
    let topology = NetworkTopology { nodes: vec![node("a"), node("b")], arcs: vec![arc] };
    let accounting = TunnelAccounting { limiter_error_ppm: 0 };
    let mut state = NetworkState::new(topology, accounting, NetworkLimits::default()).unwrap();
    let prefix = Ipv6Prefix { address: Ipv6Addr::UNSPECIFIED, length: 64 };
    for (number, rate) in (0..).zip(shares) {
        state
            .add_network(VirtualNetwork {
                id: NetworkId(number),
                name: String::new(),
                vlan: 1 + u16::try_from(number).unwrap(),
                outer: prefix,
                shares: vec![share(rate)],
                connections: usize::MAX,
            })
            .unwrap();
        for end in 0..2 {
            state
                .add_end_node(EndNode {
                    id: EndNodeId(2 * number + end),
                    name: String::new(),
                    network: NetworkId(number),
                    gateway: NodeId(end),
                    addresses: vec![Ipv6Addr::from_bits(u128::from(end))],
                })
                .unwrap();
        }
    }
    state
}

/// Asks for a connection of a network; returns whether it was admitted.
fn connect(state: &mut NetworkState, id: u16, network: u32, rate: u64) -> bool {
    let rate = RequestedRate(BitRate::from_bps(rate));
    let request = ConnectionRequest {
        network: NetworkId(network),
        source: EndNodeId(2 * network),
        destination: EndNodeId(2 * network + 1),
        selector: FlowSelector {
            source: Ipv6Addr::from_bits(0),
            destination: Ipv6Addr::from_bits(1),
            protocol: Some(TransportProtocol::Udp),
            source_port: None,
            destination_port: Some(id),
        },
        rate: ByDirection { forward: rate, ..ByDirection::default() },
        basis: RateBasis::Outer,
        limits: ByDirection::default(),
        window: TimeWindow::ALWAYS,
        priority: 0,
    };
    let AdmissionAnswer::Admitted(flows) = state.admit(&request) else { return false };
    let id = ConnectionId(u64::from(id));
    state.reserve(id, request, flows, ConnectionState::Active).unwrap();
    true
}

#[test]
fn a_share_grows_into_what_is_free_and_shrinks_to_what_is_reserved() {
    let mut state = network([500, 300]);
    let (own, other) = (NetworkId(0), NetworkId(1));
    assert!(connect(&mut state, 1, 0, 400));
    let refused = state.set_shares(own, &[share(701)]).unwrap_err();
    let free = NetworkError::ShareAboveFree { network: own, arc: ARC, asked: 701, free: 700 };
    assert_eq!(refused, free);
    let refused = state.set_shares(own, &[share(400)]).unwrap_err();
    let reserved =
        NetworkError::ShareBelowReserved { network: own, arc: ARC, reserved: 400, left: 360 };
    assert_eq!(refused, reserved);
    assert!(!connect(&mut state, 2, 0, 51), "450 may be reserved");
    state.set_shares(own, &[share(700)]).unwrap();
    assert!(connect(&mut state, 2, 0, 230));
    assert!(state.set_shares(other, &[share(301)]).is_err());
    let bound = BitRate::from_bps(1000);
    let capacity = state.set_capacity(ARC, BitRate::from_bps(999)).unwrap_err();
    let promised = NetworkError::CapacityBelowShares { arc: ARC, promised: 1000, left: 999 };
    assert_eq!(capacity, promised);
    state.set_capacity(ARC, bound).unwrap();
    let elsewhere = ArcShare { arc: ArcId(7), ..share(1) };
    assert!(state.set_shares(own, &[elsewhere]).is_err() && state.share_of(own, ARC).is_some());
}

proptest! {
    /// Goal: whatever is asked for, all or nothing of it is done, shares stay within the arc, and
    /// connections within their share.
    #[test]
    fn no_change_promises_what_is_not_there(
        steps in prop::collection::vec((0..2u32, any::<bool>(), 0..1200u64), 1..60)
    ) {
        let mut state = network([500, 300]);
        for (number, (network, is_share, rate)) in (1..).zip(steps) {
            let id = NetworkId(network);
            if is_share {
                let before = *state.share_of(id, ARC).unwrap();
                let wanted = share(rate);
                let changed = state.set_shares(id, &[wanted]).is_ok();
                let now = *state.share_of(id, ARC).unwrap();
                prop_assert_eq!(now, if changed { wanted } else { before });
            } else {
                connect(&mut state, number, network, rate.max(1));
            }
            let sum: u64 =
                (0..2).map(|of| state.share_of(NetworkId(of), ARC).unwrap().rate.as_bps()).sum();
            prop_assert!(sum <= 1000);
            for of in 0..2 {
                let (reserved, sellable) = state.use_of(NetworkId(of), ARC).unwrap();
                let share = state.share_of(NetworkId(of), ARC).unwrap();
                prop_assert_eq!(sellable, share.rate.as_bps() - share.untunnelled.as_bps());
                prop_assert!(reserved <= sellable);
            }
        }
    }
}
