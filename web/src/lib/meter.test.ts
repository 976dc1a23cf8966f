// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { Meter } from "./meter";
import { status } from "./samples";

test("load and rates are those of the last second", () => {
  const meter = new Meter();
  expect(meter.load()).toBe(0);
  for (let tenth = 0; tenth <= 30; tenth += 1) {
    // 20 % at first, 60 % from the second second on; 100 Mb/s out.
    const busy = tenth <= 10 ? tenth * 2e7 : 2e8 + (tenth - 10) * 6e7;
    meter.look(status(tenth / 10, { port: tenth * 1_250_000, busy }));
  }
  expect(meter.load()).toBeCloseTo(0.6, 6);
  expect(meter.port("up0").send).toBeCloseTo(100e6, 0);
  expect(meter.port("up1")).toEqual({ send: 0, receive: 0 });
});

test("another process begins anew", () => {
  const meter = new Meter();
  meter.look(status(1, { busy: 5e8, port: 9e9 }));
  meter.look(status(1.1, { busy: 0, port: 0 }));
  expect([meter.load(), meter.port("up0").send]).toEqual([0, 0]);
  meter.look(status(1.2, { busy: 5e7, port: 125_000 }));
  expect(meter.load()).toBeCloseTo(0.5, 6);
  expect(meter.port("up0").send).toBeCloseTo(10e6, 0);
});
