// SPDX-License-Identifier: Apache-2.0 OR MIT
// The faults of a network's routers and nodes as sentences.

import type { NetworkView, RouterState } from "./api";

/** A sentence for each router and node that does not answer, or lacks what it is to have. */
export function faultsOf({ routers, nodes }: Pick<NetworkView, "routers" | "nodes">): string[] {
  const of = (kind: string, states: RouterState[]) =>
    states
      .filter(({ reachable, fault }) => !reachable || fault)
      .map(({ name, reachable, fault = "" }) => {
        const what = reachable ? "lacks a part" : "does not answer";
        return `${kind} ${name} ${what}${fault && `: ${fault}`}`;
      });
  return [...of("Router", routers), ...of("Node", nodes)];
}
