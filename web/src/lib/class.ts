// SPDX-License-Identifier: Apache-2.0 OR MIT
// The real-time class of a router, as typed, and the request that asks for it. The node alone
// decides what is sound.

import type { RealtimeChange, RealtimeClassView, RouterChange } from "./api";
import { exactTime, parseTime } from "./format";

/** The fields of the form. `class` is empty for none. */
export interface ClassFields {
  class: string;
  deadline: string;
  period: string;
  cpu: string;
  weight: string;
}

export type ClassKey = Exclude<keyof ClassFields, "class">;

/** The class in force as the form shows it. */
export const classFields = (of: RealtimeClassView | undefined): ClassFields => ({
  class: of?.type ?? "",
  deadline: of?.deadline_ns === undefined ? "" : exactTime(of.deadline_ns),
  // The period that follows from the deadline goes on following it.
  period: of?.period_ns === undefined || of.period_ns === of.deadline_ns
    ? ""
    : exactTime(of.period_ns),
  cpu: of?.cpu_ppm === undefined ? "" : exactShare(of.cpu_ppm),
  weight: of?.weight === undefined ? "" : String(of.weight),
});

/** The change that asks for what was typed; or the field that cannot be read, and why. */
export function classRequest(
  typed: ClassFields,
): { body: RouterChange } | { key: ClassKey; message: string } {
  if (typed.class === "") return { body: { realtime: null } };
  const none = { deadline_ns: null, period_ns: null, cpu_ppm: null, weight: null };
  const change: RealtimeChange = { ...none, type: typed.class as RealtimeClassView["type"] };
  const keys: ClassKey[] = typed.class === "normal" ? ["weight"] : ["deadline", "period", "cpu"];
  for (const key of keys) {
    const text = typed[key].trim();
    if (text === "") continue;
    const { name, parse, example } = FIELDS[key];
    const value = parse(text);
    if (value === undefined) return { key, message: `“${text}” is not ${example}` };
    change[name] = value;
  }
  return { body: { realtime: change } };
}

/** Reads a share of a processor in millionths: `20 %`, `12.5%`; nothing if it is none. */
export function parseShare(typed: string): number | undefined {
  const form = /^(\d+(?:\.\d{1,4})?)\s*%$/.exec(typed.trim());
  return form ? Math.round(Number(form[1]) * 10_000) : undefined;
}

/** A share of a processor as a person would type it, exactly. */
export const exactShare = (ppm: number): string => `${ppm / 10_000} %`;

const whole = (typed: string) => (/^\d{1,5}$/.test(typed) ? Number(typed) : undefined);

type Named = "deadline_ns" | "period_ns" | "cpu_ppm" | "weight";

interface Field {
  name: Named;
  parse: (typed: string) => number | undefined;
  example: string;
}

const TIME = { parse: parseTime, example: "a time such as 5 ms" };

const FIELDS: Record<ClassKey, Field> = {
  deadline: { ...TIME, name: "deadline_ns" },
  period: { ...TIME, name: "period_ns" },
  cpu: { name: "cpu_ppm", parse: parseShare, example: "a share such as 20 %" },
  weight: { name: "weight", parse: whole, example: "a whole number" },
};
