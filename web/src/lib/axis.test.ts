// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { nice } from "./axis";

test("an axis ends at a round number that is not below what is shown", () => {
  expect([0, NaN, 5, 1e5].map(nice)).toEqual([1e5, 1e5, 1e5, 1e5]);
  expect([31.5e6, 100e6, 101e6, 84e6].map(nice)).toEqual([40e6, 100e6, 120e6, 100e6]);
  for (let value = 1.1e5; value < 1e12; value *= 1.07) {
    expect(nice(value)).toBeGreaterThanOrEqual(value * (1 - 1e-9));
    expect(nice(value)).toBeLessThanOrEqual(value * 1.51);
  }
});
