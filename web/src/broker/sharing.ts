// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parts of links and nodes that a network has beside others.

import { packetRate, text } from "../lib/format";
import type { NetworkConduct, PhysicalLinkView } from "./api";

/** A network's share of a physical link. */
export interface Share {
  /** The network's link. */
  link: string;
  /** The physical link that carries it. */
  over: string;
  nodes: string[];
  rate_bps: number;
  /** The rate that networks may be promised together. */
  reservable_bps: number;
  /** The rate left of that; unknown to who sees one network alone. */
  free_bps: number | undefined;
}

/** The shares of a network. */
export function sharesOf(physical: readonly PhysicalLinkView[], network: string): Share[] {
  return physical.flatMap(({ link: over, nodes, reservable_bps, free_bps, shares }) =>
    shares
      .filter((share) => share.network === network)
      .map(({ link, rate_bps }) => ({ link, over, nodes, rate_bps, reservable_bps, free_bps })),
  );
}

/** A network's agreement in words, and the rate that it may have now. */
export function agreed({ min_pps, max_pps, priority, allowed_pps }: NetworkConduct): string {
  const packets = (pps: number): string => text(packetRate(pps));
  return [
    `guaranteed ${packets(min_pps)}`,
    typeof max_pps === "number" && `at most ${packets(max_pps)}`,
    priority !== 1 && `priority ${priority}`,
    typeof allowed_pps === "number" && `may have ${packets(allowed_pps)} now`,
  ]
    .filter(Boolean)
    .join(" · ");
}
