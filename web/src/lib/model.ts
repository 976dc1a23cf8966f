// SPDX-License-Identifier: Apache-2.0 OR MIT
// From counters to what a person looks at: rates, queues, drops and verdicts, of each tenant and
// each of its vifs. Counters come as they are read; nothing here knows the time of day.

import { History } from "./history";
import { SIDES } from "./types";
import type { Direction, Group, Policy, Side, Status, Vif } from "./types";
import { isWanted, verdict, worst, type Verdict } from "./verdict";

/** What is seen of a vif or tenant in one direction, over the last second. */
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
  /** What the next packet has waited. */
  waitNs: number;
  guarantee: number;
  limit: number | undefined;
  verdict: Verdict;
}

/** Columns of a tenant's history. */
export const COLUMN = { rate: 0, guarantee: 1, wait: 2 } as const;

export interface Tenant {
  name: string;
  vifs: Vif[];
  sides: Record<Side, Figures>;
  history: Record<Side, History>;
  /** What it is owed on each port where it has vifs: a guarantee is a share of a port. */
  owed: Record<Side, Map<string, number>>;
  /** Vifs that have a limit of packets, or one that they share with others. */
  bounded: Record<Side, Set<string>>;
}

/** The sums of one look at one direction. */
interface Look {
  atNs: number;
  bytes: number;
  packets: number;
  drops: Map<string, { packets: number; bits: number }>;
  backlogPackets: number;
  backlogBytes: number;
  waitNs: number;
}

/** Looks at one direction of one vif, as far back as a second needs. */
class Track {
  #looks: Look[] = [];

  add(of: Direction, atNs: number, overhead: number): void {
    const drops = new Map<string, { packets: number; bits: number }>();
    for (const by of [of.dropped, of.dropped_after_by]) {
      for (const [reason, amount] of Object.entries(by)) {
        const before = drops.get(reason);
        const bits = 8 * (amount.bytes + overhead * amount.packets);
        drops.set(reason, {
          packets: amount.packets + (before?.packets ?? 0),
          bits: bits + (before?.bits ?? 0),
        });
      }
    }
    const { packets, bytes } = of.sent;
    const last = this.#looks.at(-1);
    // Counters that ran backwards are those of another node, or of a vif that came again.
    if (last && packets < last.packets) this.#looks = [];
    this.#looks.push({
      atNs,
      bytes: bytes + overhead * packets,
      packets,
      drops,
      backlogPackets: of.backlog.packets,
      backlogBytes: of.backlog.bytes,
      waitNs: of.wait_ns,
    });
    while ((this.#looks[1]?.atNs ?? Infinity) <= atNs - WINDOW_NS) this.#looks.shift();
  }

  /** Bits a second of late; nothing before there are two looks. */
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
  /** The node's seconds of the last looks: the charts' common axis. */
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

  /** Another policy holds. Tenants that stay keep their history. */
  follow(policy: Policy): void {
    const before = new Map(this.tenants.map((tenant) => [tenant.name, tenant]));
    this.tenants = policy.slices.map((slice) => {
      const vifs = policy.vifs.filter((vif) => vif.slice === slice.name);
      const old = before.get(slice.name);
      const sides = {} as Record<Side, Figures>;
      const owed = { send: owedOn(slice, vifs, "send"), receive: owedOn(slice, vifs, "receive") };
      const bounded = {
        send: boundedOf(policy, slice, vifs, "send"),
        receive: boundedOf(policy, slice, vifs, "receive"),
      };
      for (const side of SIDES) {
        const guarantee = [...owed[side].values()].reduce((sum, one) => sum + one, 0);
        const most = limit(slice[side].rate_bps, vifs, side);
        // What was seen of it stays until the next look.
        sides[side] = { ...(old?.sides[side] ?? NOTHING), guarantee, limit: most };
      }
      const history = old?.history ?? { send: this.#blank(), receive: this.#blank() };
      return { name: slice.name, vifs, sides, history, owed, bounded };
    });
    const names = new Set(policy.vifs.map((vif) => vif.name));
    for (const key of this.#tracks.keys()) {
      if (!names.has(key.slice(key.indexOf(" ") + 1))) this.#tracks.delete(key);
    }
  }

  /** Nothing was heard for a while: the lines have a gap, and rates begin anew. */
  lose(): void {
    this.#tracks.clear();
    const last = this.times.column(0).at(-1);
    if (last === undefined || last === null) return;
    this.times.push(last + 1e-3);
    for (const tenant of this.tenants) for (const side of SIDES) tenant.history[side].push();
  }

  /** Another look at the counters. */
  look(status: Status): void {
    // The node answers several listeners with one look; the same one twice is none.
    if (status.now_ns === this.#lookedAtNs) return;
    this.#lookedAtNs = status.now_ns;
    if (status.uptime_ns < this.#uptimeNs) this.#restart(status.now_ns);
    this.#uptimeNs = status.uptime_ns;
    const ifaces = new Map(status.vifs.map((vif) => [vif.name, vif]));
    this.times.push(status.now_ns / 1e9);
    for (const tenant of this.tenants) {
      const sides = { ...tenant.sides };
      for (const side of SIDES) {
        const tracks: Limited[] = [];
        for (const vif of tenant.vifs) {
          const iface = ifaces.get(vif.name);
          if (!iface) continue;
          const track = this.track(vif.name, side);
          track.add(iface[side], status.now_ns, vif.overhead_bytes);
          const bounded = tenant.bounded[side].has(vif.name);
          tracks.push({ track, limit: vif[side].rate_bps, port: vif.port, bounded });
        }
        sides[side] = this.#judge(tenant, side, tracks);
      }
      // Another object: whoever shows it sees that it is news.
      tenant.sides = sides;
    }
  }

  /** One vif's figures. */
  vif(vif: Vif, side: Side): Figures {
    const { min_rate_bps, rate_bps } = vif[side];
    const track = this.track(vif.name, side);
    const bounded = this.tenants.some((tenant) => tenant.bounded[side].has(vif.name));
    const limited = { track, limit: rate_bps, port: vif.port, bounded };
    return figures([limited], min_rate_bps, rate_bps);
  }

  private track(vif: string, side: Side): Track {
    const key = `${side} ${vif}`;
    let track = this.#tracks.get(key);
    if (!track) this.#tracks.set(key, (track = new Track()));
    return track;
  }

  #judge(tenant: Tenant, side: Side, tracks: Limited[]): Figures {
    const { guarantee, limit } = tenant.sides[side];
    const now = figures(tracks, guarantee, limit);
    if (now.verdict !== "none") {
      const each = [...tenant.owed[side]].map(([port, owed]) => {
        const there = tracks.filter((one) => one.port === port);
        return figures(there, owed, limit).verdict;
      });
      now.verdict = worst(each);
    }
    const rates = tracks.map(({ track }) => track.latest).filter((rate) => rate !== null);
    const rate = rates.length > 0 ? rates.reduce((sum, rate) => sum + rate, 0) : null;
    tenant.history[side].push(rate, guarantee || null, now.waitNs);
    return now;
  }

  /** Another process counts, its counters began anew; on another machine its clock, too. */
  #restart(nowNs: number): void {
    this.#tracks.clear();
    const last = this.times.column(0).at(-1) ?? 0;
    if (last * 1e9 <= nowNs) return this.lose();
    this.times = new History(1, this.#rows);
    for (const tenant of this.tenants) {
      tenant.history = { send: this.#blank(), receive: this.#blank() };
    }
  }

  /** As many rows as the others have, all of them gaps. */
  #blank(): History {
    const history = new History(3, this.#rows);
    for (let row = 0; row < this.times.length; row += 1) history.push();
    return history;
  }
}

/** What is seen of a vif, and its own limit. */
interface Limited {
  track: Track;
  limit: number | undefined;
  port: string;
  bounded: boolean;
}

/** A slice's own guarantee holds on each port; one that names none has its members' together. */
function owedOn(slice: Group, vifs: readonly Vif[], side: Side): Map<string, number> {
  const owed = new Map<string, number>();
  for (const vif of vifs) {
    const sum = (owed.get(vif.port) ?? 0) + vif[side].min_rate_bps;
    owed.set(vif.port, slice[side].min_rate_bps || sum);
  }
  return owed;
}

/** The vifs that something else than their own rate and their slice's may hold back. */
function boundedOf(
  policy: Policy,
  slice: Group,
  vifs: readonly Vif[],
  side: Side,
): Set<string> {
  const routers = policy.routers.filter(
    (router) => router[side].rate_bps !== undefined || router[side].max_pps !== undefined,
  );
  const names = new Set(routers.map(({ name }) => name));
  const all = slice[side].max_pps !== undefined;
  const held = vifs.filter(
    (vif) => all || vif[side].max_pps !== undefined || names.has(vif.router ?? ""),
  );
  return new Set(held.map(({ name }) => name));
}

/** The least of a slice's limit and what its vifs' limits come to. */
function limit(own: number | undefined, vifs: readonly Vif[], side: Side): number | undefined {
  const each = vifs.map((vif) => vif[side].rate_bps);
  const sum = each.every((one) => one !== undefined) && each.length > 0
    ? each.reduce((sum: number, one) => sum + (one ?? 0), 0)
    : Infinity;
  const least = Math.min(own ?? Infinity, sum);
  return least === Infinity ? undefined : least;
}

function figures(tracks: Limited[], guarantee: number, limit: number | undefined): Figures {
  const drops = new Map<string, number>();
  const totals = new Map<string, number>();
  const sum = { ...NOTHING, guarantee, limit };
  let refused = 0;
  let backlogged = false;
  let bounded = false;
  for (const { track, limit, ...of } of tracks) {
    bounded ||= of.bounded;
    const { looks } = track;
    const [first, now] = [looks[0], looks.at(-1)];
    if (!first || !now) continue;
    sum.queuePackets += now.backlogPackets;
    sum.queueBytes += now.backlogBytes;
    sum.waitNs = Math.max(sum.waitNs, now.waitNs);
    // A short look may end while the queue is between two packets; a second of looks does not.
    const whole = now.atNs - first.atNs >= WINDOW_NS * 0.7 && looks.length >= LOOKS_LEAST;
    const seconds = (now.atNs - first.atNs) / 1e9;
    const bps = seconds > 0 ? Math.max(0, (8 * (now.bytes - first.bytes)) / seconds) : 0;
    // Who waits at a limit of his own waits for nothing that he is owed.
    const limited = bps >= AT_LIMIT * (limit ?? Infinity);
    backlogged ||= whole && !limited && looks.every((look) => look.backlogPackets > 0);
    for (const [reason, amount] of now.drops) {
      totals.set(reason, (totals.get(reason) ?? 0) + amount.packets);
      if (seconds <= 0) continue;
      const before = first.drops.get(reason);
      const pps = (amount.packets - (before?.packets ?? 0)) / seconds;
      if (pps > 0) drops.set(reason, (drops.get(reason) ?? 0) + pps);
      if (isWanted(reason) && !limited) refused += (amount.bits - (before?.bits ?? 0)) / seconds;
    }
    if (seconds <= 0) continue;
    sum.bps += bps;
    sum.pps += Math.max(0, (now.packets - first.packets) / seconds);
  }
  const most = (by: Map<string, number>) => [...by].sort((one, other) => other[1] - one[1]);
  sum.drops = most(drops);
  sum.dropTotals = most(totals);
  sum.dropPps = sum.drops.reduce((all, [, pps]) => all + pps, 0);
  if (sum.bps >= AT_LIMIT * (limit ?? Infinity)) [refused, backlogged] = [0, false];
  sum.verdict = verdict({ guarantee, got: sum.bps, refused, backlogged, bounded });
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
  guarantee: 0,
  limit: undefined,
  verdict: "none",
};

/** Fewer looks at a queue do not tell one that is never empty from one that is half the time. */
const LOOKS_LEAST = 8;
/** This near to a limit it is the limit that holds back. */
const AT_LIMIT = 0.97;
/** What a guarantee is judged by, and what digits show: a second is calm, and soon enough. */
const WINDOW_NS = 1e9;
/** What a point of a line stands for: shorter, and packets are seen instead of rates. */
const LINE_NS = 0.5e9;
