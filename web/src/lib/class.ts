// SPDX-License-Identifier: Apache-2.0 OR MIT
// The real-time class of a router, as typed, and the request that asks for it. The node alone
// decides what is sound.

import type { RealtimeChange, RealtimeClassView, RouterChange, RouterInterface } from "./api";
import { exactTime, parseTime } from "./format";

/**
 * The fields of the form. `class` is empty for none. The node does not tell the names of the
 * threads: they stay as they are if all of these fields are empty.
 */
export interface ClassFields {
  class: string;
  deadline: string;
  period: string;
  cpu: string;
  core: string;
  weight: string;
  process: string;
  group: string;
  domain: string;
  namespace: string;
  interface: string;
}

export type ClassKey = Exclude<keyof ClassFields, "class">;

/** The class in force as the form shows it. */
export const classFields = (of: RealtimeClassView | undefined): ClassFields => ({
  class: of?.type ?? "",
  deadline: of?.deadline_ns === undefined ? "" : exactTime(of.deadline_ns),
  // A period that equals the deadline is left empty, so that it goes on following the deadline.
  period: of?.period_ns === undefined || of.period_ns === of.deadline_ns
    ? ""
    : exactTime(of.period_ns),
  cpu: of?.cpu_ppm === undefined ? "" : exactShare(of.cpu_ppm),
  core: of?.core === undefined ? "" : String(of.core),
  weight: of?.weight === undefined ? "" : String(of.weight),
  process: "",
  group: "",
  domain: "",
  namespace: "",
  interface: "",
});

/** The change that asks for what was typed; or the field that cannot be read, and why. */
export function classRequest(
  typed: ClassFields,
): { body: RouterChange } | { key: ClassKey; message: string } {
  if (typed.class === "") return { body: { realtime: null } };
  const none = { deadline_ns: null, period_ns: null, cpu_ppm: null, core: null, weight: null };
  const change: RealtimeChange = { ...none, type: typed.class as RealtimeClassView["type"] };
  const keys: TimingKey[] = typed.class === "normal"
    ? ["weight"]
    : ["deadline", "period", "cpu", "core"];
  for (const key of keys) {
    const text = typed[key].trim();
    if (text === "") continue;
    const { name, parse, example } = FIELDS[key];
    const value = parse(text);
    if (value === undefined) return { key, message: `“${text}” is not ${example}` };
    change[name] = value;
  }
  const named = threadNames(typed);
  if (named === undefined) {
    const message = `“${typed.interface.trim()}” is not a list such as v0=eth0, v1=eth1`;
    return { key: "interface", message };
  }
  Object.assign(change, named);
  return { body: { realtime: change } };
}

/**
 * Reads the names of threads. If one is given, the others are removed; without any, nothing
 * changes. Undefined if the interfaces cannot be read.
 */
function threadNames(typed: ClassFields): Partial<RealtimeChange> | undefined {
  const given = (key: "process" | "group" | "domain" | "namespace") => typed[key].trim() || null;
  const interfaces = parseInterfaces(typed.interface);
  if (interfaces === undefined) return undefined;
  const [process, group, domain] = [given("process"), given("group"), given("domain")];
  const namespace = given("namespace");
  if (!process && !group && !domain && !namespace && interfaces.length === 0) return {};
  // If several are given that exclude each other, the node refuses with the reason.
  const change = { process, group, domain, namespace };
  return { ...change, interface: interfaces.length > 0 ? interfaces : null };
}

/** Reads `v0=eth0, v1=eth1`: devices of the node, each with the device inside. */
export function parseInterfaces(typed: string): RouterInterface[] | undefined {
  const parts = typed.split(",").map((part) => part.trim()).filter((part) => part !== "");
  const read = parts.map((part) => /^([^\s=]+)(?:=([^\s=]+))?$/.exec(part));
  if (read.some((form) => form === null)) return undefined;
  return read.map((form) => {
    const [, device = "", inside] = form ?? [];
    return inside === undefined ? { device } : { device, inside };
  });
}

/** Reads a share of a processor in millionths: `20 %`, `12.5%`; nothing if it is none. */
export function parseShare(typed: string): number | undefined {
  const form = /^(\d+(?:\.\d{1,4})?)\s*%$/.exec(typed.trim());
  return form ? Math.round(Number(form[1]) * 10_000) : undefined;
}

/** A share of a processor as a person would type it, exactly. */
export const exactShare = (ppm: number): string => `${ppm / 10_000} %`;

const whole = (typed: string) => (/^\d{1,5}$/.test(typed) ? Number(typed) : undefined);

type Named = "deadline_ns" | "period_ns" | "cpu_ppm" | "core" | "weight";

interface Field {
  name: Named;
  parse: (typed: string) => number | undefined;
  example: string;
}

const TIME = { parse: parseTime, example: "a time such as 5 ms" };

type TimingKey = "deadline" | "period" | "cpu" | "core" | "weight";

const FIELDS: Record<TimingKey, Field> = {
  deadline: { ...TIME, name: "deadline_ns" },
  period: { ...TIME, name: "period_ns" },
  cpu: { name: "cpu_ppm", parse: parseShare, example: "a share such as 20 %" },
  core: { name: "core", parse: whole, example: "the number of a processor" },
  weight: { name: "weight", parse: whole, example: "a whole number" },
};
