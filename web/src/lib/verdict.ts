// SPDX-License-Identifier: Apache-2.0 OR MIT
// The node's verdict on the last second, in words. The node alone judges: the page, `weir top` and
// the service report say the same.

import type { Verdict } from "./types";

/** The verdict that is shown: the node's, or that there is none yet. */
export type Shown = Verdict | "unknown";

/** Returns true if there is a guarantee, and a second that was compared with it. */
export const isJudged = (shown: Shown): boolean => shown !== "none" && shown !== "unknown";

/** The verdict on both directions: the worst that is said of either. */
export function worst(verdicts: readonly Shown[]): Shown {
  const order: Shown[] = ["below", "limited", "holds", "less", "idle", "none"];
  return order.find((one) => verdicts.includes(one)) ?? "unknown";
}

/** In words, for the badge and for whoever hears the page instead of seeing it. */
export const WORDS: Record<Shown, { mark: string; badge: string; why: string }> = {
  unknown: { mark: "…", badge: "Not judged", why: "the node has no whole second of it" },
  none: { mark: "○", badge: "No guarantee", why: "takes what the others leave" },
  idle: { mark: "✓", badge: "Holds", why: "asks for nothing now" },
  less: { mark: "✓", badge: "Holds", why: "asks for less than its guarantee, and gets it" },
  holds: { mark: "✓", badge: "Holds", why: "gets its guarantee or more" },
  limited: {
    mark: "–",
    badge: "At a limit",
    why: "gets less than its guarantee, since a limit of packets holds it there",
  },
  below: { mark: "▼", badge: "Below its guarantee", why: "asks for more than it gets" },
};
