// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { verdict, worst, type Seen } from "./verdict";

const seen = (of: Partial<Seen>) =>
  verdict({ guarantee: 30e6, got: 0, refused: 0, backlogged: false, bounded: false, ...of });

test("who gets what it is owed holds, to a hundredth", () => {
  expect(seen({ got: 29.8e6, backlogged: true })).toBe("holds");
  expect(seen({ got: 29.6e6, backlogged: true })).toBe("below");
  expect(seen({ got: 90e6, backlogged: true, refused: 9e6 })).toBe("holds");
});

test("who asks for less than it is owed is not below", () => {
  expect(seen({})).toBe("idle");
  expect(seen({ got: 3e6 })).toBe("less");
});

test("what was dropped for want of room was asked for", () => {
  expect(seen({ got: 10e6, refused: 5e6 })).toBe("below");
  expect(seen({ got: 10e6, refused: 0.05e6 })).toBe("less");
  expect(seen({ got: 0, refused: 1e6 })).toBe("below");
});

test("who may wait at a limit is not called below", () => {
  expect(seen({ got: 10e6, backlogged: true, bounded: true })).toBe("limited");
  expect(seen({ got: 30e6, backlogged: true, bounded: true })).toBe("holds");
});

test("without a guarantee there is no verdict", () => {
  expect(seen({ guarantee: 0, got: 1, backlogged: true })).toBe("none");
});

test("the worst of both directions is told", () => {
  expect(worst(["holds", "below"])).toBe("below");
  expect(worst(["none", "idle"])).toBe("idle");
  expect(worst(["less", "holds"])).toBe("holds");
  expect(worst([])).toBe("none");
});
