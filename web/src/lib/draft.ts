// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a person has typed for a vif, and what of it is asked of the node. The node alone decides
// what is sound; here only what cannot be read at all is refused.

import type { KeyView, VifShareChange } from "./api";
import { exactBytes, exactRate, exactTime, parseBytes, parseRate, parseTime } from "./format";
import { SIDES, type Side, type Vif } from "./types";

/** Keys of the smooth window, which are removed together with it. */
export const WINDOW_KEYS = ["credit_ns", "width_ns", "interval_ns", "delay_max_ns"] as const;

export type WindowKey = (typeof WINDOW_KEYS)[number];

export type Key =
  | "min_rate_bps"
  | "rate_bps"
  | "priority"
  | "shaper"
  | "burst_bytes"
  | WindowKey
  | "queue_kind"
  | "aqm"
  | "ecn";

export const KEYS: readonly Key[] = [
  "min_rate_bps",
  "rate_bps",
  "priority",
  "shaper",
  "burst_bytes",
  ...WINDOW_KEYS,
  "queue_kind",
  "aqm",
  "ecn",
];

/** The fields of one direction, as typed. */
export type Fields = Record<Key, string>;

export type Draft = Record<Side, Fields>;

/** The body of a request to the node; `null` removes a key. */
export type Body = Partial<Record<Side, VifShareChange>>;

/** A field of the form, and what is wrong with it. */
export interface Problem {
  side: Side;
  key: Key;
  message: string;
}

type Value = number | string | boolean;

/** The form of a field: how it is read, how a person would write it, its name in the policy. */
interface Form {
  parse: (typed: string) => Value | undefined;
  example: string;
  name: string;
}

const whole = (typed: string): number | undefined =>
  /^\d{1,9}$/.test(typed) ? Number(typed) : undefined;

const choice = (...of: string[]) => (typed: string) => (of.includes(typed) ? typed : undefined);

const marks = (typed: string): boolean | undefined =>
  typed === "mark" || typed === "drop" ? typed === "mark" : undefined;

const RATE = { parse: parseRate, example: "a rate such as 30 Mbit" };
const TIME = { parse: parseTime, example: "a time such as 3 ms" };

/** The forms of all fields. In the policy their names follow that of the direction. */
const FORMS: Record<Key, Form> = {
  min_rate_bps: { ...RATE, name: "min_rate" },
  rate_bps: { ...RATE, name: "rate" },
  priority: { parse: whole, example: "a whole number", name: "priority" },
  shaper: { parse: choice("bucket", "smooth"), example: "a shaper", name: "shaper" },
  burst_bytes: { parse: parseBytes, example: "a size such as 64 KiB", name: "burst" },
  credit_ns: { ...TIME, name: "credit" },
  width_ns: { ...TIME, name: "width" },
  interval_ns: { ...TIME, name: "interval" },
  delay_max_ns: { ...TIME, name: "delay_max" },
  queue_kind: { parse: choice("fifo", "flows"), example: "a kind of queue", name: "queue.kind" },
  aqm: { parse: choice("none", "codel", "lan"), example: "none, codel or lan", name: "queue.aqm" },
  ecn: { parse: marks, example: "mark or drop", name: "queue.ecn" },
};

/**
 * The interval of `aqm = "lan"`, by which it is recognised: the policy in force has only the
 * numbers.
 */
const LAN_INTERVAL_NS = 5_000_000;

function fields(vif: Vif, side: Side): Fields {
  const { min_rate_bps, rate_bps, priority, burst_bytes } = vif[side];
  const window = vif[`${side}_shaper`];
  const time = (key: WindowKey) => (window ? exactTime(window[key]) : "");
  const queue = vif[`${side}_queue`];
  const codel = queue.interval_ns === LAN_INTERVAL_NS ? "lan" : "codel";
  return {
    min_rate_bps: min_rate_bps > 0 ? exactRate(min_rate_bps) : "",
    rate_bps: rate_bps === undefined ? "" : exactRate(rate_bps),
    priority: String(priority),
    shaper: window ? "smooth" : "bucket",
    burst_bytes: exactBytes(burst_bytes),
    credit_ns: time("credit_ns"),
    width_ns: time("width_ns"),
    interval_ns: time("interval_ns"),
    delay_max_ns: time("delay_max_ns"),
    queue_kind: queue.kind,
    aqm: queue.target_ns === undefined ? "none" : codel,
    ecn: queue.ecn === false ? "drop" : "mark",
  };
}

/** Returns the vif's shares in force as the form shows them. */
export const draftOf = (vif: Vif): Draft => ({
  send: fields(vif, "send"),
  receive: fields(vif, "receive"),
});

/** Returns the value of a field: `null` if it is empty, nothing if it cannot be read. */
function valueOf(key: Key, typed: string): Value | null | undefined {
  const text = typed.trim();
  return text === "" ? null : FORMS[key].parse(text);
}

/** Returns true if two texts of a field mean the same. */
function same(key: Key, one: string, other: string): boolean {
  const value = valueOf(key, one);
  return one.trim() === other.trim() || (value !== undefined && value === valueOf(key, other));
}

/** Returns true if something was typed that differs from the draft's beginning. */
export const isChanged = (draft: Draft, base: Draft): boolean =>
  SIDES.some((side) => KEYS.some((key) => !same(key, draft[side][key], base[side][key])));

/**
 * Returns the draft after the policy has changed from `base` to `next`: fields that were not
 * touched take the new value, those that were typed in stay.
 */
export function follow(draft: Draft, base: Draft, next: Draft): Draft {
  const side = (of: Side): Fields => {
    const fields = { ...draft[of] };
    for (const key of KEYS) {
      const untouched = same(key, fields[key], base[of][key]);
      if (untouched || same(key, fields[key], next[of][key])) fields[key] = next[of][key];
    }
    return fields;
  };
  return { send: side("send"), receive: side("receive") };
}

/** Returns the keys that have a value. */
const given = (keys: Record<string, Value | null | undefined>) =>
  Object.fromEntries(Object.entries(keys).filter(([, value]) => value !== undefined));

/** The request for the fields that differ from `base`, and the fields that cannot be read. */
export function requestOf(draft: Draft, base: Draft): { body: Body; problems: Problem[] } {
  const body: Body = {};
  const problems: Problem[] = [];
  for (const side of SIDES) {
    const values: Partial<Record<Key, Value | null>> = {};
    for (const key of KEYS) {
      const typed = draft[side][key];
      if (same(key, typed, base[side][key])) continue;
      const value = valueOf(key, typed);
      if (value !== undefined) values[key] = value;
      else problems.push({ side, key, message: `“${typed.trim()}” is not ${FORMS[key].example}` });
    }
    // Without a smooth window, its keys are removed.
    if (values.shaper === "bucket") for (const key of WINDOW_KEYS) values[key] = null;
    const { queue_kind, aqm, ecn, ...share } = values;
    const queue = given({ kind: queue_kind, aqm, ecn });
    // Without CoDel, its keys are removed.
    if (aqm === "none") Object.assign(queue, { ecn: null, target_ns: null, interval_ns: null });
    // Each value has the type that the `parse` of its field returns.
    const change = (
      Object.keys(queue).length > 0 ? { ...share, queue } : share
    ) as VifShareChange;
    if (Object.keys(change).length > 0) body[side] = change;
  }
  return { body, problems };
}

/** Returns the field that a refusal is about: the first changed one it names, else the first. */
export function blamed(
  keys: readonly KeyView[],
  body: Body,
): Pick<Problem, "side" | "key"> | undefined {
  const changed: Pick<Problem, "side" | "key">[] = [];
  for (const side of SIDES) {
    const asked: VifShareChange = body[side] ?? {};
    const { queue, ...share } = asked;
    const values: Partial<Record<Key, unknown>> = {
      ...share,
      queue_kind: queue?.kind,
      aqm: queue?.aqm,
      ecn: queue?.ecn ?? undefined,
    };
    for (const key of KEYS) if (values[key] !== undefined) changed.push({ side, key });
  }
  const named = new Set(keys.map(({ key }) => key));
  return changed.find(({ side, key }) => named.has(`${side}.${FORMS[key].name}`)) ?? changed[0];
}
