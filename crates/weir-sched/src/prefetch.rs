// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking memory for what will be needed soon.
//!
//! With the feature `prefetch` this is the processor's instruction for it, in which nothing waits.
//! A load whose result is not used does the same, but holds a place in the processor until memory
//! answers; a few of them leave no place for the work at hand.

/// Asks for the first cache line of `items[index]`, wherever that lies.
#[inline(always)]
#[cfg(feature = "prefetch")]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    prefetch_index::prefetch_index(items, index);
}

/// Nothing: not every target has such an instruction, nor every build the crate that names it.
#[inline(always)]
#[cfg(not(feature = "prefetch"))]
pub(crate) const fn prefetch<T>(_: &[T], _: usize) {}
