// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by types.mjs from docs/openapi.json: `npm run types` renews it.

/** Class that a router's activations suggest: `/v1/realtime/{router}/advice`. */
export interface AdviceView {
  /** Activations: a thread that had waited ran until all of them waited. */
  activations: number;
  /** The proposal and its reason in a sentence. */
  because: string;
  class?: RealtimeClass;
  /** Proposed share, in millionths of a processor. Absent for a normal class. */
  cpu_ppm?: number;
  /** Proposed deadline, which is the period too. Absent for a normal class. */
  deadline_ns?: number;
  /** Median time from one activation to the next. Absent with fewer than two. */
  gap_median_ns?: number;
  /** The tenth percentile of that time. */
  gap_p10_ns?: number;
  /** The ninetieth percentile of that time. */
  gap_p90_ns?: number;
  /** Switches that are missing, since the kernel's ring was full. */
  lost: number;
  /** The router. */
  router: string;
  /** Observed threads. */
  threads: number;
  /** Observed time. */
  time_ns: number;
  /** Processor time that all threads used, in millionths of a processor. */
  used_ppm: number;
  /** Processor time that 99 of 100 activations do not exceed. */
  work_p99_ns?: number;
}

/** Packets and bytes. */
export interface Amount {
  /** Bytes, layer 2 without FCS. */
  bytes: number;
  /** Packets. */
  packets: number;
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

/** Active queue management. */
export type Aqm = "none" | "codel" | "lan";

/** The caller, as the node knows it. */
export interface CallerView {
  /** Role of the caller. */
  role: RoleView;
  /** Slice of a tenant. */
  slice?: string;
  /** Name of the caller in the record of changes. */
  who: string;
}

/** Origin of a change on record. */
export type ChangeOrigin = "change" | "undo" | "reload";

/** A change on record. */
export interface ChangeView {
  /** Id of the apply of a plan that made it. */
  apply?: string;
  /** Time of the change, milliseconds since 1970. */
  at_unix_ms: number;
  /** The edits, in the order in which they were applied. Empty: it used up its number. */
  edits: EditView[];
  /** Number of the change. */
  id: number;
  /** Origin of the change. */
  kind: ChangeOrigin;
  /** Number of the change that it undid. */
  undoes?: number;
  /** Author of the change: a user of the Unix socket, a token, a signal. */
  who: string;
}

/** State of a router's class. */
export interface ClassStatusView {
  /** Times that it came into force. */
  applications: number;
  /**
   * Budget of all its threads together, in millionths of a processor: the guarantee, or the cap
   * of `xtc` where that is more. Absent for a weight, and while they have none. While the class
   * is not in force, the budget that they still have from before.
   */
  budget_ppm?: number;
  /** The class as the policy gives it. */
  class: RealtimeClassView;
  /**
   * Looks at which a thread had used nearly all of its budget: it may have waited for its next
   * period. The kernel counts no missed deadlines.
   */
  exhausted: number;
  /** True if the class is in force as the policy has it. */
  in_force: boolean;
  /** Times that it could not be brought into force. */
  refusals: number;
  /** The router. */
  router: string;
  /** Its slice. */
  slice: string;
  /** Threads with the class, or processes with the weight. */
  threads: number;
  /** Reason why it is not in force; a tenant reads only that there is one. */
  trouble?: string;
  /**
   * Processor time that they used lately, in millionths of a processor. Absent if it is not
   * metered.
   */
  used_ppm?: number;
}

/** Verdict on a CPU model. */
export type CpuModelDrift = "within" | "above" | "below" | "unusable";

/** Processor time of the worker beside the model's forecast, in millionths of a processor. */
export interface CpuModelReading {
  /** Processor time of the worker. */
  cpu_ppm: number;
  /** Forecast. Absent for a load that the model was not measured with. */
  expected_ppm?: number;
  /** Their mean size, with checksum. */
  frame_bytes: number;
  /** Most that counts as expected. */
  most_ppm?: number;
  /** Frames forwarded a second. */
  rate_pps: number;
}

/** CPU model of a node beside the processor time that its worker takes. */
export interface CpuModelStatus {
  /** Verdict on the last minute. */
  drift: CpuModelDrift;
  latest?: CpuModelReading;
  /** Why the model is not used, or in which way it drifted. Absent if it holds. */
  reason?: string;
}

/** The cycle of a port. Phases follow each other in the order of the slices. */
export interface CycleView {
  /** True if slices lend the others the time that they leave of their phases. */
  borrow: boolean;
  /** Length of the cycle. */
  length_ns: number;
}

/** One direction of one interface. The identities of this module hold. */
export interface DirectionStatus {
  /** Frames in the queue now. */
  backlog: Amount;
  /** Copies that flooding made of them. */
  copies: Amount;
  /** Drops before a queue, by reason. Reasons that never occurred are absent. */
  dropped: Record<string, Amount>;
  /** Drops after a queue. */
  dropped_after: Amount;
  /** Drops after a queue, by reason. Reasons that never occurred are absent. */
  dropped_after_by: Record<string, Amount>;
  /** Frames that entered a queue. */
  enqueued: Amount;
  flows?: FlowsStatus;
  /**
   * Packets a second that a control loop admits to the vifs of the router together. Absent if no
   * control loop limits the router.
   */
  held_pps?: number;
  /** Forwarded packets that were marked "congestion experienced", a part of `sent`. */
  marked: number;
  /** Frames that arrived, early drops included. */
  received: Amount;
  /** Forwarded frames that the kernel redirected, a part of `sent`. */
  redirected: Amount;
  /** Frames that were forwarded. */
  sent: Amount;
  smooth?: SmoothStatus;
  /**
   * True if the queue is standing: its delay stayed above 20 ms for the last second. Always
   * false for a port.
   */
  standing: boolean;
  /**
   * Packets of `received` whose source address was not learned for lack of room on their bridge,
   * so that frames to it are flooded. Zero for a vif, whose frames are dropped instead.
   */
  unlearned: number;
  verdict?: Verdict;
  /**
   * Time that the first queued packet has waited, nanoseconds: the delay of the next packet.
   * Zero if the queue is empty, and for a port, whose queues belong to its vifs.
   */
  wait_ns: number;
}

/** An edit of one key of the policy's document. */
export interface EditView {
  /** Value after; `null` if there is none. */
  after: unknown;
  /** Value before, as the document writes it; `null` if there was none. */
  before: unknown;
  /** Key in that table, such as `send.min_rate`. */
  key: string;
  /** Name of the port, slice, router or vif. */
  name: string;
  /** `node`, `api`, `report`, `xtc`, `port`, `slice`, `router` or `vif`. */
  table: string;
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

/** The queues of a vif's flows. */
export interface FlowsStatus {
  /** Flows that have a queue now. */
  active: number;
  /**
   * Packets that shared the queue of other flows, since `node.flows` had no queue left for
   * theirs.
   */
  shared: number;
  /** Active flows without a full turn yet, which go before the others (RFC 8290 §3). */
  sparse: number;
  /** Times that a flow became active. */
  started: number;
}

/** A slice. */
export interface GroupView {
  /** Packets without a header that are its own. */
  match?: PacketMatch[];
  /** Name of the slice. */
  name: string;
  /** Length of its phase of the cycle of each port that has one. Absent: it has none. */
  phase_ns?: number;
  /** Number of the parallel internet that it is. Absent: it is none. */
  pih?: number;
  /** Guarantees and limits of the traffic that its vifs receive together. */
  receive: ShareView;
  /** Guarantees and limits of the traffic that its vifs send together. */
  send: ShareView;
  /** VLAN that its frames carry on every port. Absent: none. */
  vlan?: number;
}

/** One port or vif. */
export interface IfaceStatus {
  /** Name of its Linux device. */
  device: string;
  /** Driver of the device: `xdp native copy`, `xdp native zero-copy`, `packet`, …. */
  driver: string;
  /** Reason why the device is not driven by XDP, if XDP was tried first (`kind = "auto"`). */
  fallback?: string;
  in_flight?: InFlightStatus;
  /** Frames that the device lost after they were handed over, as the kernel counts them. */
  lost_after_transmit: number;
  /** Frames lost in the device's ring, or for lack of a buffer, before the switch read them. */
  lost_before_receive: number;
  /** Name of the port or vif. */
  name: string;
  phases?: PhaseStatus;
  /** Traffic towards the vif; for a port, traffic that arrived from its wire. */
  receive: DirectionStatus;
  /** Traffic from the vif; for a port, traffic that left on its wire. */
  send: DirectionStatus;
  /** True if the device is missing. Nothing is counted until it appears. */
  waiting: boolean;
}

/** Frames that were handed to a device and that its receiver has not taken. */
export interface InFlightStatus {
  /** Most bytes, but for a part of a frame (`node.in_flight`); absent: a whole ring. */
  bytes_max?: number;
  /** Times that due frames waited in their queue since as many were in flight as may be. */
  held: number;
  /** The frames. */
  now: Amount;
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

/** Quantiles of the lateness of wake-ups, nanoseconds. */
export interface LatenessSummary {
  /** Number of wake-ups. */
  count: number;
  /** Maximum. */
  max_ns: number;
  /** Median. */
  p50_ns: number;
  /** The 99.9th percentile. */
  p999_ns: number;
  /** The 99th percentile. */
  p99_ns: number;
  /** Maximum of the last whole second. */
  recent_max_ns: number;
  /** Sum. */
  sum_ns: number;
}

/** Means by which the upper limit of a vif is held. */
export type LimitShaper = "bucket" | "smooth";

/** Counters, queues and lateness at one instant. A tenant's answer holds its own vifs alone. */
export interface NodeStatus {
  cpu_model?: CpuModelStatus;
  /**
   * Faults of devices of the kernel's data plane: a device refused a step, or a port cannot have
   * its tree. Each names the port or vif, the reason, and what is not held until it is gone.
   * Absent if there are none, and for a tenant.
   */
  device_faults?: string[];
  /** Name of the node. */
  node: string;
  /** When the counters were read, nanoseconds on the monotonic clock. */
  now_ns: number;
  /** The ports, in the policy's order. Empty for a tenant. */
  ports: IfaceStatus[];
  removed?: RemovedPackets;
  /**
   * Why no service report is recorded now: the text of the disk's error. Absent while reports
   * are recorded, and for a tenant.
   */
  report_failed?: string;
  /** Verdicts on the last second of each slice that has a vif with a device. */
  slices: SliceStatus[];
  /**
   * Keys of the policy that the node does not enforce, each with the reason: the scheduler of a
   * port, or what this host's kernel lacks. Absent if there are none, and for a tenant.
   */
  unheld?: string[];
  /** Nanoseconds since the worker started. */
  uptime_ns: number;
  /** The vifs, in the policy's order. */
  vifs: IfaceStatus[];
  worker?: WorkerStatus;
}

/**
 * Packets that ports receive without a header, told by their five-tuple. All conditions hold of a
 * packet that matches; at least one is needed.
 */
export interface PacketMatch {
  /** Destination address or prefix, of the same family. Default: any. */
  dst?: string | null;
  /** Destination port; needs a protocol that has ports. Default: any. */
  dst_port?: number | null;
  /** IP protocol, by its name or number. Default: any. */
  protocol?: null | "icmp" | "tcp" | "udp" | "gre" | "esp" | "icmpv6" | "sctp" | string;
  /** Source address or prefix. Default: any. */
  src?: string | null;
  /** Source port; needs a protocol that has ports. Default: any. */
  src_port?: number | null;
}

/** Phases of a port with a cycle whose slice had packets when they began. */
export interface PhaseStatus {
  /** Time from the beginning of a phase that was met until the worker was there. */
  late: LatenessSummary;
  /** Phases in which the worker was there to send. */
  met: number;
  /** Phases that passed without. */
  missed: number;
}

/** The policy in force. A tenant's answer holds its slice and its vifs alone. */
export interface PolicyView {
  /** Name of the node. */
  node: string;
  /** Ports. */
  ports: PortView[];
  /** Routers. */
  routers: RouterGroupView[];
  /** Slices. */
  slices: GroupView[];
  /** Vifs. */
  vifs: VifView[];
}

/** A port. */
export interface PortView {
  cycle?: CycleView;
  host_receive?: ShareView;
  host_send?: ShareView;
  /** Name of the port. */
  name: string;
  /** Rate of the link. */
  rate_bps: number;
}

/** Changes of a queue. */
export interface QueueChange {
  aqm?: Aqm | null;
  /** Bound in bytes. */
  bytes?: number | null;
  /** True to mark packets that can carry ECN instead of dropping them. */
  ecn?: boolean | null;
  /** Time within which the delay must fall below the target once. */
  interval_ns?: number | null;
  kind?: VifQueueKind | null;
  /** With flows: delay above which a packet of an L4S sender, ECT(1), is marked (RFC 9331). */
  l4s_ns?: number | null;
  /** Bound in packets. */
  packets?: number | null;
  /** Standing delay that CoDel tolerates. */
  target_ns?: number | null;
}

/** A queue. */
export interface QueueView {
  /** Bound in bytes. */
  bytes: number;
  /**
   * True if `CoDel` marks packets that can carry ECN instead of dropping them. Absent without
   * `CoDel`.
   */
  ecn?: boolean;
  /** Interval of `CoDel`. Absent without `CoDel`. */
  interval_ns?: number;
  /** Way in which packets wait. */
  kind: VifQueueKind;
  /** Delay above which a packet of an L4S sender is marked. Absent where none is. */
  l4s_ns?: number;
  /** Bound in packets. */
  packets: number;
  /** Target of `CoDel`. Absent without `CoDel`. */
  target_ns?: number;
}

/**
 * Changes of a router's class. Where the class names no process, group, guest or interfaces, it is
 * for those of `xtc`.
 */
export interface RealtimeChange {
  /** True if a guest of Xen gets no spare time beyond its guarantee. Default: false. */
  ceiling?: boolean | null;
  /**
   * The exclusive processor of its threads, in a partition that the host's owner made. Default:
   * those that all share.
   */
  core?: number | null;
  /** Guaranteed share, in millionths of a processor. */
  cpu_ppm?: number | null;
  /** Time from an activation to the end of its work. */
  deadline_ns?: number | null;
  /** The guest, by its name in `xl list`. */
  domain?: string | null;
  /** Path of the router's control group, if somebody else made it. */
  group?: string | null;
  /** The router's interfaces, whose threads in the kernel do its work. */
  interface?: RouterInterface[] | null;
  /** Network namespace of the interfaces, by its name in `ip netns`. */
  namespace?: string | null;
  /** Least time between two activations. Default: the deadline. */
  period_ns?: number | null;
  /** The process that is the router: its id, or the path of a file with its id. */
  process?: string | null;
  type?: RealtimeClass | null;
  /** Weight of a normal class, of which other processes have 100. */
  weight?: number | null;
}

/** Class of a router's threads. */
export type RealtimeClass = "normal" | "periodic" | "aperiodic";

/** Class of a router, as the policy gives it. */
export interface RealtimeClassView {
  /** The exclusive processor of its threads. Absent for those that all share, and for a tenant. */
  core?: number;
  /** Guaranteed share, in millionths of a processor. Absent for a normal class. */
  cpu_ppm?: number;
  /** Time from an activation to the end of its work. Absent for a normal class. */
  deadline_ns?: number;
  /** Least time between two activations. Absent for a normal class. */
  period_ns?: number;
  /** The class. */
  type: RealtimeClass;
  /** Weight of a normal class. Absent for the others. */
  weight?: number;
}

/** The classes of routers: `/v1/realtime`. */
export interface RealtimeView {
  /** The routers that have a class, in the policy's order. A tenant sees its own. */
  routers: ClassStatusView[];
}

/**
 * Packets that were lost with a vif, a port or a queue that a change of the policy removed. The
 * counters of the interface are gone with it.
 */
export interface RemovedPackets {
  /** Packets dropped at a device between its removal and the detachment of its program. */
  dropped: number;
  /** Packets that waited in a queue. */
  queued: number;
  /** Packets that were admitted and not yet read from the device. */
  unread: number;
}

/** Role of a caller. */
export type RoleView = "administrator" | "reader" | "tenant";

/** Changes of a router. */
export interface RouterChange {
  realtime?: RealtimeChange | null;
  receive?: ShareChange | null;
  send?: ShareChange | null;
  xtc?: XtcChange | null;
}

/** A router. */
export interface RouterGroupView {
  /** Name of the router. */
  name: string;
  realtime?: RealtimeClassView;
  /** Guarantees and limits of the traffic that its vifs receive together. */
  receive: ShareView;
  /** Guarantees and limits of the traffic that its vifs send together. */
  send: ShareView;
}

/** Interface of a router. */
export interface RouterInterface {
  /** Device on the node's side. */
  device: string;
  /** Device inside the router, whose thread forwards for it. */
  inside?: string | null;
}

/** Changes of guarantees and limits in one direction. */
export interface ShareChange {
  /** Burst of `rate_bps`. */
  burst_bytes?: number | null;
  /** Packets that may exceed `max_pps` at once. */
  burst_packets?: number | null;
  /** Upper limit of packets a second. */
  max_pps?: number | null;
  /** Guaranteed packets a second. */
  min_pps?: number | null;
  /** Guaranteed rate. */
  min_rate_bps?: number | null;
  /** Weight for the capacity that is left beyond the guarantees. */
  priority?: number | null;
  /** Upper limit. */
  rate_bps?: number | null;
}

/**
 * Guarantees and limits in one direction. A guarantee of zero of a slice or router stands for the
 * sum of its members' guarantees.
 */
export interface ShareView {
  /** Burst of the upper limit. */
  burst_bytes: number;
  /** Packets that may exceed `max_pps` at once. */
  burst_packets?: number;
  /** Upper limit of packets a second. */
  max_pps?: number;
  /** Guaranteed packets a second. */
  min_pps: number;
  /** Guaranteed rate. */
  min_rate_bps: number;
  /** Weight for the capacity that is left beyond the guarantees. */
  priority: number;
  /** Upper limit. */
  rate_bps?: number;
}

/** Verdicts on the last second of one slice, as the service report judges it. */
export interface SliceStatus {
  /** Name of the slice. */
  name: string;
  /** Verdict on the traffic that its vifs received together. */
  receive: Verdict;
  /** Verdict on the traffic that its vifs sent together. */
  send: Verdict;
}

/** A smooth window. */
export interface SmoothStatus {
  /** Packets that left after the end of their window, since the credit was used up. */
  late: number;
  /** Least delay of a packet now, nanoseconds: where the window begins. */
  position_ns: number;
  /** Packets that were refused at entry, since they would have waited too long. */
  refused: number;
}

/** Parameters of a smooth window. */
export interface SmoothWindowView {
  /** Time by which packets may leave ahead of the rate. */
  credit_ns: number;
  /** Largest delay at which the window may begin. */
  delay_max_ns: number;
  /** Time after which the window may move. */
  interval_ns: number;
  /** Width of the window. */
  width_ns: number;
}

/** Names the change to undo. */
export interface UndoRequest {
  /** Number of the change. Default: the newest change that is neither undone nor an undo. */
  id?: number | null;
}

/** Verdict on one second of one direction. */
export type Verdict = "none" | "idle" | "less" | "holds" | "limited" | "below";

/** Changes of a vif. */
export interface VifChange {
  /** Bound on the queueing delay of a packet that it sends within `min_rate_bps`. */
  delay_ns?: number | null;
  /** Length of packet for which `delay_ns` is guaranteed. */
  delay_packet_bytes?: number | null;
  receive?: VifShareChange | null;
  send?: VifShareChange | null;
  /** Limit of the broadcast, multicast and unknown-destination frames that it sends. */
  storm_pps?: number | null;
}

/** Way in which the packets of a vif and direction wait. */
export type VifQueueKind = "fifo" | "flows";

/** Changes of guarantees, limits and queue of a vif in one direction. */
export interface VifShareChange {
  /** Burst of `rate_bps`. */
  burst_bytes?: number | null;
  /** Packets that may exceed `max_pps` at once. */
  burst_packets?: number | null;
  /** Time by which packets may leave ahead of `rate_bps` through a smooth window. */
  credit_ns?: number | null;
  /** Largest delay at which a smooth window may begin. */
  delay_max_ns?: number | null;
  /** Time after which a smooth window may move. */
  interval_ns?: number | null;
  /** Upper limit of packets a second. */
  max_pps?: number | null;
  /** Guaranteed packets a second. */
  min_pps?: number | null;
  /** Guaranteed rate. */
  min_rate_bps?: number | null;
  /** Weight for the capacity that is left beyond the guarantees. */
  priority?: number | null;
  queue?: QueueChange | null;
  /** Upper limit. */
  rate_bps?: number | null;
  shaper?: LimitShaper | null;
  /** Width of a smooth window. */
  width_ns?: number | null;
}

/** A vif. */
export interface VifView {
  /** Bound on the queueing delay of a packet that it sends within its guarantee. */
  delay_ns?: number;
  /** Linux device of the vif. */
  device: string;
  /**
   * Bytes of its slice's tag and number, which its frames carry on the port. Its counters leave
   * them out; what it sends is charged for them unless the port counts layer 3.
   */
  header_bytes?: number;
  /** Name of the vif. */
  name: string;
  /**
   * Bytes that its rates charge for a packet beyond layer 2, by the port's `layer` and
   * `overhead`.
   */
  overhead_bytes: number;
  /** Port of the vif. */
  port: string;
  /** Guarantees and limits of the traffic that it receives. */
  receive: ShareView;
  /** Queue of the traffic that it receives. */
  receive_queue: QueueView;
  receive_shaper?: SmoothWindowView;
  /** Router of the vif. */
  router?: string;
  /** Guarantees and limits of the traffic that it sends. */
  send: ShareView;
  /** Queue of the traffic that it sends. */
  send_queue: QueueView;
  send_shaper?: SmoothWindowView;
  /** Slice of the vif. */
  slice: string;
}

/** The worker thread. */
export interface WorkerStatus {
  /** Nanoseconds spent in busy turns. Divided by `uptime_ns` it is the worker's load. */
  busy_ns: number;
  /** Turns in which a frame moved. */
  busy_turns: number;
  /**
   * Processor time of the thread so far. With `node.idle = "spin"` the thread also takes it
   * while nothing moves.
   */
  cpu_ns: number;
  /** All frames of the pool. */
  frames: number;
  /** Free frames of the pool. */
  frames_free: number;
  /** Lateness of wake-ups. */
  lateness: LatenessSummary;
  /**
   * The longest time between two looks at the devices without a sleep in between. Frames are
   * lost if it exceeds the time that a device's ring lasts.
   */
  longest_turn_ns: number;
  /** Turns of the worker's loop. */
  turns: number;
}

/** Change of a router's control loop. Absent fields stay as they are. */
export interface XtcChange {
  /** The largest cap, in millionths of a processor. */
  cap_max_ppm?: number | null;
  /** The least cap, in millionths of a processor. */
  cap_min_ppm?: number | null;
  /** `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`. */
  controller?: string | null;
  /** Time from one sample to the next, at least three periods of the actuator. */
  period_ns?: number | null;
  /** The rate, within the router's `receive.min_pps` and `receive.max_pps`. */
  set_point_pps?: number | null;
  /**
   * `active`, `paused` (the last cap stays) or `off` (neither cap nor
   * limit).
   */
  state?: string | null;
}
