// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { worst } from "./verdict";

test("the worst of both directions is told", () => {
  expect(worst(["holds", "below"])).toBe("below");
  expect(worst(["none", "idle"])).toBe("idle");
  expect(worst(["less", "holds"])).toBe("holds");
  expect(worst(["unknown", "none"])).toBe("none");
  expect(worst([])).toBe("unknown");
});
