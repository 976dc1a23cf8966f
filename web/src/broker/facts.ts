// SPDX-License-Identifier: Apache-2.0 OR MIT
// A connection's priority and times as text, which the page shows beside its rate and path.

import type { ConnectionView } from "./api";

/** Priority and times of a connection, each as a few words, without those that are as usual. */
export function facts({ request, hold_until, lease_until }: ConnectionView): string[] {
  const { priority = 0, start, end } = request;
  return [
    priority > 0 && `priority ${priority}`,
    start && `starts ${moment(start)}`,
    end && `ends ${moment(end)}`,
    hold_until && `held until ${moment(hold_until)}`,
    lease_until && `lease until ${moment(lease_until)}`,
  ].filter((fact): fact is string => Boolean(fact));
}

/** A moment in the reader's own time; today's without the date. */
export function moment(text: string, now = new Date()): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  const clock = time.toLocaleTimeString([], { timeStyle: "medium" });
  if (time.toDateString() === now.toDateString()) return clock;
  return `${time.toLocaleDateString([], { dateStyle: "medium" })} ${clock}`;
}
