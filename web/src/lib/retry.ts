// SPDX-License-Identifier: Apache-2.0 OR MIT
// How long to wait before a connection is tried again: 250 ms first, since most failures are over
// by then, then twice as long each time, so that a node that is down is not asked all the time.

/** Milliseconds to wait after that many failed attempts in a row, counted from zero. */
export const retryDelay = (failures: number): number =>
  Math.min(FIRST_MS * 2 ** failures, MOST_MS);

/** Waits that long, or until stopped. */
export const pause = (ms: number, stop: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(alarm);
      stop.removeEventListener("abort", done);
      resolve();
    };
    const alarm = setTimeout(done, ms);
    stop.addEventListener("abort", done);
    if (stop.aborted) done();
  });

const FIRST_MS = 250;
const MOST_MS = 5000;
