// SPDX-License-Identifier: Apache-2.0 OR MIT
// The newest samples of several quantities, in bounded memory.

/** A sample, or nothing: a gap in the line. */
export type Sample = number | null;

/** A table of so many columns and at most so many rows; a new row takes the place of the oldest. */
export class History {
  readonly #columns: Sample[][];
  readonly #capacity: number;

  constructor(columns: number, capacity: number) {
    if (!(columns > 0 && capacity > 0)) throw new RangeError(`${columns} × ${capacity} rows`);
    this.#columns = Array.from({ length: columns }, () => []);
    this.#capacity = capacity;
  }

  get length(): number {
    return this.#columns[0]?.length ?? 0;
  }

  /** Adds a row: a value for each column. A value that is left out is a gap. */
  push(...row: Sample[]): void {
    this.#columns.forEach((column, index) => {
      column.push(row[index] ?? null);
      if (column.length > this.#capacity) column.shift();
    });
  }

  /** Returns a column, oldest first. It is valid until the next row. */
  column(index: number): readonly Sample[] {
    return this.#columns[index] ?? [];
  }

  /** Returns the greatest value of a column; 0 without any. */
  max(index: number): number {
    let most = 0;
    for (const value of this.column(index)) if (value !== null && value > most) most = value;
    return most;
  }
}
