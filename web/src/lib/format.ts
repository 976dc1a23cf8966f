// SPDX-License-Identifier: Apache-2.0 OR MIT
// Numbers for people: three digits, the unit beside them; and the way back for what people type.

const PREFIXES = ["", "k", "M", "G", "T"];

/** Three digits of a number and its prefix; k is 1000 always. */
function scaled(value: number): [string, string] {
  let size = Math.abs(value);
  let power = 0;
  // What would be rounded up to four digits takes the next prefix.
  while (size >= 999.5 && power < PREFIXES.length - 1) {
    size /= 1000;
    power += 1;
  }
  const whole = power === 0 && Number.isInteger(size);
  const digits = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return [(value < 0 ? "−" : "") + size.toFixed(digits), PREFIXES[power] ?? ""];
}

/** A number and what stands behind it. */
export interface Quantity {
  number: string;
  unit: string;
}

const quantity = (value: number, unit: string): Quantity => {
  const [number, prefix] = scaled(value);
  return { number, unit: prefix + unit };
};

/** Bits a second. A rate below one is shown as zero. */
export const rate = (bps: number): Quantity => quantity(bps < 1 ? 0 : bps, "b/s");

export const packetRate = (pps: number): Quantity => quantity(pps < 0.05 ? 0 : pps, "p/s");

export const bytes = (count: number): Quantity => quantity(count, "B");

export const packets = (count: number): Quantity => quantity(count, count === 1 ? "pkt" : "pkts");

/** A time in nanoseconds. */
export function time(ns: number): Quantity {
  if (ns <= 0) return { number: "0", unit: "s" };
  const units: [number, string][] = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ];
  for (const [size, unit] of units) {
    if (ns >= size * 0.9995) {
      const value = ns / size;
      return { number: value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2), unit };
    }
  }
  return { number: ns.toFixed(0), unit: "ns" };
}

export const percent = (share: number): Quantity => ({
  number: (share * 100).toFixed(share >= 0.0995 ? 0 : 1),
  unit: "%",
});

export const text = ({ number, unit }: Quantity): string => `${number} ${unit}`;

/** A duration in milliseconds: `12 ms`, `4.2 s`. */
export const duration = (ms: number): string =>
  ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;

/** Writes a time for a person: `3 s`, `2 min`, `5 h`, `4 d`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const FACTORS: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 };

/** Reads a typed rate: `30Mbit`, `30 Mb/s`, `1.5g`, `2000000`; nothing if it is none. */
export function parseRate(typed: string): number | undefined {
  // A capital B would be bytes.
  const form = /^(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)\s*(?:[bB]its?|b|bps|[bB]it\/s|b\/s)?$/.exec(
    typed.trim(),
  );
  if (!form) return undefined;
  const bps = Math.round(Number(form[1]) * (FACTORS[(form[2] ?? "").toLowerCase()] ?? 1));
  return Number.isSafeInteger(bps) ? bps : undefined;
}

/** A rate as a person would type it, exactly. */
export function exactRate(bps: number): string {
  for (const [size, unit] of [[1e9, "Gbit"], [1e6, "Mbit"], [1e3, "kbit"]] as const) {
    // Three decimal places at most: a rate that needs more gets a smaller unit.
    if (bps >= size && (bps * 1000) % size === 0) return `${bps / size} ${unit}`;
  }
  return `${bps} bit`;
}

const TIMES: Record<string, number> = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };

/** Reads a typed time in nanoseconds: `3ms`, `1.5 s`, `0`; nothing if it is none. */
export function parseTime(typed: string): number | undefined {
  const form = /^(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)$/.exec(typed.trim());
  // Zero needs no unit.
  if (!form) return /^0+$/.test(typed.trim()) ? 0 : undefined;
  const ns = Math.round(Number(form[1]) * (TIMES[form[2] ?? ""] ?? NaN));
  return Number.isSafeInteger(ns) ? ns : undefined;
}

/** A time as a person would type it, exactly. */
export function exactTime(ns: number): string {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]] as const) {
    if (ns >= size && (ns * 1000) % size === 0) return `${ns / size} ${unit}`;
  }
  return `${ns} ns`;
}

const SIZES: Record<string, number> = {
  "": 1,
  k: 1e3,
  M: 1e6,
  Ki: 1024,
  Mi: 1024 * 1024,
};

/** Reads a typed count of bytes: `1518`, `64 KiB`, `1.5MB`; nothing if it is none. */
export function parseBytes(typed: string): number | undefined {
  const form = /^(\d+(?:\.\d+)?)\s*(k|M|Ki|Mi|)B?$/.exec(typed.trim());
  if (!form) return undefined;
  const count = Number(form[1]) * (SIZES[form[2] ?? ""] ?? NaN);
  return Number.isSafeInteger(count) ? count : undefined;
}

/** A count of bytes as a person would type it, exactly. */
export function exactBytes(count: number): string {
  for (const [size, unit] of [[1024 * 1024, "MiB"], [1024, "KiB"]] as const) {
    if (count >= size && count % size === 0) return `${count / size} ${unit}`;
  }
  return `${count} B`;
}
