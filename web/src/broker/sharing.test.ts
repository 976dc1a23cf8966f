// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, it } from "vitest";

import { agreed, sharesOf } from "./sharing";

it("names a network's own shares, and what is free where that is known", () => {
  const shares = [
    { network: "blue", link: "b1-b2", rate_bps: 6e7 },
    { network: "red", link: "r1-r2", rate_bps: 2e7 },
  ];
  const link = { link: "n1-n2", nodes: ["n1", "n2"], rate_bps: 1e8, reservable_bps: 9e7, shares };
  const blue = { link: "b1-b2", over: "n1-n2", nodes: ["n1", "n2"], rate_bps: 6e7 };
  expect(sharesOf([{ ...link, free_bps: 1e7 }], "blue")).toEqual([
    { ...blue, reservable_bps: 9e7, free_bps: 1e7 },
  ]);
  expect(sharesOf([link], "green")).toEqual([]);
});

it("says what was agreed, and no more than there is", () => {
  const conduct = { network: "blue", min_pps: 200, priority: 1, held: false, grade: "free" };
  const plain = agreed({ ...conduct, judged: 0, routers: [] });
  expect(plain).toBe("guaranteed 200 p/s");
  const full = { ...conduct, max_pps: 2000, priority: 3, allowed_pps: 1425 };
  expect(agreed({ ...full, judged: 0, routers: [] })).toMatch(
    /^guaranteed .* · at most .* · priority 3 · may have .* now$/,
  );
});
