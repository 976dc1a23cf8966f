// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets and bytes by time.

use serde::{Deserialize, Serialize};

/// Packets and bytes in cells of equal width, from `origin_ns` on. Cells of one width
/// begin at multiples of it, so those of different streams lie side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cells {
    /// Start of the first cell.
    pub origin_ns: u64,
    /// Width of a cell.
    pub cell_ns: u64,
    /// Packets of each cell.
    pub packets: Vec<u64>,
    /// Bytes of each cell.
    pub bytes: Vec<u64>,
    /// Packets that came before the first cell or after the last one that there is room for.
    pub outside: u64,
}

impl Cells {
    /// Makes an empty series whose first cell holds `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64, cell_ns: u64) -> Self {
        let cell_ns = cell_ns.max(1);
        Self { origin_ns: start_ns - start_ns % cell_ns, cell_ns, ..Self::default() }
    }

    /// Counts packets that came at `now_ns`.
    pub fn add(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        let Some((in_cell, bytes_in_cell)) = self.cell_at(now_ns) else {
            self.outside += packets;
            return;
        };
        *in_cell += packets;
        *bytes_in_cell += bytes;
    }

    /// Sets the count of the cell that holds `now_ns`.
    pub fn set(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        if let Some((in_cell, bytes_in_cell)) = self.cell_at(now_ns) {
            (*in_cell, *bytes_in_cell) = (packets, bytes);
        }
    }

    /// Adds empty cells until the series reaches `end_ns`, so that silence shows as zeros.
    pub fn extend_to(&mut self, end_ns: u64) {
        self.cell_at(end_ns.saturating_sub(1));
    }

    /// Returns the sums of packets and bytes over windows of `cells` cells, from the cell that
    /// holds `from_ns` on: full windows only.
    #[must_use]
    pub fn windows(&self, from_ns: u64, cells: usize) -> Vec<(u64, u64)> {
        let first = from_ns.saturating_sub(self.origin_ns).div_ceil(self.cell_ns.max(1));
        let first = usize::try_from(first).unwrap_or(usize::MAX).min(self.packets.len());
        let width = cells.max(1);
        let packets = self.packets[first..].chunks_exact(width);
        let bytes = self.bytes[first..].chunks_exact(width);
        packets.zip(bytes).map(|(p, b)| (p.iter().sum(), b.iter().sum())).collect()
    }

    fn cell_at(&mut self, now_ns: u64) -> Option<(&mut u64, &mut u64)> {
        let index = now_ns.checked_sub(self.origin_ns)? / self.cell_ns.max(1);
        let index = usize::try_from(index).ok().filter(|index| *index < CELLS_MAX)?;
        if index >= self.packets.len() {
            self.packets.resize(index + 1, 0);
            self.bytes.resize(index + 1, 0);
        }
        Some((self.packets.get_mut(index)?, self.bytes.get_mut(index)?))
    }
}

/// 10 minutes of 10 ms cells: 1 MiB a cells.
pub const CELLS_MAX: usize = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_begin_at_multiples_of_their_width() {
        let mut cells = Cells::new(25, 10);
        cells.add(29, 1, 100);
        cells.add(45, 2, 200);
        cells.add(49, 1, 50);
        assert_eq!(cells.origin_ns, 20);
        assert_eq!((&cells.packets[..], &cells.bytes[..]), (&[1, 0, 3][..], &[100, 0, 250][..]));
    }

    #[test]
    fn what_has_no_cell_is_counted_apart() {
        let mut cells = Cells::new(100, 10);
        cells.add(99, 3, 1);
        cells.add(100 + 10 * CELLS_MAX as u64, 4, 1);
        assert_eq!((cells.outside, cells.packets.len()), (7, 0));
        cells.add(99 + 10 * CELLS_MAX as u64, 5, 1);
        assert_eq!((cells.outside, cells.packets.len()), (7, CELLS_MAX));
    }

    #[test]
    fn windows_are_full_and_begin_at_a_cell() {
        let mut cells = Cells::new(0, 10);
        for cell in 0..7 {
            cells.add(cell * 10, 1, cell);
        }
        assert_eq!(cells.windows(5, 2), [(2, 1 + 2), (2, 3 + 4), (2, 5 + 6)]);
        assert_eq!(cells.windows(1_000, 2), []);
        cells.extend_to(90);
        assert_eq!(cells.packets.len(), 9);
    }
}
