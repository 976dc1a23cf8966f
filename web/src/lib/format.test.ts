// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import {
  age,
  exactBytes,
  exactRate,
  exactTime,
  packets,
  parseBytes,
  parseRate,
  parseTime,
  percent,
  rate,
  text,
  time,
} from "./format";

test.each([
  [0, "0 b/s"],
  [0.4, "0 b/s"],
  [999, "999 b/s"],
  [999.7, "1.00 kb/s"],
  [1000, "1.00 kb/s"],
  [9_994, "9.99 kb/s"],
  [9_996, "10.0 kb/s"],
  [30_000_000, "30.0 Mb/s"],
  [99_960_000, "100 Mb/s"],
  [999_499_999, "999 Mb/s"],
  [999_500_000, "1.00 Gb/s"],
  [25e12, "25.0 Tb/s"],
])("%d bit/s is %s", (bps, expected) => {
  expect(text(rate(bps))).toBe(expected);
});

test.each([
  [0, "0 s"],
  [850, "850 ns"],
  [1_000, "1.00 µs"],
  [999_600, "1.00 ms"],
  [12_340_000, "12.3 ms"],
  [2_500_000_000, "2.50 s"],
])("%d ns is %s", (ns, expected) => {
  expect(text(time(ns))).toBe(expected);
});

test("a share has a digit where it is small", () => {
  expect([0, 0.0042, 0.0994, 0.0996, 0.5, 1].map((of) => text(percent(of)))).toEqual(
    ["0.0 %", "0.4 %", "9.9 %", "10 %", "50 %", "100 %"],
  );
});

test("one packet is not several", () => {
  expect([0, 1, 2, 1234].map((of) => text(packets(of)))).toEqual(
    ["0 pkts", "1 pkt", "2 pkts", "1.23 kpkts"],
  );
});

test("an age is told in the greatest unit that fits", () => {
  const ages = [-5, 0, 59_999, 60_000, 3_600_000, 90_000_000].map(age);
  expect(ages).toEqual(["0 s", "0 s", "59 s", "1 min", "1 h", "1 d"]);
});

test.each([
  ["30Mbit", 30e6],
  ["30 Mb/s", 30e6],
  [" 1.5 g ", 1.5e9],
  ["2000000", 2e6],
  ["128 kbit", 128e3],
  ["0", 0],
  ["10 bps", 10],
])("%s is %d bit/s", (typed, bps) => {
  expect(parseRate(typed)).toBe(bps);
});

test.each(["", "much", "-3M", "3 MB", "3 Mbyte", "1e9", "3,5 M", "99999999999999 T"])(
  "%s is no rate",
  (typed) => {
    expect(parseRate(typed)).toBeUndefined();
  },
);

test("a rate is written so that it is read back exactly", () => {
  for (const bps of [1, 999, 1000, 1234, 1_500_000, 30e6, 999_999, 1e9, 1_234_567_890, 4e10]) {
    expect(parseRate(exactRate(bps)), exactRate(bps)).toBe(bps);
  }
  expect([1_500_000, 30e6, 2e9].map(exactRate)).toEqual(["1.5 Mbit", "30 Mbit", "2 Gbit"]);
});

test.each([
  ["3ms", 3e6],
  ["1.5 s", 1.5e9],
  ["250 µs", 250e3],
  ["250us", 250e3],
  ["0", 0],
])("%s is %d ns", (typed, ns) => {
  expect(parseTime(typed)).toBe(ns);
});

test.each([
  ["1518", 1518],
  ["64 KiB", 65_536],
  ["1.5MB", 1.5e6],
  ["2 kB", 2000],
])("%s is %d bytes", (typed, count) => {
  expect(parseBytes(typed)).toBe(count);
});

test("what is no time and no size is none", () => {
  for (const typed of ["", "3", "3 min", "ms", "-1ms"]) expect(parseTime(typed)).toBeUndefined();
  for (const typed of ["", "KiB", "1.5", "1 Mbit", "-1"]) expect(parseBytes(typed)).toBeUndefined();
});

test("times and sizes are written so that they are read back exactly", () => {
  for (const ns of [0, 1, 999, 1000, 3e6, 1_500_000, 100e6, 1e9, 1_234_567_891]) {
    expect(parseTime(exactTime(ns))).toBe(ns);
  }
  expect([3e6, 1_500_000, 1e9].map(exactTime)).toEqual(["3 ms", "1.5 ms", "1 s"]);
  for (const count of [0, 1, 1518, 3036, 65_536, 1_048_576, 625_000]) {
    expect(parseBytes(exactBytes(count))).toBe(count);
  }
  expect([3036, 65_536].map(exactBytes)).toEqual(["3036 B", "64 KiB"]);
});
