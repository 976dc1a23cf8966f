// SPDX-License-Identifier: Apache-2.0 OR MIT
// The upper end of an axis: a round number, so that it seldom changes.

/** The least of 1, 1.2, 1.6, 2, 3, 4, 6, 8 times a power of ten that is not below `value`. */
export function nice(value: number): number {
  if (!(value > LEAST)) return LEAST;
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10];
  return power * (steps.find((step) => step * power >= value * (1 - 1e-9)) ?? 10);
}

/** The least upper end: a rate near zero is drawn at the bottom of the chart. */
const LEAST = 1e5;
