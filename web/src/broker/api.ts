// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by types.mjs from docs/broker-openapi.json: `npm run types` renews it.

/** Answer to a request that was only tried: it would be admitted, on these paths. */
export interface AdmissionView {
  /** The way there, and the way back if that was asked for. */
  tunnels: TunnelPath[];
}

/** A refused request. */
export interface ApiError {
  /** Kind of the refusal. Programs can rely on it. */
  code: ErrorCode;
  /** Keys of the policy that the refusal is about. Absent if there are none. */
  keys?: KeyView[];
  /** Names the thing, the value and the bound. For people. */
  message: string;
}

/** A refusal: the error, and changes of the request, each of which alone would be admitted. */
export interface BrokerRefusal {
  /** Kind of the refusal. Programs can rely on it. */
  code: ErrorCode;
  /** Keys of the policy that the refusal is about. Absent if there are none. */
  keys?: KeyView[];
  /** Names the thing, the value and the bound. For people. */
  message: string;
  changes?: SuggestedChange[];
}

/** A change of a connection; what is left out stays. */
export interface ConnectionChange {
  /** Links that its paths avoid from now on, in place of those before. */
  avoid?: string[] | null;
  /** Guaranteed rate of the way back. */
  back_rate?: string | null;
  /** Largest sum of the links' delays. */
  delay_max?: string | null;
  /** Most links of a path. */
  hops_max?: number | null;
  /** Guaranteed rate. */
  rate?: string | null;
}

/** A connection. */
export interface ConnectionView {
  /** Time at which a hold ends that is not committed. */
  hold_until?: string;
  /** Its identity. */
  id: string;
  /** Time at which the lease ends if it is not renewed. */
  lease_until?: string;
  /** The largest packet that fits into its tunnels whole. */
  mtu: number;
  /** The reason for which it is `broken`: no other path was found. */
  refusal?: string;
  /** The request, with its changes. */
  request: RequestedConnection;
  /**
   * `held`, `scheduled`, `configuring`, `active`, `changing`, `removing`, `rolling_back` or
   * `broken`.
   */
  state: string;
  took?: StepTimes;
  /** Its tunnels: the way there, and back if that was asked for. None while it is broken. */
  tunnels: TunnelView[];
}

/** Kinds of refusals. A code is never renamed; new ones may be added. */
export type ErrorCode =
  | "malformed"
  | "not_authenticated"
  | "forbidden"
  | "not_found"
  | "method_not_allowed"
  | "too_slow"
  | "conflict"
  | "too_large"
  | "not_json"
  | "refused"
  | "busy"
  | "head_too_large"
  | "not_running"
  | "not_recorded";

/** Kinds of changes in the history. A name is never changed; new ones may be added. */
export type HistoryChange =
  | "created"
  | "changed"
  | "committed"
  | "started"
  | "ended"
  | "removed"
  | "moved"
  | "broken"
  | "failed"
  | "link_down"
  | "link_up"
  | "share_changed"
  | "held"
  | "let_go"
  | "punished"
  | "reformed"
  | "repaired";

/** A change in the history. */
export interface HistoryEntry {
  /** Time, as RFC 3339 writes it. */
  at: string;
  /** Name of the token that asked for it; absent if the broker did it by itself. */
  by?: string;
  /** Kind of the change. */
  change: HistoryChange;
  /** The connection that changed; absent if something else did. */
  connection?: string;
  /** More of it, for people. */
  detail?: string;
  /** The link that changed; absent if something else did. */
  link?: string;
  /** The network that it was in. */
  network: string;
  /** Its number: a later change has a larger one. */
  number: number;
  /** The router that changed; absent if something else did. */
  router?: string;
}

/** An end node and its router. */
export interface HostGateway {
  /** The end node. */
  host: string;
  /** The router that is its gateway. */
  router: string;
}

/** A key of the policy's document. */
export interface KeyView {
  /** Key in that table, such as `send.min_rate`; empty for all of it. */
  key: string;
  /** Name of the port, slice, router or vif; empty for the others. */
  name: string;
  /** `node`, `api`, `report`, `xtc`, `port`, `slice`, `router` or `vif`. */
  table: string;
}

/** An administrator's setting of a link; what is left out stays. */
export interface LinkSetting {
  /**
   * Another guaranteed share of the physical link that carries it, such as `60Mbit`; for
   * administrators of all networks.
   */
  rate?: string | null;
  /**
   * The part of the share that connections may reserve; without it, with a `rate`, that of the
   * file if it has one, or else nine tenths.
   */
  reservable?: string | null;
  /**
   * False takes it out of service: connections over it get other paths, and no new one passes
   * it.
   */
  up?: boolean | null;
}

/** A network's share of a physical link. */
export interface LinkShareView {
  /** Its link. */
  link: string;
  /** The network. */
  network: string;
  /** Its guaranteed rate, bit/s. */
  rate_bps: number;
}

/** The rate that one direction of a link lacks. */
export interface LinkShortage {
  /** The router that sends. */
  from: string;
  link: string;
  more: string;
}

/** Counters of one direction of a link: what left its sender, in a tunnel or not. */
export interface LinkTraffic {
  /** Time at which they were read, ms since the broker's start. */
  at_ms: number;
  /** Packets dropped at the device. */
  dropped_packets: number;
  /** Router that sends. */
  from: string;
  /** The link. */
  link: string;
  /** Layer-2 bytes. */
  passed_bytes: number;
  /** Packets. */
  passed_packets: number;
  /** Router that receives. */
  to: string;
}

/** One direction of a link. */
export interface LinkUse {
  /** Its colours, which requests include or exclude. */
  colours?: string[];
  /** The reason for which no path passes it now; absent if paths may. */
  fault?: string;
  /** Router that sends. */
  from: string;
  /** The link. */
  link: string;
  /** The physical link that carries it; absent on a link of the network's own. */
  over?: string;
  /** Rate that connections may reserve, bit/s. */
  reservable_bps: number;
  /** Reserved, bit/s. */
  reserved_bps: number;
  /** True if an administrator has set it down. */
  set_down: boolean;
  /** Router that receives. */
  to: string;
}

/** A network under its agreement. */
export interface NetworkConduct {
  /** Rate that it may have before any punishment, packets a second; absent while it is not held. */
  allowed_pps?: number;
  /** Punishment: `free`, `early drop`, `lower set-point` or `stopped`. */
  grade: string;
  /** True if it is held: it passes a contended node, or is punished. */
  held: boolean;
  /** Changes of the punishment. */
  judged: number;
  /** Upper limit, packets a second; absent if there is none. */
  max_pps?: number;
  /** Guaranteed rate at each node, packets a second. */
  min_pps: number;
  /** The network. */
  network: string;
  /** Weight in what is left beyond guarantees. */
  priority: number;
  /** Its routers at nodes. */
  routers: RouterSetPoint[];
}

/** A virtual network. */
export interface NetworkView {
  /** Connections in it. */
  connections: number;
  /** The router that each end node is at. */
  gateways: HostGateway[];
  /** Its end nodes. */
  hosts: string[];
  /** Its links, each direction on its own. */
  links: LinkUse[];
  /** Its name. */
  name: string;
  /** Nodes that carry its links on physical links. */
  nodes: RouterState[];
  /** Its routers. */
  routers: RouterState[];
}

/** A Weir node that policed networks pass. */
export interface NodeContention {
  /** Packets a second that it was measured to carry; absent while it is not known. */
  capacity_pps?: number;
  /** True if it is offered more than that. */
  contended: boolean;
  /** The reason for which it is not policed as it should be. */
  fault?: string;
  /** The node. */
  node: string;
  /** Samples in which it did not answer. */
  silent: number;
}

/** A physical link, and what networks are promised of it in each direction. */
export interface PhysicalLinkView {
  /** Rate that a further network may be promised, bit/s; absent for who sees one network alone. */
  free_bps?: number;
  /** Its name. */
  link: string;
  /** The nodes at its ends. */
  nodes: string[];
  /** Its rate, bit/s. */
  rate_bps: number;
  /** Rate that networks may be promised together, bit/s; the rest is for management and routing. */
  reservable_bps: number;
  /** Shares of networks. */
  shares: LinkShareView[];
}

/** Policing of networks over all Weir nodes. */
export interface PolicingReport {
  /** Networks with an agreement. */
  networks: NetworkConduct[];
  /** Nodes that they pass; none for who sees one network alone. */
  nodes: NodeContention[];
  /** Time from one sample to the next, ms. */
  period_ms: number;
  /** Samples that have begun: at each, all nodes are asked for their routers. */
  samples: number;
  /** Changes that are not in the history, since too many waited for the store. */
  unrecorded: number;
}

/** A request for a connection. */
export interface RequestedConnection {
  /** Links that its paths avoid. */
  avoid?: string[];
  /** Guaranteed rate of the way back; without it the way back is best effort. */
  back_rate?: string | null;
  /** Largest sum of the links' delays, such as `5ms`. */
  delay_max?: string | null;
  /** A connection with which its paths share no link. */
  disjoint_from?: string | null;
  /** Time at which it ends; without it, when it is removed. */
  end?: string | null;
  /** Colours that no link of its paths has (exclude-any of RFC 3209, 4.7.4). */
  exclude?: string[];
  /** End node that sends. */
  from: string;
  /** Port of the sender; needs a protocol. */
  from_port?: number | null;
  /** Time for which it is only reserved, such as `30s`, and given up unless it is committed. */
  hold?: string | null;
  /** Most links of a path. */
  hops_max?: number | null;
  /** Colours that each link of its paths has (include-all of RFC 3209, 4.7.4). */
  include?: string[];
  /** Time after which it ends unless it is renewed, such as `30s`. */
  lease?: string | null;
  /** The virtual network. */
  network: string;
  /**
   * Smallest IP packet, in bytes, at which the rate is to hold; 1460 without it. The tunnel adds
   * 40 bytes to each packet, so smaller packets need more of each link.
   */
  packet?: number | null;
  /** Its priority: after a failure 0 is restored first, 255 last. 0 without it. */
  priority?: number;
  /** `tcp` or `udp`; without it, everything between the two. */
  protocol?: string | null;
  /** Guaranteed rate, such as `20Mbit`, in layer-2 bytes without FCS. */
  rate: string;
  /** Time at which it starts, as RFC 3339 writes it; now without it. */
  start?: string | null;
  /** End node that receives. */
  to: string;
  /** Port of the receiver; needs a protocol. */
  to_port?: number | null;
}

/** A policed router at its node. */
export interface RouterSetPoint {
  /** True if packets enter the network there. */
  entry: boolean;
  /** The reason for which it is not seen, or does not have its set-point. */
  fault?: string;
  /** The node. */
  node: string;
  /** Packets a second that came for it in the last sample, dropped ones among them. */
  offered_pps?: number;
  /** Packets a second that it forwarded. */
  passed_pps?: number;
  /** Its name at the node. */
  router: string;
  /** Rate at which it is held, packets a second; absent if it is not held. */
  set_point_pps?: number;
}

/** A router or node as the broker sees it. */
export interface RouterState {
  /** The last fault. */
  fault?: string;
  /** Its name. */
  name: string;
  /** True if the last exchange with it succeeded. */
  reachable: boolean;
  /** Differences found by the regular comparison, and repaired. */
  repaired: number;
}

/** Where the time of a step went, in milliseconds. */
export interface StepTimes {
  /** Configuring the nodes and reading them back. */
  nodes_ms: number;
  /** Waiting for the store, which includes the wait for the batch before. */
  store_ms: number;
  /** From the request received to the answer. */
  total_ms: number;
}

/** A change that would be admitted at the moment of the refusal; nothing smaller would be. */
export interface SuggestedChange {
  back_rate?: string;
  delay_max?: string;
  hops_max?: number;
  /** More that the network would need of these links. */
  links?: LinkShortage[];
  rate?: string;
}

/** The path of one direction of a connection, and what it takes of it. */
export interface TunnelPath {
  /** Sum of the links' delays, ns. */
  delay_ns: number;
  /** Rate of the token bucket, which counts the tunnel's header, bit/s. */
  limit_bps: number;
  /** Links that it passes. */
  links: string[];
  /** Guaranteed rate, bit/s. */
  rate_bps: number;
  /** Reserved of each link, bit/s. */
  reserved_bps: number;
  /** Routers that it passes. */
  routers: string[];
}

/** Guarantee and use of one direction of a connection, from the counters of its entry. */
export interface TunnelReport {
  /** Guaranteed rate, bit/s. */
  asked_bps: number;
  /** Packets beyond the rate, dropped. */
  dropped_packets: number;
  /** Rate of the token bucket, which counts the tunnel's header, bit/s. */
  given_bps: number;
  /** Number of the tunnel at the router where it enters. */
  number: number;
  /** Layer-2 bytes that passed the bucket. */
  passed_bytes: number;
  /** Packets that passed the bucket. */
  passed_packets: number;
  /** That router. */
  router: string;
}

/** One direction of a connection. */
export interface TunnelView {
  /** Sum of the links' delays, ns. */
  delay_ns: number;
  /** Rate of the token bucket, which counts the tunnel's header, bit/s. */
  limit_bps: number;
  /** Links that it passes. */
  links: string[];
  /** Guaranteed rate, bit/s. */
  rate_bps: number;
  /** Reserved of each link, bit/s. */
  reserved_bps: number;
  /** Routers that it passes. */
  routers: string[];
  /** Tunnel number at its entry router, where its device is `wcNUMBER`. */
  number: number;
  /** Outer address. */
  outer: string;
}
