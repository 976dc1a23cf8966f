// SPDX-License-Identifier: Apache-2.0 OR MIT
// Server-sent events from a response's body: EventSource cannot send a token.

export interface ServerEvent {
  event: string;
  data: string;
}

/** Collects text as it comes, and hands out whole events. Lines end as the node ends them. */
export class EventParser {
  #rest = "";
  /** Up to where the rest was looked through: a long event comes in many pieces. */
  #seen = 0;

  /** The events that this text completes. */
  take(text: string): ServerEvent[] {
    this.#rest += text;
    if (this.#rest.length > REST_MAX) {
      throw new Error(`an event is longer than ${REST_MAX} characters`);
    }
    const events: ServerEvent[] = [];
    let begin = 0;
    // The end of an event may be cut in two.
    let end = this.#rest.indexOf("\n\n", Math.max(0, this.#seen - 1));
    while (end >= 0) {
      const event = parsed(this.#rest.slice(begin, end));
      if (event.data !== "") events.push(event);
      begin = end + 2;
      end = this.#rest.indexOf("\n\n", begin);
    }
    this.#rest = this.#rest.slice(begin);
    this.#seen = this.#rest.length;
    return events;
  }
}

function parsed(block: string): ServerEvent {
  const event: ServerEvent = { event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") event.event = value;
    if (field === "data") data.push(value);
  }
  event.data = data.join("\n");
  return event;
}

/** Eight thousand vifs with every reason of a drop are less than this. */
const REST_MAX = 64 << 20;
