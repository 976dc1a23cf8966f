// SPDX-License-Identifier: Apache-2.0 OR MIT
// Rates of links from two readings of their counters.

import type { LinkTraffic } from "./api";

/** One direction of a link, as a key. */
export const key = (link: string, from: string): string => `${link} ${from}`;

export class LinkMeter {
  #last = new Map<string, LinkTraffic>();

  /** Returns bits a second by direction, without those that the reading before did not have. */
  take(reading: readonly LinkTraffic[]): Map<string, number> {
    const rates = new Map<string, number>();
    for (const now of reading) {
      const name = key(now.link, now.from);
      const before = this.#last.get(name);
      const time = before ? now.at_ms - before.at_ms : 0;
      const bytes = before ? now.passed_bytes - before.passed_bytes : -1;
      // Counters begin anew when the link's tree is made again.
      if (time > 0 && bytes >= 0) rates.set(name, (bytes * 8000) / time);
    }
    this.#last = new Map(reading.map((now) => [key(now.link, now.from), now]));
    return rates;
  }
}
