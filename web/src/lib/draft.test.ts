// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { blamed, draftOf, follow, isChanged, requestOf } from "./draft";
import { policy } from "./samples";
import type { Vif } from "./types";

const vif = policy(30e6, 50e6).vifs[0]!;

test("what was not touched is not asked for", () => {
  expect(draftOf(vif).send).toEqual({
    min_rate_bps: "30 Mbit",
    rate_bps: "50 Mbit",
    priority: "1",
    shaper: "bucket",
    burst_bytes: "3036 B",
    credit_ns: "",
    width_ns: "",
    interval_ns: "",
    delay_max_ns: "",
    queue_kind: "flows",
    aqm: "none",
    ecn: "mark",
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
  const { min_rate_bps, rate_bps, priority } = followed.send;
  expect([min_rate_bps, rate_bps, priority]).toEqual(["20M", "40 Mbit", "1"]);
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

/** The vif as it is behind a smooth window. */
const smooth = (): Vif => {
  const send_shaper = { credit_ns: 1e8, width_ns: 3e6, interval_ns: 1e9, delay_max_ns: 2e8 };
  return { ...vif, send_shaper, send_queue: { ...vif.send_queue, kind: "fifo" } };
};

test("a smooth window is asked for with the keys that were typed", () => {
  const draft = draftOf(vif);
  draft.send.shaper = "smooth";
  draft.send.width_ns = "5ms";
  const { body, problems } = requestOf(draft, draftOf(vif));
  expect(problems).toEqual([]);
  expect(body).toEqual({ send: { shaper: "smooth", width_ns: 5e6 } });
  draft.send.width_ns = "5";
  expect(requestOf(draft, draftOf(vif)).problems).toEqual([
    { side: "send", key: "width_ns", message: "“5” is not a time such as 3 ms" },
  ]);
});

test("the keys of a smooth window go with it", () => {
  const base = draftOf(smooth());
  expect([base.send.shaper, base.send.credit_ns, base.send.queue_kind]).toEqual([
    "smooth",
    "100 ms",
    "fifo",
  ]);
  const draft = draftOf(smooth());
  draft.send.shaper = "bucket";
  draft.send.burst_bytes = "64 KiB";
  const none = { credit_ns: null, width_ns: null, interval_ns: null, delay_max_ns: null };
  const { body } = requestOf(draft, base);
  expect(body).toEqual({ send: { shaper: "bucket", burst_bytes: 65_536, ...none } });
  // Once it holds, the fields of the window are empty.
  expect(follow(draft, draft, draftOf(vif)).send.credit_ns).toBe("");
});

test("a kind of queue is asked for and blamed as the policy names it", () => {
  const draft = draftOf(vif);
  draft.receive.queue_kind = "fifo";
  const { body } = requestOf(draft, draftOf(vif));
  expect(body).toEqual({ receive: { queue: { kind: "fifo" } } });
  const key = { table: "vif", name: "a", key: "receive.queue.kind" };
  expect(blamed([key], body)).toEqual({ side: "receive", key: "queue_kind" });
});

test("keys of CoDel go with it, and only what changed is asked for", () => {
  const codel = { target_ns: 5_000_000, interval_ns: 100_000_000, ecn: true };
  const before = { ...vif, send_queue: { ...vif.send_queue, ...codel } };
  const draft = draftOf(before);
  expect([draft.send.aqm, draft.send.ecn]).toEqual(["codel", "mark"]);
  draft.send.ecn = "drop";
  expect(requestOf(draft, draftOf(before)).body).toEqual({ send: { queue: { ecn: false } } });
  draft.send.aqm = "lan";
  const queue = { aqm: "lan", ecn: false };
  expect(requestOf(draft, draftOf(before)).body).toEqual({ send: { queue } });
  draft.send.aqm = "none";
  const none = { aqm: "none" as const, ecn: null, target_ns: null, interval_ns: null };
  expect(requestOf(draft, draftOf(before)).body).toEqual({ send: { queue: none } });
  const refused = [{ table: "vif", name: "a", key: "send.queue.aqm" }];
  expect(blamed(refused, { send: { queue: none } })).toEqual({ side: "send", key: "aqm" });
});
