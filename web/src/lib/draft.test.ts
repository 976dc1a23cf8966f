// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { blamed, draftOf, follow, isChanged, requestOf } from "./draft";
import { policy } from "./samples";

const vif = policy(30e6, 50e6).vifs[0]!;

test("what was not touched is not asked for", () => {
  expect(draftOf(vif).send).toEqual({
    min_rate_bps: "30 Mbit",
    rate_bps: "50 Mbit",
    priority: "1",
  });
  expect(requestOf(draftOf(vif), draftOf(vif))).toEqual({ body: {}, problems: [] });
});

test("what is emptied is taken out, what is typed is asked for", () => {
  const draft = draftOf(vif);
  draft.send.rate_bps = " ";
  draft.send.min_rate_bps = "20M";
  draft.receive.priority = "7";
  expect(requestOf(draft, draftOf(vif))).toEqual({
    body: { send: { min_rate_bps: 20e6, rate_bps: null }, receive: { priority: 7 } },
    problems: [],
  });
});

test("what is no number is said at its field", () => {
  const draft = draftOf(vif);
  draft.send.min_rate_bps = "much";
  draft.receive.priority = "1.5";
  const { problems } = requestOf(draft, draftOf(vif));
  expect(problems).toEqual([
    { side: "send", key: "min_rate_bps", message: "“much” is not a rate such as 30 Mbit" },
    { side: "receive", key: "priority", message: "“1.5” is not a whole number" },
  ]);
});

test("a refusal is shown at the field that it names", () => {
  const body = { send: { min_rate_bps: 1, rate_bps: 2 }, receive: { rate_bps: 3 } };
  const of = (table: string, name: string, key: string) => blamed([{ table, name, key }], body);
  const min = { side: "send", key: "min_rate_bps" };
  expect(of("slice", "gold", "send.min_rate")).toEqual(min);
  expect(of("vif", "a", "send.rate")).toEqual({ side: "send", key: "rate_bps" });
  expect(of("vif", "a", "receive.rate")).toEqual({ side: "receive", key: "rate_bps" });
  expect(of("port", "up0", "rate")).toEqual(min);
  expect(blamed([], body)).toEqual(min);
  expect(blamed([], {})).toBeUndefined();
});

test("what somebody else changes meanwhile is not taken back", () => {
  const base = draftOf(vif);
  const draft = draftOf(vif);
  draft.send.min_rate_bps = "20M";
  const next = draftOf(policy(30e6, 40e6).vifs[0]!);
  const followed = follow(draft, base, next);
  expect(followed.send).toEqual({ min_rate_bps: "20M", rate_bps: "40 Mbit", priority: "1" });
  expect(requestOf(followed, next).body).toEqual({ send: { min_rate_bps: 20e6 } });
});

test("what was applied is not typed any more, however it was written", () => {
  const draft = draftOf(vif);
  draft.send.rate_bps = "8M";
  expect(isChanged(draft, draftOf(vif))).toBe(true);
  const next = draftOf(policy(30e6, 8e6).vifs[0]!);
  const followed = follow(draft, draftOf(vif), next);
  expect(followed.send.rate_bps).toBe("8 Mbit");
  expect([isChanged(followed, next), isChanged(draft, next)]).toEqual([false, false]);
  expect(requestOf(draft, next).body).toEqual({});
  // Then it follows again.
  const later = draftOf(policy(30e6, 9e6).vifs[0]!);
  expect(follow(followed, next, later).send.rate_bps).toBe("9 Mbit");
});

test("what is no number counts as typed", () => {
  const draft = draftOf(vif);
  draft.send.rate_bps = "much";
  expect(isChanged(draft, draftOf(vif))).toBe(true);
  expect(follow(draft, draftOf(vif), draftOf(vif)).send.rate_bps).toBe("much");
});
