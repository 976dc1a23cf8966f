// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the node answers, as docs/openapi.json says it: those parts that the page reads.

/** Packets, and bytes of layer 2 without FCS. */
export interface Amount {
  packets: number;
  bytes: number;
}

/** One direction of a port or vif: counters since the node started, and what waits now. */
export interface Direction {
  received: Amount;
  dropped: Record<string, Amount>;
  dropped_after_by: Record<string, Amount>;
  sent: Amount;
  backlog: Amount;
  wait_ns: number;
  /** What the last second came to; none of a port, and before the first. */
  verdict?: Verdict;
}

/** The node's judgement of a second, as its report counts it. */
export type Verdict = "none" | "idle" | "less" | "holds" | "limited" | "below";

export interface Iface {
  name: string;
  device: string;
  driver: string;
  fallback?: string;
  send: Direction;
  receive: Direction;
}

export interface Worker {
  busy_ns: number;
  frames_free: number;
  frames: number;
  lateness: { p50_ns: number; p99_ns: number; max_ns: number; recent_max_ns: number };
}

/** An event named `status`. A tenant sees no ports and no worker. */
export interface Status {
  node: string;
  now_ns: number;
  uptime_ns: number;
  ports: Iface[];
  vifs: Iface[];
  /** What the last second of each slice came to. */
  slices: { name: string; send: Verdict; receive: Verdict }[];
  worker?: Worker;
}

export interface Share {
  priority: number;
  min_rate_bps: number;
  rate_bps?: number;
  max_pps?: number;
}

export interface Group {
  name: string;
  send: Share;
  receive: Share;
}

export interface Vif extends Group {
  slice: string;
  router?: string;
  port: string;
  device: string;
  delay_ns?: number;
  overhead_bytes: number;
}

/** An event named `policy`. */
export interface Policy {
  node: string;
  ports: { name: string; rate_bps: number }[];
  slices: Group[];
  routers: Group[];
  vifs: Vif[];
}

export interface Caller {
  who: string;
  role: "administrator" | "tenant";
  slice?: string;
}

export interface Edit {
  table: string;
  name: string;
  key: string;
  before: unknown;
  after: unknown;
}

export interface Change {
  id: number;
  at_unix_ms: number;
  who: string;
  kind: "change" | "undo" | "reload";
  undoes?: number;
  edits: Edit[];
}

/** The tenant's: from his vifs, or towards them. */
export type Side = "send" | "receive";

export const SIDES: readonly Side[] = ["send", "receive"];
