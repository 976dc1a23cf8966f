// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { HEIGHT, WIDTH, along, lane, outside, routers } from "./layout";

const ring = ["a", "b", "c", "d"];
const edges = [
  ["a", "c"],
  ["c", "b"],
  ["b", "d"],
  ["d", "a"],
].map(([from = "", to = ""]) => ({ from, to }));

test("a ring is drawn without crossings, and the same each time", () => {
  const at = routers(ring, edges);
  expect([...at.keys()].join("")).toMatch(/^(acbd|cbda|bdac|dacb|adbc|dbca|bcad|cadb)$/);
  expect(routers(ring, edges)).toEqual(at);
});

test("everything is inside of the picture", () => {
  for (const count of [1, 2, 3, 14, 70]) {
    const names = Array.from({ length: count }, (_, index) => `r${index}`);
    for (const point of routers(names, []).values()) {
      for (const { x, y } of [point, ...outside(point, 3)]) {
        expect(x > 0 && x < WIDTH && y > 0 && y < HEIGHT).toBe(true);
      }
    }
  }
});

test("two directions have a lane each, and a share ends within it", () => {
  const [a, b] = [
    { x: 0, y: 0 },
    { x: 100, y: 0 },
  ];
  const there = lane(a, b, 4);
  expect(there).toEqual([
    { x: 15, y: 4 },
    { x: 85, y: 4 },
  ]);
  expect(lane(b, a, 4)[0].y).toBe(-4);
  expect(along(there, 0.5)).toEqual({ x: 50, y: 4 });
  expect(along(there, 7)).toEqual(there[1]);
});
