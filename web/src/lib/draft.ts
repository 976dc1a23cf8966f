// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a person has typed for a vif, and what of it is asked of the node. The node alone decides
// what is sound; here only what is no number at all is refused.

import type { KeyView } from "./api";
import { exactRate, parseRate } from "./format";
import { SIDES, type Share, type Side, type Vif } from "./types";

export type Key = "min_rate_bps" | "rate_bps" | "priority";

export const KEYS: readonly Key[] = ["min_rate_bps", "rate_bps", "priority"];

/** The fields of one direction, as typed. */
export type Fields = Record<Key, string>;

export type Draft = Record<Side, Fields>;

/** The body of a request to the node; `null` removes a key. */
export type Body = Partial<Record<Side, Partial<Record<Key, number | null>>>>;

/** A field of the form, and what is wrong with it. */
export interface Problem {
  side: Side;
  key: Key;
  message: string;
}

const fields = (share: Share): Fields => ({
  min_rate_bps: share.min_rate_bps > 0 ? exactRate(share.min_rate_bps) : "",
  rate_bps: share.rate_bps === undefined ? "" : exactRate(share.rate_bps),
  priority: String(share.priority),
});

/** Returns the vif's shares in force as the form shows them. */
export const draftOf = (vif: Vif): Draft => ({
  send: fields(vif.send),
  receive: fields(vif.receive),
});

/** Returns the value of a field: a number, `null` if it is empty, nothing if it is no number. */
function valueOf(key: Key, typed: string): number | null | undefined {
  const text = typed.trim();
  if (text === "") return null;
  return key === "priority" ? whole(text) : parseRate(text);
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
 * The draft when something else holds than what it began with: fields that were not touched take
 * the new value, those that were typed in stay.
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

/** The body of a request for what differs from what the draft began with; or what is no number. */
export function requestOf(draft: Draft, base: Draft): { body: Body; problems: Problem[] } {
  const body: Body = {};
  const problems: Problem[] = [];
  for (const side of SIDES) {
    for (const key of KEYS) {
      const typed = draft[side][key];
      if (same(key, typed, base[side][key])) continue;
      const value = valueOf(key, typed);
      if (value === undefined) {
        const form = key === "priority" ? "a whole number" : "a rate such as 30 Mbit";
        problems.push({ side, key, message: `“${typed.trim()}” is not ${form}` });
      } else {
        (body[side] ??= {})[key] = value;
      }
    }
  }
  return { body, problems };
}

const whole = (typed: string): number | undefined =>
  /^\d{1,9}$/.test(typed) ? Number(typed) : undefined;

/** The keys of the policy that the fields of the form set, below their direction. */
const NAMES: Record<Key, string> = {
  min_rate_bps: "min_rate",
  rate_bps: "rate",
  priority: "priority",
};

/** Returns the field that a refusal is about: the first changed one it names, else the first. */
export function blamed(
  keys: readonly KeyView[],
  body: Partial<Record<Side, Partial<Record<Key, unknown>>>>,
): Pick<Problem, "side" | "key"> | undefined {
  const changed: Pick<Problem, "side" | "key">[] = [];
  for (const side of SIDES) {
    for (const key of KEYS) if (body[side]?.[key] !== undefined) changed.push({ side, key });
  }
  const named = new Set(keys.map(({ key }) => key));
  return changed.find(({ side, key }) => named.has(`${side}.${NAMES[key]}`)) ?? changed[0];
}
