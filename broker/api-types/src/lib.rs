// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and answers of the broker's interface, as plain data.
//!
//! The broker reads the types of requests and fills those of answers; its clients `weir connection`
//! and `weir network` do the reverse. Each field is defined once. The OpenAPI document
//! (`docs/broker-openapi.json`) and the schema of the messages in XML (`docs/broker.xsd`) are
//! derived from the types, and the page's TypeScript from the OpenAPI document.
//!
//! A unit stands at the end of a field's name (`_bps`, `_bytes`, `_ms`, `_ns`). The crate does no
//! input or output and decides nothing, so a client of the broker needs no SSH client and no path
//! computation.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most connections of one answer to `GET /v1/connections`. An answer with fewer is the last one.
pub const CONNECTIONS_PAGE_MAX: usize = 2000;

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestedConnection {
    /// The virtual network.
    pub network: String,
    /// End node that sends.
    pub from: String,
    /// End node that receives.
    pub to: String,
    /// Guaranteed rate, such as `20Mbit`, in layer-2 bytes without FCS.
    pub rate: String,
    /// Guaranteed rate of the way back; without it the way back is best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_rate: Option<String>,
    /// `tcp` or `udp`; without it, everything between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Port of the sender; needs a protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_port: Option<u16>,
    /// Port of the receiver; needs a protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
    /// Largest sum of the links' delays, such as `5ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max: Option<String>,
    /// Most links of a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops_max: Option<u16>,
    /// Links that its paths avoid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
    /// Colours that each link of its paths has (include-all of RFC 3209, 4.7.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Colours that no link of its paths has (exclude-any of RFC 3209, 4.7.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// A connection with which its paths share no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disjoint_from: Option<String>,
    /// Smallest IP packet, in bytes, at which the rate is to hold; 1460 without it. The tunnel adds
    /// 40 bytes to each packet, so smaller packets need more of each link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<u16>,
    /// Time at which it starts, as RFC 3339 writes it; now without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Time at which it ends; without it, when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Time for which it is only reserved, such as `30s`, and given up unless it is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Time after which it ends unless it is renewed, such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Its priority: after a failure 0 is restored first, 255 last. 0 without it.
    #[serde(default, skip_serializing_if = "is_most_important")]
    pub priority: u8,
}

// serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_most_important(priority: &u8) -> bool {
    *priority == 0
}

/// A change of a connection; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionChange {
    /// Guaranteed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Guaranteed rate of the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_rate: Option<String>,
    /// Largest sum of the links' delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max: Option<String>,
    /// Most links of a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops_max: Option<u16>,
    /// Links that its paths avoid from now on, in place of those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid: Option<Vec<String>>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionView {
    /// Its identity.
    pub id: String,
    /// The request, with its changes.
    pub request: RequestedConnection,
    /// `held`, `scheduled`, `configuring`, `active`, `changing`, `removing`, `rolling_back` or
    /// `broken`.
    pub state: String,
    /// Time at which a hold ends that is not committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<String>,
    /// Time at which the lease ends if it is not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<String>,
    /// The reason for which it is `broken`: no other path was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Its tunnels: the way there, and back if that was asked for. None while it is broken.
    pub tunnels: Vec<TunnelView>,
    /// The largest packet that fits into its tunnels whole.
    pub mtu: u16,
    /// Time that the last step took. Absent after a restart of the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<StepTimes>,
}

/// One direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelView {
    /// Tunnel number at its entry router, where its device is `wcNUMBER`.
    pub number: u16,
    /// Outer address.
    #[schema(value_type = String)]
    pub outer: Ipv6Addr,
    /// Its path.
    #[serde(flatten)]
    pub path: TunnelPath,
}

/// The path of one direction of a connection, and what it takes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelPath {
    /// Routers that it passes.
    pub routers: Vec<String>,
    /// Links that it passes.
    pub links: Vec<String>,
    /// Guaranteed rate, bit/s.
    pub rate_bps: u64,
    /// Rate of the token bucket, which counts the tunnel's header, bit/s.
    pub limit_bps: u64,
    /// Reserved of each link, bit/s.
    pub reserved_bps: u64,
    /// Sum of the links' delays, ns.
    pub delay_ns: u64,
}

/// Answer to a request that was only tried: it would be admitted, on these paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdmissionView {
    /// The way there, and the way back if that was asked for.
    pub tunnels: Vec<TunnelPath>,
}

/// Where the time of a step went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepTimes {
    /// From the request received to the answer.
    pub total_ms: f64,
    /// Waiting for the store, which includes the wait for the batch before.
    pub store_ms: f64,
    /// Configuring the nodes and reading them back.
    pub nodes_ms: f64,
}

/// A virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkView {
    /// Its name.
    pub name: String,
    /// Its routers.
    pub routers: Vec<RouterState>,
    /// Nodes that carry its links on physical links.
    #[serde(default)]
    #[schema(required = true)]
    pub nodes: Vec<RouterState>,
    /// Its end nodes.
    pub hosts: Vec<String>,
    /// The router that each end node is at.
    pub gateways: Vec<HostGateway>,
    /// Its links, each direction on its own.
    pub links: Vec<LinkUse>,
    /// Connections in it.
    pub connections: usize,
}

/// An end node and its router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostGateway {
    /// The end node.
    pub host: String,
    /// The router that is its gateway.
    pub router: String,
}

/// A router or node as the broker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouterState {
    /// Its name.
    pub name: String,
    /// True if the last exchange with it succeeded.
    pub reachable: bool,
    /// Differences found by the regular comparison, and repaired.
    pub repaired: u64,
    /// The last fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkUse {
    /// The link.
    pub link: String,
    /// Router that sends.
    pub from: String,
    /// Router that receives.
    pub to: String,
    /// The physical link that carries it; absent on a link of the network's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Its colours, which requests include or exclude.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub colours: Vec<String>,
    /// Rate that connections may reserve, bit/s.
    pub reservable_bps: u64,
    /// Reserved, bit/s.
    pub reserved_bps: u64,
    /// True if an administrator has set it down.
    #[serde(default)]
    #[schema(required = true)]
    pub set_down: bool,
    /// The reason for which no path passes it now; absent if paths may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A physical link, and what networks are promised of it in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PhysicalLinkView {
    /// Its name.
    pub link: String,
    /// The nodes at its ends.
    pub nodes: Vec<String>,
    /// Its rate, bit/s.
    pub rate_bps: u64,
    /// Rate that networks may be promised together, bit/s; the rest is for management and routing.
    pub reservable_bps: u64,
    /// Rate that a further network may be promised, bit/s; absent for who sees one network alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bps: Option<u64>,
    /// Shares of networks.
    pub shares: Vec<LinkShareView>,
}

/// A network's share of a physical link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkShareView {
    /// The network.
    pub network: String,
    /// Its link.
    pub link: String,
    /// Its guaranteed rate, bit/s.
    pub rate_bps: u64,
}

/// An administrator's setting of a link; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSetting {
    /// False takes it out of service: connections over it get other paths, and no new one passes
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Another guaranteed share of the physical link that carries it, such as `60Mbit`; for
    /// administrators of all networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The part of the share that connections may reserve; without it, with a `rate`, that of the
    /// file if it has one, or else nine tenths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservable: Option<String>,
}

/// Counters of one direction of a link: what left its sender, in a tunnel or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkTraffic {
    /// The link.
    pub link: String,
    /// Router that sends.
    pub from: String,
    /// Router that receives.
    pub to: String,
    /// Time at which they were read, ms since the broker's start.
    pub at_ms: u64,
    /// Layer-2 bytes.
    pub passed_bytes: u64,
    /// Packets.
    pub passed_packets: u64,
    /// Packets dropped at the device.
    pub dropped_packets: u64,
}

/// Policing of networks over all Weir nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicingReport {
    /// Samples that have begun: at each, all nodes are asked for their routers.
    pub samples: u64,
    /// Time from one sample to the next, ms.
    pub period_ms: u64,
    /// Changes that are not in the history, since too many waited for the store.
    pub unrecorded: u64,
    /// Networks with an agreement.
    pub networks: Vec<NetworkConduct>,
    /// Nodes that they pass; none for who sees one network alone.
    pub nodes: Vec<NodeContention>,
}

/// A network under its agreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkConduct {
    /// The network.
    pub network: String,
    /// Guaranteed rate at each node, packets a second.
    pub min_pps: u64,
    /// Upper limit, packets a second; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pps: Option<u64>,
    /// Weight in what is left beyond guarantees.
    pub priority: u32,
    /// True if it is held: it passes a contended node, or is punished.
    pub held: bool,
    /// Rate that it may have before any punishment, packets a second; absent while it is not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_pps: Option<u64>,
    /// Punishment: `free`, `early drop`, `lower set-point` or `stopped`.
    pub grade: String,
    /// Changes of the punishment.
    pub judged: u64,
    /// Its routers at nodes.
    pub routers: Vec<RouterSetPoint>,
}

/// A policed router at its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouterSetPoint {
    /// Its name at the node.
    pub router: String,
    /// The node.
    pub node: String,
    /// True if packets enter the network there.
    pub entry: bool,
    /// Rate at which it is held, packets a second; absent if it is not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_point_pps: Option<u64>,
    /// Packets a second that came for it in the last sample, dropped ones among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// Packets a second that it forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_pps: Option<u64>,
    /// The reason for which it is not seen, or does not have its set-point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A Weir node that policed networks pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeContention {
    /// The node.
    pub node: String,
    /// Packets a second that it was measured to carry; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_pps: Option<u64>,
    /// True if it is offered more than that.
    pub contended: bool,
    /// Samples in which it did not answer.
    pub silent: u64,
    /// The reason for which it is not policed as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Guarantee and use of one direction of a connection, from the counters of its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelReport {
    /// Number of the tunnel at the router where it enters.
    pub number: u16,
    /// That router.
    pub router: String,
    /// Guaranteed rate, bit/s.
    pub asked_bps: u64,
    /// Rate of the token bucket, which counts the tunnel's header, bit/s.
    pub given_bps: u64,
    /// Layer-2 bytes that passed the bucket.
    pub passed_bytes: u64,
    /// Packets that passed the bucket.
    pub passed_packets: u64,
    /// Packets beyond the rate, dropped.
    pub dropped_packets: u64,
}

/// A change in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Its number: a later change has a larger one.
    pub number: u64,
    /// Time, as RFC 3339 writes it.
    pub at: String,
    /// The network that it was in.
    pub network: String,
    /// The connection that changed; absent if something else did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// The link that changed; absent if something else did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The router that changed; absent if something else did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Name of the token that asked for it; absent if the broker did it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Kind of the change.
    pub change: HistoryChange,
    /// More of it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Kinds of changes in the history. A name is never changed; new ones may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryChange {
    /// A connection was admitted.
    Created,
    /// Another rate or other limits were admitted.
    Changed,
    /// A hold was committed.
    Committed,
    /// A reservation started by its calendar.
    Started,
    /// Its calendar, hold or lease ended it.
    Ended,
    /// Somebody gave it back.
    Removed,
    /// It got another path.
    Moved,
    /// It lost its path, and has no other.
    Broken,
    /// Routers did not take what was asked for; it was taken back.
    Failed,
    /// A link was taken out of service.
    LinkDown,
    /// A link was put back into service.
    LinkUp,
    /// A link was given another share of the physical link that carries it.
    ShareChanged,
    /// The network is held at a packet rate: it passes a contended node.
    Held,
    /// It is held no more.
    LetGo,
    /// It sends far more than it may: its punishment went up a grade.
    Punished,
    /// It behaves: its punishment went down a grade.
    Reformed,
    /// Somebody else changed what the broker had put at a router; it puts that right.
    Repaired,
}
