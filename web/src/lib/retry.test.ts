// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test, vi } from "vitest";

import { pause, retryDelay } from "./retry";

test("the first retry comes after 250 ms, later ones after twice the time, up to 5 s", () => {
  expect([0, 1, 2, 10].map(retryDelay)).toEqual([250, 500, 1000, 5000]);
});

test("a pause ends with its time or when it is stopped, and leaves no listener", async () => {
  const stop = new AbortController();
  const added = vi.spyOn(stop.signal, "addEventListener");
  const removed = vi.spyOn(stop.signal, "removeEventListener");
  await pause(1, stop.signal);
  const long = pause(1_000_000, stop.signal);
  stop.abort();
  await long;
  await pause(1_000_000, stop.signal);
  expect(added).toHaveBeenCalledTimes(3);
  expect(removed).toHaveBeenCalledTimes(3);
});
