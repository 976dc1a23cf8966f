// SPDX-License-Identifier: Apache-2.0 OR MIT
// Whether a tenant has what it is owed, from what was seen over the last second.

/** What was seen of one direction over a second. */
export interface Seen {
  /** Guaranteed, bit/s; 0: nothing is. */
  guarantee: number;
  /** Handed on, bit/s, counted as the guarantee counts. */
  got: number;
  /** Dropped for want of room in queue, pool or credit, bit/s: asked for, and not got. */
  refused: number;
  /** Whether something waited in the queue at every look. */
  backlogged: boolean;
  /** Whether it has a limit of packets, or one that it shares: it may wait at that. */
  bounded: boolean;
}

export type Verdict = "none" | "idle" | "less" | "holds" | "limited" | "below";

/** What a guarantee promises: 99 % of the lesser of guarantee and offer, in every second. */
const HELD = 0.99;

/** Drops that mean "more was asked for": not those by a rule, a filter or a limit. */
const WANTED = new Set([
  "queue_packets",
  "queue_bytes",
  "pool_share",
  "pool_exhausted",
  "no_credit",
  "codel",
  "refused_by_port",
]);

export const isWanted = (reason: string): boolean => WANTED.has(reason);

export function verdict({ guarantee, got, refused, backlogged, bounded }: Seen): Verdict {
  if (guarantee <= 0) return "none";
  if (got >= guarantee * HELD) return "holds";
  // A queue that never ran empty could have sent more; else what was asked for is known.
  const offered = backlogged ? Infinity : got + refused;
  if (got < HELD * Math.min(guarantee, offered)) return bounded ? "limited" : "below";
  return got > 0 ? "less" : "idle";
}

/** The verdict on both directions: the worst that is said of either. */
export function worst(verdicts: readonly Verdict[]): Verdict {
  const order: Verdict[] = ["below", "limited", "holds", "less", "idle", "none"];
  return order.find((one) => verdicts.includes(one)) ?? "none";
}

/** In words, for the badge and for whoever hears the page instead of seeing it. */
export const WORDS: Record<Verdict, { mark: string; badge: string; why: string }> = {
  none: { mark: "○", badge: "No guarantee", why: "takes what the others leave" },
  idle: { mark: "✓", badge: "Holds", why: "asks for nothing now" },
  less: { mark: "✓", badge: "Holds", why: "asks for less than its guarantee, and gets it" },
  holds: { mark: "✓", badge: "Holds", why: "gets its guarantee or more" },
  limited: {
    mark: "–",
    badge: "At a limit",
    why: "gets less than its guarantee, and has a limit of packets, or one that it shares",
  },
  below: { mark: "▼", badge: "Below its guarantee", why: "asks for more than it gets" },
};
