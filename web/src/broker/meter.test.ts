// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { LinkMeter } from "./meter";

const reading = (at_ms: number, passed_bytes: number) => [
  { link: "l", from: "a", to: "b", at_ms, passed_bytes, passed_packets: 0, dropped_packets: 0 },
];

test("a rate needs two readings, and counters that grew", () => {
  const meter = new LinkMeter();
  expect(meter.take(reading(0, 1000)).size).toBe(0);
  expect(meter.take(reading(2000, 251_000)).get("l a")).toBe(1e6);
  // The broker answers within a second of its last reading with the same one.
  expect(meter.take(reading(2000, 251_000)).size).toBe(0);
  expect(meter.take(reading(3000, 0)).size).toBe(0);
  expect(meter.take(reading(4000, 0)).get("l a")).toBe(0);
});
