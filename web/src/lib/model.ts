// SPDX-License-Identifier: Apache-2.0 OR MIT
// Turns the counters of a node into figures for people: rates, queues and drops of each tenant and
// each of its vifs. Each status is a *look*; a rate is the difference of two looks, up to a second
// apart. All times are the node's. Nothing here judges: verdicts are the node's, too.

import { History } from "./history";
import { SIDES } from "./types";
import type { Direction, Group, Policy, Side, Status, Vif } from "./types";
import type { Shown } from "./verdict";

/** The figures of a vif or tenant in one direction, over the last second. */
export interface Figures {
  bps: number;
  pps: number;
  /** Dropped by reason, packets a second, most first. */
  drops: [string, number][];
  dropPps: number;
  /** Dropped by reason since the node started, packets, most first. */
  dropTotals: [string, number][];
  queuePackets: number;
  queueBytes: number;
  /** The time that the next packet has waited. */
  waitNs: number;
  /** True if the delay of a queue stayed above 20 ms for the last second. */
  standing: boolean;
  /** Where the smooth window of the delay begins; undefined without one. */
  smoothNs: number | undefined;
  /** Flows that have a queue of their own; undefined where all packets wait in one. */
  flows: number | undefined;
  /** Those of them that are served before the others. */
  sparseFlows: number;
  /** Packets a second that were marked "congestion experienced". */
  markPps: number;
  guarantee: number;
  limit: number | undefined;
  /** The node's verdict. */
  verdict: Shown;
}

/** Columns of a tenant's history. */
export const COLUMN = { rate: 0, guarantee: 1, wait: 2 } as const;

export interface Tenant {
  name: string;
  vifs: Vif[];
  sides: Record<Side, Figures>;
  history: Record<Side, History>;
}

/** The counters of one direction at one look. */
interface Look {
  atNs: number;
  bytes: number;
  packets: number;
  drops: Map<string, number>;
  backlogPackets: number;
  backlogBytes: number;
  waitNs: number;
  standing: boolean;
  smoothNs: number | undefined;
  flows: number | undefined;
  sparseFlows: number;
  marked: number;
}

/** The looks at one direction of one vif, as many as the last second needs. */
class Track {
  #looks: Look[] = [];
  verdict: Shown = "unknown";

  add(of: Direction, atNs: number, overhead: number): void {
    const drops = new Map<string, number>();
    for (const by of [of.dropped, of.dropped_after_by]) {
      for (const [reason, { packets }] of Object.entries(by)) {
        drops.set(reason, packets + (drops.get(reason) ?? 0));
      }
    }
    this.verdict = of.verdict ?? "unknown";
    const { packets, bytes } = of.sent;
    const last = this.#looks.at(-1);
    // Counters that went backwards are those of another node, or of a vif that was made anew.
    if (last && packets < last.packets) this.#looks = [];
    this.#looks.push({
      atNs,
      bytes: bytes + overhead * packets,
      packets,
      drops,
      backlogPackets: of.backlog.packets,
      backlogBytes: of.backlog.bytes,
      waitNs: of.wait_ns,
      standing: of.standing,
      smoothNs: of.smooth?.position_ns,
      flows: of.flows?.active,
      sparseFlows: of.flows?.sparse ?? 0,
      marked: of.marked,
    });
    while ((this.#looks[1]?.atNs ?? Infinity) <= atNs - WINDOW_NS) this.#looks.shift();
  }

  /** Bits a second over the last half second; null before there are two looks. */
  get latest(): number | null {
    const now = this.#looks.at(-1);
    const before = this.#looks.findLast((look) => now && look.atNs <= now.atNs - LINE_NS)
      ?? this.#looks[0];
    if (!before || !now || before === now) return null;
    return Math.max(0, (8e9 * (now.bytes - before.bytes)) / (now.atNs - before.atNs));
  }

  get looks(): readonly Look[] {
    return this.#looks;
  }
}

/** Everything that is shown, as of the last status. */
export class Model {
  tenants: Tenant[] = [];
  /** The node's time of each look that is kept, in seconds: the charts' common axis. */
  times: History;
  readonly #tracks = new Map<string, Track>();
  readonly #rows: number;
  #uptimeNs = 0;
  #lookedAtNs = -1;

  /** `rows`: how many looks the charts hold. */
  constructor(rows: number) {
    this.#rows = rows;
    this.times = new History(1, rows);
  }

  /** Follows another policy. Tenants that stay keep their history. */
  follow(policy: Policy): void {
    const before = new Map(this.tenants.map((tenant) => [tenant.name, tenant]));
    this.tenants = policy.slices.map((slice) => {
      const vifs = policy.vifs.filter((vif) => vif.slice === slice.name);
      const old = before.get(slice.name);
      const sides = {} as Record<Side, Figures>;
      for (const side of SIDES) {
        const guarantee = guaranteed(slice, vifs, side);
        const most = limit(slice[side].rate_bps, vifs, side);
        // Its figures stay until the next look.
        sides[side] = { ...(old?.sides[side] ?? NOTHING), guarantee, limit: most };
      }
      const history = old?.history ?? { send: this.#blank(), receive: this.#blank() };
      return { name: slice.name, vifs, sides, history };
    });
    const names = new Set(policy.vifs.map((vif) => vif.name));
    for (const key of this.#tracks.keys()) {
      if (!names.has(key.slice(key.indexOf(" ") + 1))) this.#tracks.delete(key);
    }
  }

  /** Notes that nothing was heard for a while: lines get a gap, and rates begin anew. */
  lose(): void {
    this.#tracks.clear();
    const last = this.times.column(0).at(-1);
    if (last === undefined || last === null) return;
    this.times.push(last + 1e-3);
    for (const tenant of this.tenants) for (const side of SIDES) tenant.history[side].push();
  }

  /** Takes a look at the counters. */
  look(status: Status): void {
    // The node answers several listeners with one status. The same one again is no look.
    if (status.now_ns === this.#lookedAtNs) return;
    this.#lookedAtNs = status.now_ns;
    if (status.uptime_ns < this.#uptimeNs) this.#restart(status.now_ns);
    this.#uptimeNs = status.uptime_ns;
    const ifaces = new Map(status.vifs.map((vif) => [vif.name, vif]));
    const slices = new Map(status.slices.map((slice) => [slice.name, slice]));
    this.times.push(status.now_ns / 1e9);
    for (const tenant of this.tenants) {
      const sides = { ...tenant.sides };
      const judged = slices.get(tenant.name);
      for (const side of SIDES) {
        const tracks: Track[] = [];
        for (const vif of tenant.vifs) {
          const iface = ifaces.get(vif.name);
          if (!iface) continue;
          const track = this.track(vif.name, side);
          track.add(iface[side], status.now_ns, vif.overhead_bytes);
          tracks.push(track);
        }
        sides[side] = this.#sum(tenant, side, tracks, judged?.[side] ?? "unknown");
      }
      // A new object tells Svelte that the figures have changed.
      tenant.sides = sides;
    }
  }

  /** Returns the figures of a vif. */
  vif(vif: Vif, side: Side): Figures {
    const { min_rate_bps, rate_bps } = vif[side];
    const track = this.track(vif.name, side);
    return figures([track], min_rate_bps, rate_bps, track.verdict);
  }

  private track(vif: string, side: Side): Track {
    const key = `${side} ${vif}`;
    let track = this.#tracks.get(key);
    if (!track) this.#tracks.set(key, (track = new Track()));
    return track;
  }

  #sum(tenant: Tenant, side: Side, tracks: Track[], verdict: Shown): Figures {
    const { guarantee, limit } = tenant.sides[side];
    const now = figures(tracks, guarantee, limit, verdict);
    const rates = tracks.map((track) => track.latest).filter((rate) => rate !== null);
    const rate = rates.length > 0 ? rates.reduce((sum, rate) => sum + rate, 0) : null;
    tenant.history[side].push(rate, guarantee || null, now.waitNs);
    return now;
  }

  /** Begins anew after a restart of the node; if its clock went back too, with empty charts. */
  #restart(nowNs: number): void {
    this.#tracks.clear();
    const last = this.times.column(0).at(-1) ?? 0;
    if (last * 1e9 <= nowNs) return this.lose();
    this.times = new History(1, this.#rows);
    for (const tenant of this.tenants) {
      tenant.history = { send: this.#blank(), receive: this.#blank() };
    }
  }

  /** Makes a history with as many rows as the others have, all of them gaps. */
  #blank(): History {
    const history = new History(3, this.#rows);
    for (let row = 0; row < this.times.length; row += 1) history.push();
    return history;
  }
}

/** Returns the guarantee of a slice: on each port its own, or without one the sum of its vifs'. */
function guaranteed(slice: Group, vifs: readonly Vif[], side: Side): number {
  const ports = new Map<string, number>();
  for (const vif of vifs) {
    const sum = (ports.get(vif.port) ?? 0) + vif[side].min_rate_bps;
    ports.set(vif.port, slice[side].min_rate_bps || sum);
  }
  return [...ports.values()].reduce((sum, one) => sum + one, 0);
}

/** Returns the limit of a slice: the lesser of its own and the sum of its vifs'. */
function limit(own: number | undefined, vifs: readonly Vif[], side: Side): number | undefined {
  const each = vifs.map((vif) => vif[side].rate_bps);
  const sum = each.every((one) => one !== undefined) && each.length > 0
    ? each.reduce((sum: number, one) => sum + (one ?? 0), 0)
    : Infinity;
  const least = Math.min(own ?? Infinity, sum);
  return least === Infinity ? undefined : least;
}

function figures(
  tracks: readonly Track[],
  guarantee: number,
  limit: number | undefined,
  verdict: Shown,
): Figures {
  const drops = new Map<string, number>();
  const totals = new Map<string, number>();
  const sum = { ...NOTHING, guarantee, limit, verdict };
  for (const { looks } of tracks) {
    const [first, now] = [looks[0], looks.at(-1)];
    if (!first || !now) continue;
    sum.queuePackets += now.backlogPackets;
    sum.queueBytes += now.backlogBytes;
    sum.waitNs = Math.max(sum.waitNs, now.waitNs);
    sum.standing ||= now.standing;
    if (now.smoothNs !== undefined) sum.smoothNs = Math.max(sum.smoothNs ?? 0, now.smoothNs);
    if (now.flows !== undefined) sum.flows = (sum.flows ?? 0) + now.flows;
    sum.sparseFlows += now.sparseFlows;
    const seconds = (now.atNs - first.atNs) / 1e9;
    for (const [reason, packets] of now.drops) {
      totals.set(reason, (totals.get(reason) ?? 0) + packets);
      if (seconds <= 0) continue;
      const pps = (packets - (first.drops.get(reason) ?? 0)) / seconds;
      if (pps > 0) drops.set(reason, (drops.get(reason) ?? 0) + pps);
    }
    if (seconds <= 0) continue;
    sum.bps += Math.max(0, (8 * (now.bytes - first.bytes)) / seconds);
    sum.pps += Math.max(0, (now.packets - first.packets) / seconds);
    sum.markPps += Math.max(0, (now.marked - first.marked) / seconds);
  }
  const most = (by: Map<string, number>) => [...by].sort((one, other) => other[1] - one[1]);
  sum.drops = most(drops);
  sum.dropTotals = most(totals);
  sum.dropPps = sum.drops.reduce((all, [, pps]) => all + pps, 0);
  return sum;
}

const NOTHING: Figures = {
  bps: 0,
  pps: 0,
  drops: [],
  dropPps: 0,
  dropTotals: [],
  queuePackets: 0,
  queueBytes: 0,
  waitNs: 0,
  standing: false,
  smoothNs: undefined,
  flows: undefined,
  sparseFlows: 0,
  markPps: 0,
  guarantee: 0,
  limit: undefined,
  verdict: "unknown",
};

/** The time over which a number is averaged: long enough to be calm, short enough to be news. */
const WINDOW_NS = 1e9;
/** The time over which a point of a line is averaged: less would show packets, not rates. */
const LINE_NS = 0.5e9;
