// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as people write them, with names and units, as the requests that are decided on.

use weir_api_types::error::ErrorCode;
use weir_network::{
    ByDirection, ConnectionRequest, FlowSelector, LinkId, NetworkId, PACKET_MIN, PathLimits,
    RateBasis, RequestedRate, TUNNEL_MTU, TimeWindow, TransportProtocol,
};
use weir_units::{BitRate, Nanos};

use crate::config::RATE_LEAST;
use crate::directory::NetworkDirectory;
use crate::ids::parsed_id;
use crate::refusal::BrokerRefusal;
use crate::views::{ConnectionChange, RequestedConnection};

impl RequestedConnection {
    /// Makes the changes that are named.
    pub(crate) fn apply(&mut self, change: &ConnectionChange) -> Result<(), BrokerRefusal> {
        let ConnectionChange { rate, back_rate, delay_max, hops_max, avoid } = change;
        if back_rate.is_some() && self.back_rate.is_none() {
            return Err(refused("back_rate: the connection has no way back; ask for another"));
        }
        if let Some(rate) = rate {
            self.rate.clone_from(rate);
        }
        if let Some(avoid) = avoid {
            self.avoid.clone_from(avoid);
        }
        self.back_rate = back_rate.clone().or_else(|| self.back_rate.take());
        self.delay_max = delay_max.clone().or_else(|| self.delay_max.take());
        self.hops_max = hops_max.or(self.hops_max);
        Ok(())
    }
}

impl NetworkDirectory {
    /// Checks a request and looks up its names.
    pub(crate) fn request(
        &self,
        requested: &RequestedConnection,
    ) -> Result<ConnectionRequest, BrokerRefusal> {
        let name = &requested.network;
        let network = self.network(name).ok_or_else(|| unknown("network", name))?;
        let host = |name: &str| {
            let mut hosts = self.hosts(network);
            hosts.find(|(_, host)| host.name == name).ok_or_else(|| unknown("end node", name))
        };
        let (source, from) = host(&requested.from)?;
        let (destination, to) = host(&requested.to)?;
        if from.router == to.router {
            let (from, to) = (&from.name, &to.name);
            return Err(refused(format!("\"{from}\" and \"{to}\" are at one router: no link")));
        }
        let packet = requested.packet.unwrap_or(TUNNEL_MTU);
        if !(PACKET_LEAST..=TUNNEL_MTU).contains(&packet) {
            return Err(refused(format!("packet {packet}: {PACKET_LEAST} to {TUNNEL_MTU} bytes")));
        }
        let back =
            requested.back_rate.as_deref().map(|text| rate("back_rate", text)).transpose()?;
        let limits = self.limits(network, requested)?;
        Ok(ConnectionRequest {
            network,
            source,
            destination,
            selector: FlowSelector {
                source: from.address,
                destination: to.address,
                protocol: protocol(requested)?,
                source_port: requested.from_port,
                destination_port: requested.to_port,
            },
            rate: ByDirection {
                forward: rate("rate", &requested.rate)?,
                backward: back.unwrap_or_default(),
            },
            basis: RateBasis::Inner { smallest_packet: packet },
            limits: ByDirection { forward: limits.clone(), backward: limits },
            window: TimeWindow::ALWAYS,
            priority: 0,
        })
    }

    fn limits(
        &self,
        network: NetworkId,
        requested: &RequestedConnection,
    ) -> Result<PathLimits, BrokerRefusal> {
        let delay = requested.delay_max.as_deref().map(str::parse::<Nanos>).transpose();
        let delay = delay.map_err(|error| refused(format!("delay_max: {error}")))?;
        let link = |name: &String| self.link(network, name).ok_or_else(|| unknown("link", name));
        let avoided: Result<Vec<LinkId>, _> = requested.avoid.iter().map(link).collect();
        let mut avoid_links = avoided?;
        avoid_links.sort_unstable();
        let other = requested.disjoint_from.as_deref();
        let disjoint_from =
            other.map(|id| parsed_id(id).ok_or_else(|| unknown("connection", id))).transpose()?;
        let hops = requested.hops_max;
        Ok(PathLimits { delay, hops, avoid_links, disjoint_from, ..PathLimits::default() })
    }
}

/// Makes the refusal of a name that is not known, or that the caller may not know.
pub(crate) fn unknown(what: &str, name: &str) -> BrokerRefusal {
    BrokerRefusal::new(ErrorCode::NotFound, format!("no {what} {name:?}"))
}

fn refused(text: impl Into<String>) -> BrokerRefusal {
    BrokerRefusal::new(ErrorCode::Refused, text)
}

fn protocol(requested: &RequestedConnection) -> Result<Option<TransportProtocol>, BrokerRefusal> {
    let ports = [requested.from_port, requested.to_port];
    if ports.contains(&Some(0)) {
        return Err(refused("port 0: ports begin at 1"));
    }
    match requested.protocol.as_deref() {
        Some("tcp") => Ok(Some(TransportProtocol::Tcp)),
        Some("udp") => Ok(Some(TransportProtocol::Udp)),
        Some(other) => Err(refused(format!("protocol {other:?}: tcp or udp"))),
        None if ports == [None, None] => Ok(None),
        None => Err(refused("a port needs a protocol: tcp or udp")),
    }
}

fn rate(key: &str, text: &str) -> Result<RequestedRate, BrokerRefusal> {
    let rate: BitRate = text.parse().map_err(|error| refused(format!("{key}: {error}")))?;
    if !(RATE_LEAST..=RATE_MOST).contains(&rate) {
        return Err(refused(format!("{key} {rate}: {RATE_LEAST} to {RATE_MOST}")));
    }
    Ok(RequestedRate(rate))
}

/// The smallest packet with a payload: headers of IPv6 and UDP, and a little.
const PACKET_LEAST: u16 = PACKET_MIN + 24;

const RATE_MOST: BitRate = BitRate::from_mbps(1_000_000);
