// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { faultsOf } from "./faults";

test("a router or node with a fault is a sentence, and a sound one is none", () => {
  const sound = { name: "a", reachable: true, repaired: 2 };
  const silent = { name: "b", reachable: false, repaired: 0, fault: "no shell within 5 s" };
  const lacking = { name: "n1", reachable: true, repaired: 0, fault: "device eth0: there is none" };
  const starting = { name: "c", reachable: false, repaired: 0 };
  expect(faultsOf({ routers: [sound, silent, starting], nodes: [lacking, sound] })).toEqual([
    "Router b does not answer: no shell within 5 s",
    "Router c does not answer",
    "Node n1 lacks a part: device eth0: there is none",
  ]);
});
