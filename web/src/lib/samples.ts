// SPDX-License-Identifier: Apache-2.0 OR MIT
// Statuses and policies for tests.

import type { Direction, Policy, Status, Verdict, Vif } from "./types";

/** The values that a test chooses; all others are zero. */
export interface Said {
  /** Bytes that left on port up0. */
  port?: number;
  busy?: number;
  /** Bytes that vif gold.0 sent. */
  sent?: number;
  packets?: number;
  backlog?: number;
  wait?: number;
  standing?: boolean;
  dropped?: Record<string, number>;
  /** Verdicts on the slice and its vif, in the direction `send`. */
  verdicts?: [Verdict, Verdict];
}

const none = { packets: 0, bytes: 0 };

const direction = (bytes: number, packets = bytes / 1250): Direction => ({
  received: none,
  copies: none,
  dropped: {},
  enqueued: none,
  dropped_after: none,
  dropped_after_by: {},
  sent: { packets, bytes },
  redirected: none,
  backlog: none,
  marked: 0,
  unlearned: 0,
  wait_ns: 0,
  standing: false,
});

/** A status at that many seconds, of a node with a port and a vif. */
export function status(seconds: number, said: Said): Status {
  const send = direction(said.sent ?? 0, said.packets);
  const packets = said.backlog ?? 0;
  send.backlog = { packets, bytes: 1250 * packets };
  send.wait_ns = said.wait ?? 0;
  send.standing = said.standing ?? false;
  for (const [reason, count] of Object.entries(said.dropped ?? {})) {
    send.dropped[reason] = { packets: count, bytes: 1250 * count };
  }
  const slices: Status["slices"] = [];
  if (said.verdicts) {
    slices.push({ name: "gold", send: said.verdicts[0], receive: "none" });
    send.verdict = said.verdicts[1];
  }
  const lost = { lost_before_receive: 0, lost_after_transmit: 0 };
  const of = { device: "d", driver: "xdp", waiting: false, ...lost };
  return {
    node: "edge",
    now_ns: seconds * 1e9,
    uptime_ns: seconds * 1e9,
    ports: [{ name: "up0", ...of, send: direction(said.port ?? 0), receive: direction(0) }],
    vifs: [{ name: "gold.0", ...of, send, receive: direction(0) }],
    slices,
    worker: {
      turns: 0,
      busy_turns: 0,
      busy_ns: said.busy ?? 0,
      cpu_ns: said.busy ?? 0,
      frames_free: 1,
      frames: 2,
      longest_turn_ns: 0,
      lateness: {
        count: 0,
        p50_ns: 0,
        p99_ns: 0,
        p999_ns: 0,
        max_ns: 0,
        sum_ns: 0,
        recent_max_ns: 0,
      },
    },
  };
}

/** The policy of that node, with the guarantee and the limit of what the vif sends. */
export function policy(min: number, limit?: number): Policy {
  const share = { priority: 1, min_rate_bps: 0, min_pps: 0, burst_bytes: 3036 };
  const queue: Vif["send_queue"] = { kind: "flows", packets: 100, bytes: 100_000 };
  const send = { ...share, min_rate_bps: min, ...(limit === undefined ? {} : { rate_bps: limit }) };
  const vif: Vif = {
    name: "gold.0",
    slice: "gold",
    port: "up0",
    device: "d",
    overhead_bytes: 0,
    send,
    send_queue: queue,
    receive: share,
    receive_queue: queue,
  };
  const slices = [{ name: "gold", send: share, receive: share }];
  const ports = [{ name: "up0", rate_bps: 1e8 }];
  return { node: "edge", ports, slices, routers: [], vifs: [vif] };
}
