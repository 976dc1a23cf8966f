// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ports' rates and the worker's load over the last second.

import type { Status } from "./types";

interface Look {
  atNs: number;
  busyNs: number;
  ports: Map<string, { send: number; receive: number }>;
}

export class Meter {
  #looks: Look[] = [];

  look(status: Status): void {
    const last = this.#looks.at(-1);
    const look: Look = {
      atNs: status.now_ns,
      busyNs: status.worker?.busy_ns ?? 0,
      ports: new Map(
        status.ports.map(({ name, send, receive }) => [
          name,
          { send: send.sent.bytes, receive: receive.received.bytes },
        ]),
      ),
    };
    if (last && look.atNs === last.atNs) return;
    // Another process counts now, or the connection was lost for a while.
    const gap = last ? look.atNs - last.atNs : 0;
    if (last && (look.busyNs < last.busyNs || gap < 0 || gap > 3 * SECOND)) this.#looks = [];
    this.#looks.push(look);
    while ((this.#looks[1]?.atNs ?? Infinity) <= look.atNs - SECOND) this.#looks.shift();
  }

  /** Bit/s that left on a port's wire and came in from it. */
  port(name: string): { send: number; receive: number } {
    const [first, last, seconds] = this.#span();
    const [before, now] = [first?.ports.get(name), last?.ports.get(name)];
    if (!before || !now || seconds <= 0) return { send: 0, receive: 0 };
    const bps = (from: number, to: number) => Math.max(0, (8 * (to - from)) / seconds);
    return { send: bps(before.send, now.send), receive: bps(before.receive, now.receive) };
  }

  /** The share of its time in which the worker moved packets. */
  load(): number {
    const [first, last, seconds] = this.#span();
    if (!first || !last || seconds <= 0) return 0;
    return Math.min(1, Math.max(0, (last.busyNs - first.busyNs) / (seconds * SECOND)));
  }

  #span(): [Look | undefined, Look | undefined, number] {
    const [first, last] = [this.#looks[0], this.#looks.at(-1)];
    return [first, last, first && last ? (last.atNs - first.atNs) / SECOND : 0];
  }
}

const SECOND = 1e9;
