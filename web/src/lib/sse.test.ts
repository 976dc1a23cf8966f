// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { EventParser } from "./sse";

const TEXT =
  'event: policy\ndata: {"a":1}\n\n: a comment\n\nevent: status\ndata: one\ndata: two\n\n';

test("events are the same however the text is cut", () => {
  const whole = new EventParser().take(TEXT);
  expect(whole).toEqual([
    { event: "policy", data: '{"a":1}' },
    { event: "status", data: "one\ntwo" },
  ]);
  for (let size = 1; size < TEXT.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < TEXT.length; at += size) {
      events.push(...parser.take(TEXT.slice(at, at + size)));
    }
    expect(events).toEqual(whole);
  }
});

test("an event that never ends is given up", () => {
  const parser = new EventParser();
  const block = "x".repeat(16 << 20);
  expect(() => {
    for (let part = 0; part < 5; part += 1) parser.take(block);
  }).toThrow("longer than");
});
