// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a person has typed for a vif, and what of it is asked of the node. The node alone decides
// what is sound; here only what is no number at all is refused.

import { exactRate, parseRate } from "./format";
import type { Share, Side, Vif } from "./types";

export type Key = "min_rate_bps" | "rate_bps" | "priority";

export const KEYS: readonly Key[] = ["min_rate_bps", "rate_bps", "priority"];

/** The fields of one direction, as typed. */
export type Fields = Record<Key, string>;

export type Draft = Record<Side, Fields>;

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

/** What holds, as the form shows it. */
export const draftOf = (vif: Vif): Draft => ({
  send: fields(vif.send),
  receive: fields(vif.receive),
});

/** The body of a request for what differs from what holds; or what is no number. */
export function requestOf(
  draft: Draft,
  vif: Vif,
): { body: Partial<Record<Side, Partial<Record<Key, number | null>>>>; problems: Problem[] } {
  const holds = draftOf(vif);
  const body: Partial<Record<Side, Partial<Record<Key, number | null>>>> = {};
  const problems: Problem[] = [];
  for (const side of ["send", "receive"] as const) {
    for (const key of KEYS) {
      const typed = draft[side][key].trim();
      if (typed === holds[side][key]) continue;
      const value = typed === "" ? null : key === "priority" ? whole(typed) : parseRate(typed);
      if (value === undefined) {
        const form = key === "priority" ? "a whole number" : "a rate such as 30 Mbit";
        problems.push({ side, key, message: `“${typed}” is not ${form}` });
      } else {
        (body[side] ??= {})[key] = value;
      }
    }
  }
  return { body, problems };
}

const whole = (typed: string): number | undefined =>
  /^\d{1,9}$/.test(typed) ? Number(typed) : undefined;

/** What the node calls the keys of the form. */
const NAMES: Record<Key, RegExp> = {
  min_rate_bps: /\bmin_rate(_bps)?\b/,
  rate_bps: /(^|[^_\w])rate(_bps)?\b/,
  priority: /\bpriority\b/,
};

/** The field that a refusal is about: the first changed one that it names, else the first. */
export function blamed(
  message: string,
  body: Partial<Record<Side, Partial<Record<Key, unknown>>>>,
): Pick<Problem, "side" | "key"> | undefined {
  const changed: Pick<Problem, "side" | "key">[] = [];
  for (const side of ["send", "receive"] as const) {
    for (const key of KEYS) if (body[side]?.[key] !== undefined) changed.push({ side, key });
  }
  const named = changed.filter(({ key }) => NAMES[key].test(message));
  return named.find(({ side }) => message.includes(side)) ?? named[0] ?? changed[0];
}
