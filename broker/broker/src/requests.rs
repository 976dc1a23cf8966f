// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as people write them, with names and units, as the requests that are decided on.

use serde::Deserialize;
use utoipa::IntoParams;
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{ConnectionChange, RequestedConnection};
use weir_network::{
    ByDirection, ConnectionLease, ConnectionRequest, ConnectionTimers, FlowSelector, LinkId,
    NetworkId, PACKET_MIN, PathLimits, RateBasis, RequestedRate, TUNNEL_MTU, TimeWindow,
    TransportProtocol,
};
use weir_units::{BitRate, Instant, Nanos};

use crate::clock;
use crate::config::RATE_LEAST;
use crate::directory::NetworkDirectory;
use crate::ids::parsed_id;
use crate::refusal::BrokerRefusal;

/// Connections that somebody asks for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConnectionQuery {
    /// Only connections of this network.
    pub(crate) network: Option<String>,
    /// Only connections after this one: the last of the answer before.
    pub(crate) after: Option<String>,
}

/// Returns a request with the changes that are named.
pub(crate) fn changed(
    mut requested: RequestedConnection,
    change: &ConnectionChange,
) -> Result<RequestedConnection, BrokerRefusal> {
    let ConnectionChange { rate, back_rate, delay_max, hops_max, avoid } = change;
    if back_rate.is_some() && requested.back_rate.is_none() {
        return Err(refused("back_rate: the connection has no way back; ask for another"));
    }
    if let Some(rate) = rate {
        requested.rate.clone_from(rate);
    }
    if let Some(avoid) = avoid {
        requested.avoid.clone_from(avoid);
    }
    requested.back_rate = back_rate.clone().or(requested.back_rate);
    requested.delay_max = delay_max.clone().or(requested.delay_max);
    requested.hops_max = hops_max.or(requested.hops_max);
    Ok(requested)
}

impl NetworkDirectory {
    /// Checks a request and looks up its names.
    pub(crate) fn request(
        &self,
        requested: &RequestedConnection,
        now: Instant,
    ) -> Result<ConnectionRequest, BrokerRefusal> {
        let name = &requested.network;
        let network = self.network(name).ok_or_else(|| unknown("network", name))?;
        let host = |name: &str| self.host(network, name).ok_or_else(|| unknown("end node", name));
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
            window: window(requested, now)?,
            priority: requested.priority,
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
        let bits = |colours: &[String]| {
            colours.iter().try_fold(0, |bits, name| {
                let bit = self.colour(network, name).ok_or_else(|| unknown("colour", name));
                Ok::<u32, BrokerRefusal>(bits | bit?)
            })
        };
        Ok(PathLimits {
            delay,
            hops: requested.hops_max,
            include_all: bits(&requested.include)?,
            exclude_any: bits(&requested.exclude)?,
            avoid_links,
            avoid_nodes: Vec::new(),
            disjoint_from,
        })
    }
}

/// Reads the times of a request: its hold and lease begin now.
pub(crate) fn timers(
    requested: &RequestedConnection,
    now: Instant,
) -> Result<ConnectionTimers, BrokerRefusal> {
    let length = |key: &str, text: &Option<String>| -> Result<Option<Nanos>, BrokerRefusal> {
        let Some(text) = text else { return Ok(None) };
        let length: Nanos = text.parse().map_err(|error| refused(format!("{key}: {error}")))?;
        if !(TIMER_LEAST..=TIMER_MOST).contains(&length) {
            return Err(refused(format!("{key} {length}: {TIMER_LEAST} to {TIMER_MOST}")));
        }
        Ok(Some(length))
    };
    let hold_until = length("hold", &requested.hold)?.map(|length| now + length);
    let lease = length("lease", &requested.lease)?;
    let lease = lease.map(|length| ConnectionLease { length, until: now + length });
    Ok(ConnectionTimers { hold_until, lease })
}

/// Reads the window of a request: from its start, or all time before its end.
fn window(requested: &RequestedConnection, now: Instant) -> Result<TimeWindow, BrokerRefusal> {
    let time = |key: &str, text: &Option<String>| {
        let time = text.as_deref().map(clock::parsed).transpose();
        time.map_err(|error| refused(format!("{key}: {error}")))
    };
    let (start, end) = (time("start", &requested.start)?, time("end", &requested.end)?);
    let window = TimeWindow {
        start: start.unwrap_or(Instant::ZERO),
        end: end.unwrap_or(Instant::FAR_FUTURE),
    };
    if window.end <= window.start.max(now) {
        return Err(refused("end: it is past, or not after the start"));
    }
    Ok(window)
}

/// Makes the refusal of a name that is not known, or that the caller may not know.
pub(crate) fn unknown(what: &str, name: &str) -> BrokerRefusal {
    BrokerRefusal::new(ErrorCode::NotFound, format!("no {what} {name:?}"))
}

/// Makes the refusal of what does not fit.
pub(crate) fn refused(text: impl Into<String>) -> BrokerRefusal {
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

/// Reads a rate of a request.
pub(crate) fn rate(key: &str, text: &str) -> Result<RequestedRate, BrokerRefusal> {
    let rate: BitRate = text.parse().map_err(|error| refused(format!("{key}: {error}")))?;
    if !(RATE_LEAST..=RATE_MOST).contains(&rate) {
        return Err(refused(format!("{key} {rate}: {RATE_LEAST} to {RATE_MOST}")));
    }
    Ok(RequestedRate(rate))
}

/// The smallest packet with a payload: headers of IPv6 and UDP, and a little.
const PACKET_LEAST: u16 = PACKET_MIN + 24;

const TIMER_LEAST: Nanos = Nanos::from_millis(100);

/// A day.
const TIMER_MOST: Nanos = Nanos::from_secs(86_400);

const RATE_MOST: BitRate = BitRate::from_mbps(1_000_000);
