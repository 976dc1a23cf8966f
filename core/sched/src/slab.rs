// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table whose items keep their index, and the index of none.

use alloc::vec::Vec;

/// A table with stable indexes; a freed one is used again.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Makes an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// Stores `item` and returns its index. There are fewer than 2³² at a time.
    pub fn insert(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.items[index as usize] = item;
            return index;
        }
        self.items.push(item);
        u32::try_from(self.items.len() - 1).unwrap_or(NONE)
    }

    /// Returns all indexes, free ones too.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = u32> + use<T> {
        (0..).take(self.items.len())
    }

    /// Frees `index`; the item stays until the index is used again.
    pub fn remove(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        &self.items[index as usize]
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}

/// No index.
pub(crate) const NONE: u32 = u32::MAX;
