// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in bounded number: connections, listeners, changes that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many places, no more.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    taken: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    most: usize,
}

/// A place; given back with the value.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// That many places.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), refused: Arc::default(), most }
    }

    /// A place, if one is free; counted if none is.
    pub(crate) fn take(&self) -> Option<Slot> {
        if self.taken.fetch_add(1, Ordering::SeqCst) < self.most {
            return Some(Slot(Arc::clone(&self.taken)));
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Places taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// How often none was free.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Places in all.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_no_more() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
        assert_eq!((slots.taken(), slots.refused(), slots.most()), (1, 1, 2));
    }
}
