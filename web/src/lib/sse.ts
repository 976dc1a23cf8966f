// SPDX-License-Identifier: Apache-2.0 OR MIT
// Server-sent events from a response's body: EventSource cannot send a token.

import { createParser, type ParseError } from "eventsource-parser";

export interface ServerEvent {
  event: string;
  data: string;
}

/** Collects text as it arrives and returns whole events. */
export class EventParser {
  #events: ServerEvent[] = [];
  #failed: ParseError | undefined;
  #parser = createParser({
    maxBufferSize: BUFFER_MAX,
    onEvent: ({ event, data }) => this.#events.push({ event: event ?? "message", data }),
    onError: (error) => {
      // The standard says that unknown fields are ignored.
      if (error.type === "max-buffer-size-exceeded") this.#failed = error;
    },
  });

  /** Returns the events that this text completes. Throws if an event is longer than the bound. */
  take(text: string): ServerEvent[] {
    this.#events = [];
    this.#parser.feed(text);
    if (this.#failed) throw new Error(`an event is longer than ${BUFFER_MAX} characters`);
    return this.#events;
  }
}

/** Longer than a status of 8192 vifs with every drop reason. */
const BUFFER_MAX = 64 << 20;
