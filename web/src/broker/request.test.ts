// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { EMPTY, proposal, request } from "./request";

test("a form becomes a request without its empty fields", () => {
  const draft = { ...EMPTY, network: "blue", from: "a", to: "b", rate: " 20Mbit ", to_port: "80" };
  expect(request(draft)).toEqual({
    network: "blue",
    from: "a",
    to: "b",
    rate: "20Mbit",
    to_port: 80,
  });
  // The broker refuses it, and says why.
  expect(request({ ...draft, to_port: "http" }).to_port).toBe("http");
});

test("links to avoid and colours go as lists", () => {
  const lists = { avoid: ["b1-b2"], exclude: ["radio", "leased"] };
  const draft = { ...EMPTY, ...lists, disjoint_from: "c7", packet: "200" };
  expect(request(draft)).toEqual({ ...lists, disjoint_from: "c7", packet: 200 });
});

test("times are local in the form and in UTC in the request", () => {
  const draft = { ...EMPTY, start: "2027-01-31T12:00", end: "noon", priority: "7", hold: "30s" };
  const start = new Date(2027, 0, 31, 12).toISOString();
  expect(request(draft)).toEqual({ start, end: "noon", priority: 7, hold: "30s" });
});

test("a proposal is said, and fills in the form where it can", () => {
  expect(proposal({ rate: "64Mbit", back_rate: "1Mbit" })).toEqual({
    text: "rate 64Mbit, rate back 1Mbit",
    fields: { rate: "64Mbit", back_rate: "1Mbit" },
  });
  expect(proposal({ hops_max: 3 }).fields).toEqual({ hops_max: "3" });
  const more = proposal({ links: [{ link: "l", from: "a", more: "5Mbit" }] });
  expect(more).toEqual({ text: "The network would need 5Mbit more of l from a." });
});
