// SPDX-License-Identifier: Apache-2.0 OR MIT
// The form for a connection, as a request; and changes that a refusal proposes, for the form.

import type { RequestedConnection, SuggestedChange } from "./api";

/** The fields of the form, as they were typed. */
export interface Draft {
  network: string;
  from: string;
  to: string;
  rate: string;
  back_rate: string;
  protocol: string;
  from_port: string;
  to_port: string;
  delay_max: string;
  hops_max: string;
  /** Names of links. */
  avoid: string[];
  /** Names of colours. */
  include: string[];
  exclude: string[];
  disjoint_from: string;
  packet: string;
  priority: string;
  /** Times as a field of the browser has them: local, such as `2027-01-31T12:00`. */
  start: string;
  end: string;
  hold: string;
  lease: string;
}

/** The fields that a refusal can propose. */
export type Fields = Partial<Pick<Draft, "rate" | "back_rate" | "delay_max" | "hops_max">>;

export const EMPTY: Draft = {
  network: "",
  from: "",
  to: "",
  rate: "",
  back_rate: "",
  protocol: "",
  from_port: "",
  to_port: "",
  delay_max: "",
  hops_max: "",
  avoid: [],
  include: [],
  exclude: [],
  disjoint_from: "",
  packet: "",
  priority: "",
  start: "",
  end: "",
  hold: "",
  lease: "",
};

/** The request of a form. What was left empty is left out. */
export function request(draft: Draft): RequestedConnection {
  const { avoid, include, exclude, ...typed } = draft;
  const texts = Object.entries(typed).map(([field, text]) => [field, text.trim()] as const);
  const filled = texts.filter(([, text]) => text !== "");
  const values = Object.fromEntries(filled.map(([field, text]) => [field, value(field, text)]));
  return {
    ...values,
    ...(avoid.length > 0 && { avoid }),
    ...(include.length > 0 && { include }),
    ...(exclude.length > 0 && { exclude }),
  } as RequestedConnection;
}

/** The value of a field. A text that cannot be read is sent as it is: the broker refuses it. */
function value(field: string, text: string): number | string {
  if (NUMBERS.has(field) && /^\d+$/.test(text)) return Number(text);
  if (TIMES.has(field)) {
    const time = new Date(text);
    if (!Number.isNaN(time.getTime())) return time.toISOString();
  }
  return text;
}

const NUMBERS = new Set(["from_port", "to_port", "hops_max", "packet", "priority"]);
const TIMES = new Set(["start", "end"]);

/** A proposed change in words, and the fields that make it; absent if no field does. */
export interface Proposal {
  text: string;
  fields?: Fields;
}

export function proposal(change: SuggestedChange): Proposal {
  const { rate, back_rate, delay_max, hops_max, links = [] } = change;
  if (links.length > 0) {
    const lacks = links.map(({ link, from, more }) => `${more} more of ${link} from ${from}`);
    return { text: `The network would need ${lacks.join(", ")}.` };
  }
  const fields: Fields = {};
  const words: string[] = [];
  const take = (field: keyof Fields, value: string | undefined, name: string): void => {
    if (value === undefined) return;
    fields[field] = value;
    words.push(`${name} ${value}`);
  };
  take("rate", rate, "rate");
  take("back_rate", back_rate, "rate back");
  take("delay_max", delay_max, "delay up to");
  take("hops_max", hops_max?.toString(), "links up to");
  return { text: words.join(", "), fields };
}
