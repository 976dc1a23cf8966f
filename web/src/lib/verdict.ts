// SPDX-License-Identifier: Apache-2.0 OR MIT
// The node's verdict on the last second, in words. The node alone judges: the page, `weir top` and
// the service report say the same.

import type { Verdict } from "./types";

/** A verdict as it is shown: the node's, or `unknown` if there is none yet. */
export type Shown = Verdict | "unknown";

/** Returns true if there is a guarantee, and a second that was compared with it. */
export const isJudged = (shown: Shown): boolean => shown !== "none" && shown !== "unknown";

/** Returns the worst of several verdicts. */
export function worst(verdicts: readonly Shown[]): Shown {
  const order: Shown[] = ["below", "limited", "holds", "less", "idle", "none"];
  return order.find((one) => verdicts.includes(one)) ?? "unknown";
}

/** The words for each verdict, on the badge and for screen readers. */
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
