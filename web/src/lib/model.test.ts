// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { COLUMN, Model } from "./model";
import { policy, status, type Said } from "./samples";

/** A model that has looked ten times a second. */
function watched(seconds: number, said: (tenth: number) => Said, of = policy(30e6)): Model {
  const model = new Model(600);
  model.follow(of);
  for (let tenth = 0; tenth <= seconds * 10; tenth += 1) {
    model.look(status(tenth / 10, said(tenth)));
  }
  return model;
}

const sends = (model: Model) => model.tenants[0]!.sides.send;

test("every look is news", () => {
  const model = watched(1, () => ({}));
  const before = model.tenants[0]!.sides;
  model.look(status(1.1, {}));
  expect(model.tenants[0]!.sides).not.toBe(before);
});

test("the same look twice is one", () => {
  const model = watched(2, (t) => ({ sent: 125_000 * t }));
  model.look(status(2, { sent: 125_000 * 20 }));
  expect(model.times.length).toBe(21);
  expect(sends(model).bps).toBeCloseTo(10e6, 0);
});

test("a rate is that of the last second", () => {
  // 10 Mb/s, then 40 Mb/s.
  const model = watched(5, (t) => ({ sent: 125_000 * t + (t > 30 ? 375_000 * (t - 30) : 0) }));
  expect(sends(model).bps).toBeCloseTo(40e6, 0);
  const rates = model.tenants[0]!.history.send.column(COLUMN.rate);
  expect([rates[0], rates.length]).toEqual([null, 51]);
  expect(rates[20]).toBeCloseTo(10e6, 0);
  expect(rates[50]).toBeCloseTo(40e6, 0);
});

test("the verdict is the node's", () => {
  const of = policy(30e6);
  // Far below the guarantee, with a queue that stands: what that is, the node knows.
  const slow = (verdicts?: Said["verdicts"]) => (t: number) =>
    ({ sent: 62_500 * t, backlog: 9, wait: 7e6, ...(verdicts && { verdicts }) });
  const judged = watched(2, slow(["below", "limited"]), of);
  expect(sends(judged)).toMatchObject({ verdict: "below", waitNs: 7e6 });
  expect(judged.vif(of.vifs[0]!, "send").verdict).toBe("limited");
  const none = watched(2, slow(), of);
  expect(sends(none).verdict).toBe("unknown");
  expect(none.vif(of.vifs[0]!, "send").verdict).toBe("unknown");
});

test("bytes are counted as the port counts them", () => {
  const of = policy(30e6);
  of.vifs[0]!.overhead_bytes = 250;
  // 12 Mb/s of 1250 bytes are 14.4 Mb/s with 250 more each.
  const model = watched(2, (t) => ({ sent: 150_000 * t, packets: 120 * t }), of);
  expect(sends(model).bps).toBeCloseTo(14.4e6, 0);
});

test("drops are told by reason, most first, now and in all", () => {
  const model = watched(2, (t) => ({
    sent: 125_000 * t,
    dropped: { storm: 100, queue_packets: 50 * t, spoofed_mac: 3 * t },
  }));
  const { drops, dropTotals, dropPps } = sends(model);
  expect(drops.map(([reason, pps]) => [reason, Math.round(pps)])).toEqual([
    ["queue_packets", 500],
    ["spoofed_mac", 30],
  ]);
  expect(Math.round(dropPps)).toBe(530);
  expect(dropTotals[0]).toEqual(["queue_packets", 1000]);
  expect(dropTotals.at(-1)).toEqual(["spoofed_mac", 60]);
});

test("a restart and a lost connection are gaps, not jumps", () => {
  const model = watched(3, (t) => ({ sent: 125_000 * t }));
  model.lose();
  model.look(status(9, { sent: 90e6 }));
  model.look(status(9.1, { sent: 90e6 + 125_000 }));
  const rates = model.tenants[0]!.history.send.column(COLUMN.rate);
  expect(rates.slice(-3, -1)).toEqual([null, null]);
  expect(rates.at(-1)).toBeCloseTo(10e6, 0);
  // The next process has counted nothing yet, on the same clock.
  const began = { ...status(9.2, { sent: 0 }), uptime_ns: 1e8 };
  model.look(began);
  expect(model.tenants[0]!.history.send.column(COLUMN.rate).at(-1)).toBeNull();
  expect(model.times.length).toBe(model.tenants[0]!.history.send.length);
  const times = model.times.column(0) as number[];
  expect(times.every((time, at) => at === 0 || time >= times[at - 1]!)).toBe(true);
  // A machine that was started again has a younger clock.
  model.look({ ...status(1, { sent: 0 }), uptime_ns: 1e7 });
  expect(model.times.column(0)).toEqual([1]);
});

test("a change of policy moves the line and keeps the history", () => {
  const model = watched(2, (t) => ({ sent: 125_000 * t }));
  model.follow(policy(8e6));
  expect(sends(model)).toMatchObject({ guarantee: 8e6 });
  expect(sends(model).bps).toBeCloseTo(10e6, 0);
  model.look(status(2.1, { sent: 125_000 * 21 }));
  const history = model.tenants[0]!.history.send;
  expect(history.column(COLUMN.guarantee).slice(-2)).toEqual([30e6, 8e6]);
  expect(history.length).toBe(22);
});

test("memory is bounded however long it looks", () => {
  const model = watched(100, (t) => ({ sent: t }));
  expect(model.times.length).toBe(600);
  expect(model.tenants[0]!.history.receive.length).toBe(600);
});

test("a slice's own guarantee and limit go before its members'", () => {
  const of = policy(30e6, 50e6);
  expect(watched(1, () => ({}), of).tenants[0]!.sides.send).toMatchObject({
    guarantee: 30e6,
    limit: 50e6,
  });
  of.slices[0]!.send = { ...of.slices[0]!.send, min_rate_bps: 35e6, rate_bps: 40e6 };
  expect(watched(1, () => ({}), of).tenants[0]!.sides.send).toMatchObject({
    guarantee: 35e6,
    limit: 40e6,
  });
});

test("a slice on two ports has its guarantee on each of them", () => {
  const of = policy(10e6);
  of.slices[0]!.send = { ...of.slices[0]!.send, min_rate_bps: 20e6 };
  of.vifs.push({ ...of.vifs[0]!, name: "gold.1", port: "up1" });
  expect(sends(watched(1, () => ({}), of)).guarantee).toBe(40e6);
});

test("a standing queue is shown while its vif says so", () => {
  const standing = (now: boolean) =>
    watched(1, () => ({ standing: now })).tenants[0]!.sides.send.standing;
  expect([standing(false), standing(true)]).toEqual([false, true]);
});
