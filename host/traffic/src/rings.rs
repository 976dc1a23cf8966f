// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the rings of time cells in which the programs count (`bpf/traffic.h`) into a series.

use weir_result::Cells;

/// Copies the cells of a ring into a series. A cell is overwritten as a whole, so it does not
/// matter how often a ring is collected.
pub(super) fn collect(words: &[u64], series: &mut Cells) {
    let (cells, _) = words.as_chunks::<WORDS_PER_CELL>();
    for [number, packets, bytes] in cells {
        if let Some(number) = number.checked_sub(1) {
            series.set(number.saturating_mul(series.cell_ns), *packets, *bytes);
        }
    }
}

/// Returns the interval of collection: a quarter of the time after which the ring reuses a cell.
pub(super) const fn collect_interval_ns(cell_ns: u64) -> u64 {
    CELLS as u64 / 4 * cell_ns
}

/// Cells of a ring, and their words: number + 1, packets, bytes.
pub(super) const CELLS: usize = 512;
pub(super) const WORDS_PER_CELL: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_twice_is_collecting_once() {
        let mut series = Cells::new(30, 10);
        let ring = [4 + 1, 2, 200, 0, 9, 9, 3 + 1, 1, 100, 2 + 1, 7, 7];
        collect(&ring, &mut series);
        collect(&ring, &mut series);
        assert_eq!((series.packets, series.bytes), (vec![1, 2], vec![100, 200]));
    }
}
