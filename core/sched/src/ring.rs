// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue of class indexes in one array: the active list of the round robins, the order of FIFO.

use alloc::vec::Vec;

/// First in, first out. [`Ring::reserve`] makes room. An entry beyond that is refused; each user
/// makes sure that there is none.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// A power of two long, or empty.
    slots: Vec<u32>,
    head: usize,
    len: usize,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), head: 0, len: 0 }
    }

    /// Makes room for `total` entries.
    pub(crate) fn reserve(&mut self, total: usize) {
        if total <= self.slots.len() {
            return;
        }
        let mut slots = Vec::with_capacity(total.next_power_of_two());
        slots.extend((0..self.len).map(|i| self.slots[(self.head + i) & self.mask()]));
        slots.resize(total.next_power_of_two(), 0);
        (self.slots, self.head) = (slots, 0);
    }

    #[inline]
    pub(crate) fn push(&mut self, class: u32) {
        debug_assert!(self.len < self.slots.len(), "room is made when a class is added");
        if self.len < self.slots.len() {
            let at = (self.head + self.len) & self.mask();
            self.slots[at] = class;
            self.len += 1;
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let class = self.front()?;
        self.head = (self.head + 1) & self.mask();
        self.len -= 1;
        Some(class)
    }

    /// Moves the first entry to the end.
    #[inline]
    pub(crate) fn rotate(&mut self) {
        if let Some(class) = self.pop() {
            self.push(class);
        }
    }

    /// Takes out all entries of a class. Walks all: for changes of configuration.
    pub(crate) fn remove(&mut self, class: u32) {
        for _ in 0..self.len {
            match self.pop() {
                Some(entry) if entry != class => self.push(entry),
                _ => {}
            }
        }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.len > 0).then(|| self.slots[self.head])
    }

    /// Returns all entries, the first first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len).map(|index| self.slots[(self.head + index) & self.mask()])
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    const fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_growth_rotation_and_removal() {
        let mut ring = Ring::new();
        ring.reserve(3);
        for class in 0..3 {
            ring.push(class);
        }
        ring.rotate();
        ring.reserve(6);
        for class in [7, 1, 8] {
            ring.push(class);
        }
        ring.remove(1);
        assert_eq!(ring.len(), 4);
        let order: Vec<u32> = core::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(order, [2, 0, 7, 8]);
    }
}
