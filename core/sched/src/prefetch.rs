// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetches memory that will be needed soon.
//!
//! With the feature `prefetch` this is the processor's instruction for it (on x86 and aarch64), for
//! which nothing waits. A load whose result is not used does the same, but holds a place in the
//! processor until memory answers; a few of them leave no place for the work at hand.

/// Set if prefetching is built in. A node without it behaves the same, but is slower.
pub const PREFETCHES: bool = cfg!(feature = "prefetch");

/// Asks for the cache line of the first byte of `items[index]`. An index beyond the end is
/// harmless: nothing is read.
#[inline(always)]
#[cfg(feature = "prefetch")]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    prefetch_index::prefetch_index(items, index);
}

/// Does nothing, without the feature.
#[inline(always)]
#[cfg(not(feature = "prefetch"))]
pub(crate) const fn prefetch<T>(_: &[T], _: usize) {}
