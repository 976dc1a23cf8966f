// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { History } from "./history";

test("memory is bounded and the newest stays", () => {
  const history = new History(2, 3);
  for (let row = 0; row < 1000; row += 1) history.push(row, -row);
  expect(history.length).toBe(3);
  expect(history.column(0)).toEqual([997, 998, 999]);
  expect(history.column(1)).toEqual([-997, -998, -999]);
  expect(history.max(0)).toBe(999);
});

test("what is left out is a gap", () => {
  const history = new History(2, 4);
  expect([history.length, history.max(0)]).toEqual([0, 0]);
  history.push(1);
  history.push();
  history.push(3, 4);
  expect(history.column(0)).toEqual([1, null, 3]);
  expect(history.column(1)).toEqual([null, null, 4]);
  expect(history.column(7)).toEqual([]);
});

test("a history of nothing is refused", () => {
  expect(() => new History(0, 3)).toThrow("0 × 3 rows");
});
