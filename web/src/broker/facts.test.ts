// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import type { ConnectionView } from "./api";
import { facts, moment } from "./facts";

const plain: ConnectionView = {
  id: "c1",
  mtu: 1460,
  request: { network: "n", from: "a", to: "b", rate: "1Mbit" },
  state: "active",
  tunnels: [],
};

test("only what is not as usual is said", () => {
  expect(facts(plain)).toEqual([]);
  const end = "2027-01-31T12:00:00Z";
  const other = { ...plain, lease_until: end, request: { ...plain.request, priority: 3, end } };
  expect(facts(other)).toEqual(["priority 3", `ends ${moment(end)}`, `lease until ${moment(end)}`]);
});

test("a moment of today has no date, and what is none stays as it is", () => {
  const noon = new Date(2027, 0, 31, 12);
  const same = moment(noon.toISOString(), new Date(2027, 0, 31, 23));
  const next = moment(noon.toISOString(), new Date(2027, 1, 1));
  expect(next.endsWith(` ${same}`)).toBe(true);
  expect(moment("soon")).toBe("soon");
});
